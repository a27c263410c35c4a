// Wall-clock times of short work: things to compare take turns, and the median counts.
#pragma once

#include <functional>
#include <vector>

namespace qkvfuse::cli {

struct Repetitions {
  int at_least = 5;
  int at_most = 101;
  double seconds = 0.3;  // budget, after which no further round starts
};

/// Seconds per call.
struct Times {
  double median = 0;
  double best = 0;
};

/// Times of each function, in the order of `functions`: one warm-up round, then A B A B ...
[[nodiscard]] std::vector<Times> MeasureTimes(const std::vector<std::function<void()>>& functions,
                                              const Repetitions& repetitions = {});

/// Copies `bytes` bytes from one buffer to another, over and over, split over `threads` threads as
/// the library splits its work. The buffers are its own and do not overlap.
class MemcpyRoof {
 public:
  /// Reads bytes_moved / 2 and writes bytes_moved / 2.
  MemcpyRoof(size_t bytes_moved, int threads);
  void operator()();

 private:
  std::vector<unsigned char> from_;
  std::vector<unsigned char> to_;
  int threads_;
};

}  // namespace qkvfuse::cli
