// Wall-clock times of short work that is to be compared: the contenders take turns, round after
// round, and ratios are taken within a round, so that what disturbs the machine disturbs both.
#pragma once

#include <functional>
#include <vector>

namespace qkvfuse::bench {

struct Budget {
  double seconds = 0.15;          // of all contenders together, after which no round starts
  double round_seconds = 200e-6;  // a contender repeats its call for at least this long per round
  int min_rounds = 7;
};

/// Seconds per call, one entry per round.
using Series = std::vector<double>;

/// One warm-up call each, then A B C ... A B C ...
[[nodiscard]] std::vector<Series> Alternate(const std::vector<std::function<void()>>& contenders,
                                            const Budget& budget);

/// A figure and how far it spreads over the rounds.
struct Spread {
  double median = 0;
  double p10 = 0;
  double p90 = 0;
};
[[nodiscard]] Spread SpreadOf(Series values);

/// numerator / denominator within each round.
[[nodiscard]] Spread RatioOf(const Series& numerator, const Series& denominator);

}  // namespace qkvfuse::bench
