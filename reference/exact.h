// The definition of the operators: docs/numerics.md, operation by operation, in scalar fp32.
// Every SIMD target, path and thread count of the library gives these bits.
#pragma once

#include <cstdint>

#include "reference/fused_problem.h"

namespace qkvfuse::reference {

/// Computes every output of the problem. Expects the default floating-point environment and a
/// problem that the library accepts; checks nothing.
void RunExact(const FusedProblem& problem);
void RunExact(const Problem& problem);

/// Tokens [token_begin, token_end). Where two tokens name one slot, the ranges must
/// follow each other in ascending order; otherwise they may run at the same time.
void RunExact(const Problem& problem, int64_t token_begin, int64_t token_end);

}  // namespace qkvfuse::reference
