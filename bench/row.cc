// The contenders of a row, and what their times say.
#include "bench/row.h"

#include <fmt/core.h>

#include <algorithm>
#include <deque>
#include <functional>
#include <stdexcept>
#include <utility>

#include "bench/baselines/baselines.h"
#include "bench/check.h"
#include "bench/machine.h"
#include "bench/subject.h"

namespace qkvfuse::bench {
namespace {

/// The case of a row whatever its threads: rows that share it share buffers.
std::string CaseKey(const Row& row) {
  cases::Case c = row.c;
  c.threads = 0;
  return cases::PrintCase(c);
}

/// Whether the copy is faster with stores that bypass the caches.
bool BypassingIsFaster(StreamCopy& copy, int parts) {
  constexpr Budget kShort{0.005, 200e-6, 3};
  const std::vector<Series> times =
      Alternate({[&] { copy.Run(parts, false); }, [&] { copy.Run(parts, true); }}, kShort);
  return SpreadOf(times[1]).median < SpreadOf(times[0]).median;
}

/// The calls that a row times, and after Measure their times.
class Contenders {
 public:
  const Series& Add(std::function<void()> call) {
    calls_.push_back(std::move(call));
    return times_.emplace_back();
  }
  /// Times that stay empty where the row does not have the contender.
  const Series& AddIf(bool exists, std::function<void()> call) {
    return exists ? Add(std::move(call)) : none_;
  }
  void Measure(const Budget& budget) {
    std::vector<Series> measured = Alternate(calls_, budget);
    std::move(measured.begin(), measured.end(), times_.begin());
  }

 private:
  Series none_;
  std::vector<std::function<void()>> calls_;
  std::deque<Series> times_;  // references to its elements stay
};

std::optional<Spread> SpreadIfAny(const Series& times) {
  return times.empty() ? std::nullopt : std::optional(SpreadOf(times));
}

std::optional<Spread> RatioIfAny(const Series& numerator, const Series& denominator) {
  const bool has_both = !numerator.empty() && !denominator.empty();
  return has_both ? std::optional(RatioOf(numerator, denominator)) : std::nullopt;
}

/// Fills in the times and ratios of a row.
void Time(Subject& subject, const Budget& budget, RowResult* result) {
  const Plan& plan = subject.plan();
  const TokenCount tokens = subject.tokens();
  const int threads = result->row.c.threads;
  const bool is_one_token = result->row.tokens() == 1;
  StreamCopy copy(plan, tokens, subject.sets());
  const bool bypasses = BypassingIsFaster(copy, result->parts);

  Contenders contenders;
  const Series& fused = contenders.Add([&] { subject.RunFused(threads); });
  const Series& unfused = contenders.Add([&] { subject.RunUnfused(threads); });
  const Series& convert_copy =
      contenders.AddIf(subject.has_convert_copy(), [&] { subject.RunConvertCopy(threads); });
  const Series& general = contenders.AddIf(subject.general_plan() != nullptr,
                                           [&] { subject.Run(*subject.general_plan(), threads); });
  const Series& roof = contenders.Add([&] { copy.Run(result->parts, bypasses); });
  const Series& kernel = contenders.AddIf(is_one_token, [&] {
    plan.RunRange(subject.NextSet(), tokens, 0, tokens.total(), subject.workspace());
  });
  const Series& check = contenders.AddIf(
      is_one_token, [&] { (void)plan.Check(subject.NextSet(), tokens, subject.workspace()); });
  contenders.Measure(budget);

  result->roof_bypasses_caches = bypasses;
  result->rounds = fused.size();
  result->fused = SpreadOf(fused);
  result->unfused = SpreadOf(unfused);
  result->convert_copy = SpreadIfAny(convert_copy);
  result->general = SpreadIfAny(general);
  result->roof = SpreadOf(roof);
  result->kernel = SpreadIfAny(kernel);
  result->check = SpreadIfAny(check);
  result->share_of_roof = RatioOf(roof, fused);
  result->unfused_ratio = RatioOf(unfused, fused);
  result->over_floor = RatioIfAny(fused, convert_copy);
  result->general_ratio = RatioIfAny(general, fused);
  result->call_ratio = RatioIfAny(fused, kernel);
}

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
  subject_.reset();
  subject_ = MakeSubject(row.c, is_cold ? ColdBytes() : 0);
  loaded_ = wanted;
}

RowResult RowRunner::Run(const Row& row) {
  Prepare(row);
  const Plan& plan = subject_->plan();
  const TokenCount tokens = subject_->tokens();
  RowResult result;
  result.row = row;
  result.target = plan.target();
  result.parts = PartsOf(plan, tokens, row.c.threads);
  result.sets = subject_->sets();
  result.traffic = plan.TrafficOf(tokens);
  result.passes = subject_->DescribePasses();
  Time(*subject_, budget_, &result);
  return result;
}

Duel FightDuel(Subject& subject, int threads, const Budget& budget) {
  const std::vector<Series> times =
      Alternate({[&] { subject.RunFused(threads); }, [&] { subject.RunUnfused(threads); }}, budget);
  return {SpreadOf(times[0]), SpreadOf(times[1]), RatioOf(times[1], times[0])};
}

}  // namespace qkvfuse::bench
