// Bits against reference/exact, errors against reference/precise, times against memcpy.
#include "demo/check.h"

#include <algorithm>
#include <cmath>
#include <mutex>
#include <stdexcept>
#include <vector>

#include "reference/exact.h"
#include "support/outputs.h"
#include "support/parallel.h"

namespace qkvfuse::cli {
namespace {

constexpr int64_t kChunkTokens = 16;

struct Energy {
  double signal = 0;
  double noise = 0;
  void Add(const Energy& other) {
    signal += other.signal;
    noise += other.noise;
  }
  [[nodiscard]] double Decibels() const { return 10 * std::log10(signal / noise); }
};

// Errors of a range of tokens.
struct Errors {
  double q = 0;
  double cache = 0;
  int64_t inaccurate = 0;
  Energy k;
  Energy v;

  void Add(const OutputElement& element) {
    const double y = element.exact.y;
    inaccurate += IsAccurate(element) ? 0 : 1;
    if (!element.is_code()) {
      const double ulp = UnitInLastPlace(element.dtype, element.magnitude);
      double& largest = element.output == cases::TensorId::kQOut ? q : cache;
      largest = std::max(largest, std::abs(element.value - y) / ulp);
      return;
    }
    // A value beyond the range of the codes is clamped, which is not an error of the arithmetic.
    const double z = std::clamp(y / element.scale + element.offset, -128.0, 127.0);
    cache = std::max(cache, std::abs(element.value - z));
    const double noise = (element.value - element.offset) * element.scale - y;
    (element.output == cases::TensorId::kKCache ? k : v).Add({y * y, noise * noise});
  }

  void Add(const Errors& other) {
    q = std::max(q, other.q);
    cache = std::max(cache, other.cache);
    inaccurate += other.inaccurate;
    k.Add(other.k);
    v.Add(other.v);
  }
};

Errors MeasureErrors(const cases::Problem& problem, int threads, ProgressBar& progress) {
  const reference::Problem outputs = problem.LibraryProblem();
  Errors errors;
  std::mutex mutex;
  ParallelChunks(outputs.tokens(), kChunkTokens, threads, [&](int64_t begin, int64_t end) {
    Errors of_chunk;
    VisitOutputs(outputs, begin, end, [&](const OutputElement& e) { of_chunk.Add(e); });
    const std::lock_guard lock(mutex);
    errors.Add(of_chunk);
    progress.Advance(end - begin);
  });
  return errors;
}

void RunReference(const cases::Problem& problem, int threads, ProgressBar& progress) {
  const reference::Problem& reference = problem.ReferenceProblem();
  ParallelChunks(reference.tokens(), kChunkTokens, threads, [&](int64_t begin, int64_t end) {
    reference::RunExact(reference, begin, end);
    progress.Advance(end - begin);
  });
}

int64_t OutputElements(const cases::Problem& problem) {
  int64_t elements = 0;
  for (const cases::NamedView& output : problem.Outputs()) {
    elements += output.view.shape.ElementCount();
  }
  return elements;
}

}  // namespace

int64_t CheckSteps(const cases::Case& c) { return 2 * c.tokens.total(); }

Findings CheckScenario(cases::Problem& problem, const Plan& plan, int threads,
                       ProgressBar& progress) {
  problem.ResetOutputs();
  RunOptions options;
  options.threads = threads;
  const Status status = plan.Run(problem.tensors(), problem.tokens(), options);
  if (!status.ok()) throw std::runtime_error(status.message());
  RunReference(problem, threads, progress);

  Findings findings;
  findings.difference = problem.Compare().message();
  findings.output_elements = OutputElements(problem);
  const Errors errors = MeasureErrors(problem, threads, progress);
  findings.inaccurate = errors.inaccurate;
  findings.q_error = errors.q;
  findings.cache_error = errors.cache;
  findings.has_codes = problem.description().k_cache.dtype == DType::kInt8;
  if (findings.has_codes) {
    findings.k_snr_db = errors.k.Decibels();
    findings.v_snr_db = errors.v.Decibels();
  }
  return findings;
}

Speed MeasureSpeed(const cases::Problem& problem, const Plan& plan, int threads) {
  Speed speed;
  speed.bytes = plan.TrafficOf(problem.tokens()).total();
  std::vector<unsigned char> scratch(plan.WorkspaceBytes(problem.tokens()));
  const Workspace workspace{scratch.data(), scratch.size()};
  RunOptions options;
  options.threads = threads;
  MemcpyRoof copy(static_cast<size_t>(speed.bytes), threads);
  Status status;
  const std::vector<Times> times = MeasureTimes(
      {[&] { status = plan.Run(problem.tensors(), problem.tokens(), workspace, options); },
       [&] { copy(); }});
  if (!status.ok()) throw std::runtime_error(status.message());
  speed.run = times[0];
  speed.copy = times[1];
  return speed;
}

}  // namespace qkvfuse::cli
