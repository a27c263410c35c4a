// The general operator in double. Every value carries a bound on what a sound fp32 evaluation of
// docs/numerics.md may differ by, added up operation by operation; every output is held against it.
#pragma once

#include <cstdint>
#include <string>

#include "reference/fused_problem.h"

namespace qkvfuse::reference {

struct FusedAccuracyReport {
  int64_t elements = 0;       // looked at
  int64_t outside = 0;        // of them, not in their interval
  double widest = 0;          // largest bound of a value, in units of 2^-24 * |value|
  std::string first_outside;  // part, token, head, channel, value; empty when none
};

/// Looks at the outputs that the problem's views hold. Domain: finite inputs that overflow or
/// underflow nothing, and slots that differ.
[[nodiscard]] FusedAccuracyReport CheckFusedAccuracy(const FusedProblem& problem);

}  // namespace qkvfuse::reference
