// Rounds, repetitions, medians and percentiles.
#include "bench/measure.h"

#include <algorithm>
#include <chrono>
#include <cmath>

namespace qkvfuse::bench {
namespace {

using Clock = std::chrono::steady_clock;

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

double SecondsPerCall(const std::function<void()>& call, int repetitions) {
  const Clock::time_point start = Clock::now();
  for (int i = 0; i < repetitions; ++i) call();
  return SecondsSince(start) / repetitions;
}

/// Calls that fill a round, found by doubling; warms up on the way.
int RepetitionsOf(const std::function<void()>& call, double round_seconds) {
  constexpr int kAtMost = 1 << 16;
  call();
  int repetitions = 1;
  while (repetitions < kAtMost && SecondsPerCall(call, repetitions) * repetitions < round_seconds) {
    repetitions *= 2;
  }
  return repetitions;
}

double Percentile(const Series& sorted, double share) {
  const double last = static_cast<double>(sorted.size() - 1);
  return sorted[static_cast<size_t>(std::lround(share * last))];
}

}  // namespace

std::vector<Series> Alternate(const std::vector<std::function<void()>>& contenders,
                              const Budget& budget) {
  std::vector<int> repetitions;
  repetitions.reserve(contenders.size());
  for (const auto& call : contenders) {
    repetitions.push_back(RepetitionsOf(call, budget.round_seconds));
  }
  std::vector<Series> series(contenders.size());
  const Clock::time_point start = Clock::now();
  for (int round = 0; round < budget.min_rounds || SecondsSince(start) < budget.seconds; ++round) {
    for (size_t i = 0; i < contenders.size(); ++i) {
      series[i].push_back(SecondsPerCall(contenders[i], repetitions[i]));
    }
  }
  return series;
}

Spread SpreadOf(Series values) {
  std::sort(values.begin(), values.end());
  return {Percentile(values, 0.5), Percentile(values, 0.1), Percentile(values, 0.9)};
}

Spread RatioOf(const Series& numerator, const Series& denominator) {
  Series ratios;
  ratios.reserve(numerator.size());
  for (size_t i = 0; i < numerator.size(); ++i) ratios.push_back(numerator[i] / denominator[i]);
  return SpreadOf(std::move(ratios));
}

}  // namespace qkvfuse::bench
