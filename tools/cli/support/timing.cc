// Alternating medians, and the memcpy that the operators are measured against.
#include "support/timing.h"

#include <algorithm>
#include <chrono>
#include <cstring>

namespace qkvfuse::cli {
namespace {

using Clock = std::chrono::steady_clock;

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

Times TimesOf(std::vector<double> seconds) {
  std::sort(seconds.begin(), seconds.end());
  return {seconds[seconds.size() / 2], seconds.front()};
}

}  // namespace

std::vector<Times> MeasureTimes(const std::vector<std::function<void()>>& functions,
                                const Repetitions& repetitions) {
  for (const auto& function : functions) function();
  std::vector<std::vector<double>> seconds(functions.size());
  const Clock::time_point start = Clock::now();
  for (int round = 0; round < repetitions.at_most; ++round) {
    if (round >= repetitions.at_least && SecondsSince(start) > repetitions.seconds) break;
    for (size_t i = 0; i < functions.size(); ++i) {
      const Clock::time_point begin = Clock::now();
      functions[i]();
      seconds[i].push_back(SecondsSince(begin));
    }
  }
  std::vector<Times> times;
  for (auto& of_one : seconds) times.push_back(TimesOf(std::move(of_one)));
  return times;
}

// Filling both buffers maps their pages, so that no copy pays for page faults.
MemcpyRoof::MemcpyRoof(size_t bytes_moved, int threads)
    : from_(bytes_moved / 2, 1), to_(bytes_moved / 2, 2), threads_(std::max(threads, 1)) {}

void MemcpyRoof::operator()() {
  const size_t parts = static_cast<size_t>(threads_);
  const size_t bytes = from_.size();
#ifdef _OPENMP
#pragma omp parallel for num_threads(threads_) schedule(static)
#endif
  for (size_t part = 0; part < parts; ++part) {
    const size_t begin = bytes * part / parts;
    const size_t end = bytes * (part + 1) / parts;
    std::memcpy(to_.data() + begin, from_.data() + begin, end - begin);
  }
}

}  // namespace qkvfuse::cli
