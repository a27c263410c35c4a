// Operands as strided views in memory: extents, self-overlap, and overlap between the operands of
// a call.
#pragma once

#include "plan/overlap.h"
#include "plan/pipeline.h"

namespace qkvfuse::internal {

/// Tokens of one call; keeps products of counts far from overflow.
inline constexpr int64_t kMaxTokens = int64_t{1} << 40;

/// Refuses an operand whose extent does not fit, or an output that overlaps itself.
[[nodiscard]] Status CheckOperandExtent(const Pipeline& pipeline, Operand operand,
                                        TokenCount tokens);

/// Refuses an output that shares an element with another output or with an input; a dense output
/// that lies exactly on its own part of x is allowed.
[[nodiscard]] Status CheckOverlap(const Pipeline& pipeline, const Tensors& tensors,
                                  TokenCount tokens);

}  // namespace qkvfuse::internal
