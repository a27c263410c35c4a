// What the demo establishes about one scenario: the bits, the accuracy, the time.
#pragma once

#include <cstdint>
#include <string>

#include "cases/problem.h"
#include "support/progress.h"
#include "support/timing.h"

namespace qkvfuse::cli {

struct Findings {
  std::string difference;       // from the exact reference; empty when every byte is equal
  int64_t output_elements = 0;  // of all outputs, untouched ones included
  int64_t inaccurate = 0;       // written elements outside their accuracy interval
  // Largest distance from the exact value. 16-bit outputs: in units of the last place of the larger
  // of the two values that RoPE turns together. int8: from the code to y/scale.
  double q_error = 0;
  double cache_error = 0;
  bool has_codes = false;
  double k_snr_db = 0;  // int8 caches: energy of y over energy of (code*scale - y)
  double v_snr_db = 0;

  [[nodiscard]] bool is_good() const { return difference.empty() && inaccurate == 0; }
};

/// Runs the library once and both references, on `threads` threads. The progress bar advances by
/// CheckSteps. Throws std::runtime_error when the library refuses.
[[nodiscard]] Findings CheckScenario(cases::Problem& problem, const Plan& plan, int threads,
                                     ProgressBar& progress);
[[nodiscard]] int64_t CheckSteps(const cases::Case& c);

struct Speed {
  Times run;          // Check included
  Times copy;         // a memcpy of as many bytes
  int64_t bytes = 0;  // read and written, Plan::TrafficOf
  [[nodiscard]] double gigabytes_per_second() const {
    return static_cast<double>(bytes) / run.median * 1e-9;
  }
  [[nodiscard]] double share_of_memcpy() const { return copy.median / run.median; }
  /// Other work on the machine makes the usual time much longer than the best one.
  [[nodiscard]] bool is_disturbed() const {
    return run.median > 2 * run.best || copy.median > 2 * copy.best;
  }
};

/// Times of runs and copies that take turns, both on `threads` threads.
[[nodiscard]] Speed MeasureSpeed(const cases::Problem& problem, const Plan& plan, int threads);

}  // namespace qkvfuse::cli
