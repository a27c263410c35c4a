// One row of the benchmark, measured: the fused call against its baselines in alternating rounds.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "bench/grid.h"
#include "bench/measure.h"
#include "qkvfuse/plan.hpp"

namespace qkvfuse::bench {

struct RowResult {
  Row row;
  std::string target;
  int parts = 1;  // into which the call was split
  int64_t sets = 1;
  size_t rounds = 0;
  Plan::Traffic traffic;  // of one call

  // Seconds per call.
  Spread fused;  // Plan::Run: Check and kernels
  Spread unfused;
  std::string passes;                  // op=fused: those of unfused
  std::optional<Spread> convert_copy;  // not op=fused
  std::optional<Spread> general;       // op=fused: Plan::Run on the general path
  Spread roof;
  bool roof_bypasses_caches = false;  // which of the two copies was faster
  std::optional<Spread> kernel;       // RunRange; rows of one token
  std::optional<Spread> check;        // Check; rows of one token

  // Within each round.
  Spread share_of_roof;                 // roof / fused
  Spread unfused_ratio;                 // unfused / fused
  std::optional<Spread> over_floor;     // fused / convert_copy
  std::optional<Spread> general_ratio;  // general / fused
  std::optional<Spread> call_ratio;     // fused / kernel

  [[nodiscard]] double us_per_token() const { return PerToken(fused); }
  [[nodiscard]] double PerToken(const Spread& seconds) const {
    return seconds.median * 1e6 / static_cast<double>(row.tokens());
  }
  [[nodiscard]] double gigabytes_per_second() const {
    return static_cast<double>(traffic.total()) / fused.median * 1e-9;
  }
  [[nodiscard]] double roof_gigabytes_per_second() const {
    return static_cast<double>(traffic.total()) / roof.median * 1e-9;
  }
  /// (p90 - p10) / median of the fused times.
  [[nodiscard]] double spread() const { return (fused.p90 - fused.p10) / fused.median; }
};

class Subject;

/// Measures rows; buffers live as long as neighbours share their case.
class RowRunner {
 public:
  explicit RowRunner(const Budget& budget);
  ~RowRunner();

  /// Throws std::runtime_error when the baselines do not agree with the fused call, or when the
  /// library refuses the case.
  [[nodiscard]] RowResult Run(const Row& row);

 private:
  void Prepare(const Row& row);

  Budget budget_;
  std::string checked_;  // the case whose baselines were compared last
  std::string loaded_;   // the case and regime of subject_
  std::unique_ptr<Subject> subject_;
};

/// Times of the fused call and of the unfused passes alone, for a row.
struct Duel {
  Spread fused;
  Spread unfused;
  Spread unfused_ratio;
};
[[nodiscard]] Duel FightDuel(Subject& subject, int threads, const Budget& budget);

}  // namespace qkvfuse::bench
