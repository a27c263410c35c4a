// Runs fused and baseline on the same tensors and compares whole outputs.
#include "bench/check.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <stdexcept>
#include <vector>

#include "base/half.h"
#include "bench/baselines/baselines.h"
#include "bench/workload.h"

namespace qkvfuse::bench {
namespace {

using cases::TensorId;

constexpr TensorId kOutputs[] = {TensorId::kQOut, TensorId::kKCache, TensorId::kVCache};

double ValueOf(const TensorView& view, int64_t i) {
  if (view.dtype == DType::kInt8) return static_cast<const int8_t*>(view.data)[i];
  const uint16_t bits = static_cast<const uint16_t*>(view.data)[i];
  return view.dtype == DType::kFloat16 ? FloatFromHalf(bits) : FloatFromBFloat16(bits);
}

std::vector<double> ValuesOf(const TensorView& view) {
  std::vector<double> values(static_cast<size_t>(view.shape.ElementCount()));
  for (size_t i = 0; i < values.size(); ++i) values[i] = ValueOf(view, static_cast<int64_t>(i));
  return values;
}

/// How far two passes that round to 16 bits on the way may move a result. Each of the two values
/// that RoPE turns was rounded twice more, and cos and sin are at most 1, so together they move a
/// result by less than four units of roundoff of the larger one, which is at most sqrt(2) times the
/// larger result; both results are rounded once more.
double ToleranceOf(const TensorView& view, DType intermediate, double magnitude) {
  const double roundoff = intermediate == DType::kFloat16 ? 0x1p-11 : 0x1p-8;
  constexpr double kUnits = 8;
  // Codes: in steps of the scale, and one for the rounding.
  if (view.dtype == DType::kInt8) return 1 + kUnits * roundoff * 128;
  return kUnits * roundoff * magnitude;
}

double LargestOf(const std::vector<double>& values) {
  double largest = 0;
  for (const double value : values) largest = std::max(largest, std::abs(value));
  return largest;
}

/// The largest of the two values of q that turn together; of a cache, whose rows may lie anywhere,
/// the largest of all.
double MagnitudeAt(const std::vector<double>& values, size_t i, size_t head_dim) {
  const size_t half = head_dim / 2;
  const size_t partner = i % head_dim < half ? i + half : i - half;
  return std::max(std::abs(values[i]), std::abs(values[partner]));
}

Status Differs(const char* what, TensorId id, size_t i, double expected, double actual) {
  return Status(StatusCode::kInvalidArgument,
                fmt::format("{}: element {} of {} is {}, the fused call gives {}", what, i,
                            cases::Name(id), actual, expected));
}

using RunBaseline = void (*)(const Baselines&, const Workload&);

/// The values of every output after the fused call and after a baseline.
template <typename Compare>
Status CompareRuns(Workload& workload, RunBaseline run, Compare compare) {
  const Baselines baselines(workload.plan(), workload.tokens());
  workload.ClearOutputs();
  RunOptions options;
  options.threads = workload.threads();
  Status status =
      workload.plan().Run(workload.set(0), workload.tokens(), workload.workspace(), options);
  if (!status.ok()) return status;
  std::vector<std::vector<double>> expected;
  for (const TensorId id : kOutputs) expected.push_back(ValuesOf(workload.Output(id)));
  workload.ClearOutputs();
  run(baselines, workload);
  for (size_t output = 0; output < std::size(kOutputs); ++output) {
    const TensorView view = workload.Output(kOutputs[output]);
    if (LargestOf(expected[output]) == 0) {
      return Differs("nothing was written", kOutputs[output], 0, 0, 0);
    }
    Status same = compare(kOutputs[output], view, expected[output], ValuesOf(view));
    if (!same.ok()) return same;
  }
  return {};
}

Status CheckUnfused(const cases::Case& c) {
  Workload workload(c, 0);
  const auto compare = [&](TensorId id, const TensorView& view, const std::vector<double>& expected,
                           const std::vector<double>& actual) -> Status {
    const double largest = LargestOf(expected);
    for (size_t i = 0; i < actual.size(); ++i) {
      const double magnitude = id == TensorId::kQOut
                                   ? MagnitudeAt(expected, i, static_cast<size_t>(c.head_dim))
                                   : largest;
      const double difference = std::abs(expected[i] - actual[i]);
      if (!(difference <= ToleranceOf(view, c.dtype, magnitude))) {
        return Differs("unfused", id, i, expected[i], actual[i]);
      }
    }
    return {};
  };
  const auto run = [](const Baselines& baselines, const Workload& w) {
    baselines.RunUnfused(w.set(0), w.workspace(), w.threads());
  };
  return CompareRuns(workload, run, compare);
}

Status CheckConvertCopy(const cases::Case& c) {
  Workload workload(c, 0, Data::kIdentity);
  const auto compare = [](TensorId id, const TensorView&, const std::vector<double>& expected,
                          const std::vector<double>& actual) -> Status {
    for (size_t i = 0; i < actual.size(); ++i) {
      if (actual[i] != expected[i]) {
        return Differs("convert_copy", id, i, expected[i], actual[i]);
      }
    }
    return {};
  };
  const auto run = [](const Baselines& baselines, const Workload& w) {
    baselines.RunConvertCopy(w.set(0), w.workspace(), w.threads());
  };
  return CompareRuns(workload, run, compare);
}

/// The case with few tokens: comparing is slow.
cases::Case Shortened(cases::Case c) {
  constexpr int64_t kTokens = 64;
  if (c.tokens.batch == 1) c.tokens.sequence = std::min(c.tokens.sequence, kTokens);
  return c;
}

}  // namespace

Status CheckBaselines(const cases::Case& c) {
  const cases::Case shortened = Shortened(c);
  Status status = CheckUnfused(shortened);
  return status.ok() ? CheckConvertCopy(shortened) : status;
}

}  // namespace qkvfuse::bench
