// The contenders of a row, and what their times say.
#include "bench/row.h"

#include <fmt/core.h>

#include <stdexcept>

#include "bench/baselines/baselines.h"
#include "bench/check.h"
#include "bench/machine.h"
#include "bench/workload.h"

namespace qkvfuse::bench {
namespace {

/// The case of a row whatever its threads: rows that share it share buffers.
std::string CaseKey(const Row& row) {
  cases::Case c = row.c;
  c.threads = 0;
  return cases::PrintCase(c);
}

/// The calls that are timed; they share the turns of the sets.
class Contenders {
 public:
  Contenders(Workload& workload, int threads)
      : workload_(workload),
        threads_(threads),
        baselines_(workload.plan(), workload.tokens()),
        copy_(workload.plan(), workload.tokens(), workload.sets()) {
    options_.threads = threads;
  }

  void Fused() {
    const Status status = workload_.plan().Run(workload_.NextSet(), workload_.tokens(),
                                               workload_.workspace(), options_);
    if (!status.ok()) throw std::runtime_error(status.message());
  }
  void Unfused() { baselines_.RunUnfused(workload_.NextSet(), workload_.workspace(), threads_); }
  void ConvertCopy() {
    baselines_.RunConvertCopy(workload_.NextSet(), workload_.workspace(), threads_);
  }
  void Copy(bool bypasses_caches) { copy_.Run(parts(), bypasses_caches); }
  void Kernel() {
    workload_.plan().RunRange(workload_.NextSet(), workload_.tokens(), 0,
                              workload_.tokens().total(), workload_.workspace());
  }
  void Check() {
    (void)workload_.plan().Check(workload_.NextSet(), workload_.tokens(), workload_.workspace());
  }
  [[nodiscard]] int parts() const {
    return PartsOf(workload_.plan(), workload_.tokens(), threads_);
  }

  /// Whether the copy is faster with stores that bypass the caches.
  [[nodiscard]] bool BypassingIsFaster() {
    constexpr Budget kShort{0.005, 200e-6, 3};
    const std::vector<Series> times =
        Alternate({[this] { Copy(false); }, [this] { Copy(true); }}, kShort);
    return SpreadOf(times[1]).median < SpreadOf(times[0]).median;
  }

 private:
  Workload& workload_;
  int threads_;
  RunOptions options_;
  Baselines baselines_;
  StreamCopy copy_;
};

}  // namespace

RowRunner::RowRunner(const Budget& budget) : budget_(budget) {}
RowRunner::~RowRunner() = default;

void RowRunner::Prepare(const Row& row) {
  const std::string key = CaseKey(row);
  if (key != checked_) {
    const Status status = CheckBaselines(row.c);
    if (!status.ok()) throw std::runtime_error(fmt::format("{}: {}", row.name, status.message()));
    checked_ = key;
  }
  const bool is_cold = row.regime == Regime::kCold;
  const std::string wanted = key + (is_cold ? " cold" : " hot");
  if (wanted == loaded_) return;
  workload_.reset();
  workload_ = std::make_unique<Workload>(row.c, is_cold ? ColdBytes() : 0);
  loaded_ = wanted;
}

RowResult RowRunner::Run(const Row& row) {
  Prepare(row);
  Contenders contenders(*workload_, row.c.threads);
  RowResult result;
  result.row = row;
  result.target = workload_->plan().target();
  result.parts = contenders.parts();
  result.sets = workload_->sets();
  result.traffic = workload_->plan().TrafficOf(workload_->tokens());
  const bool bypasses = contenders.BypassingIsFaster();
  result.roof_bypasses_caches = bypasses;

  std::vector<std::function<void()>> calls = {
      [&] { contenders.Fused(); }, [&] { contenders.Unfused(); }, [&] { contenders.ConvertCopy(); },
      [&] { contenders.Copy(bypasses); }};
  const bool is_one_token = row.tokens() == 1;
  if (is_one_token) {
    calls.emplace_back([&] { contenders.Kernel(); });
    calls.emplace_back([&] { contenders.Check(); });
  }
  const std::vector<Series> times = Alternate(calls, budget_);
  const Series& fused = times[0];
  result.rounds = fused.size();
  result.fused = SpreadOf(fused);
  result.unfused = SpreadOf(times[1]);
  result.convert_copy = SpreadOf(times[2]);
  result.roof = SpreadOf(times[3]);
  result.share_of_roof = RatioOf(times[3], fused);
  result.over_floor = RatioOf(fused, times[2]);
  result.unfused_ratio = RatioOf(times[1], fused);
  if (is_one_token) {
    result.kernel = SpreadOf(times[4]);
    result.check = SpreadOf(times[5]);
    result.call_ratio = RatioOf(fused, times[4]);
  }
  return result;
}

Duel FightDuel(Workload& workload, int threads, const Budget& budget) {
  const Baselines baselines(workload.plan(), workload.tokens());
  RunOptions options;
  options.threads = threads;
  const std::vector<Series> times =
      Alternate({[&] {
                   const Status status = workload.plan().Run(workload.NextSet(), workload.tokens(),
                                                             workload.workspace(), options);
                   if (!status.ok()) throw std::runtime_error(status.message());
                 },
                 [&] { baselines.RunUnfused(workload.NextSet(), workload.workspace(), threads); }},
                budget);
  return {SpreadOf(times[0]), SpreadOf(times[1]), RatioOf(times[1], times[0])};
}

}  // namespace qkvfuse::bench
