// What the demo establishes about one scenario: the bits, the accuracy, the time.
#pragma once

#include <cstdint>
#include <string>

#include "cases/problem.h"
#include "support/progress.h"

namespace qkvfuse::cli {

struct Findings {
  std::string difference;       // from the exact reference; empty when every byte is equal
  int64_t output_elements = 0;  // of all outputs, untouched ones included
  double q_error_ulp = 0;       // largest |q_out - exact| in units of q_out's last place
  double cache_error = 0;       // 16-bit: the same; int8: largest distance from code to y/scale
  bool has_codes = false;
  double k_snr_db = 0;  // int8 caches: energy of y over energy of (code*scale - y)
  double v_snr_db = 0;
};

/// Runs the library once and both references, on `threads` threads. The progress bar advances by
/// CheckSteps. Throws std::runtime_error when the library refuses.
[[nodiscard]] Findings CheckScenario(cases::Problem& problem, const Plan& plan, int threads,
                                     ProgressBar& progress);
[[nodiscard]] int64_t CheckSteps(const cases::Case& c);

struct Speed {
  double seconds = 0;         // a Run, Check included
  double memcpy_seconds = 0;  // of as many bytes
  int64_t bytes = 0;          // read and written, Plan::TrafficOf
  [[nodiscard]] double gigabytes_per_second() const {
    return static_cast<double>(bytes) / seconds * 1e-9;
  }
  [[nodiscard]] double share_of_memcpy() const { return memcpy_seconds / seconds; }
};

/// Medians of runs and copies that take turns, both on `threads` threads.
[[nodiscard]] Speed MeasureSpeed(const cases::Problem& problem, const Plan& plan, int threads);

}  // namespace qkvfuse::cli
