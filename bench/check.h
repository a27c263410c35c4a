// The baselines do the work that they are timed for: the unfused passes agree with the fused call,
// convert-and-copy writes what the fused call writes.
#pragma once

#include "cases/case.h"
#include "qkvfuse/status.hpp"

namespace qkvfuse::bench {

/// Compares, over at most 64 tokens of the case: unfused with fused within the rounding of the rows
/// in between, and convert-and-copy, where there is one, with fused bit for bit on data that the
/// operator leaves as it is. The sentence of a refusal names the output.
[[nodiscard]] Status CheckBaselines(const cases::Case& c);

}  // namespace qkvfuse::bench
