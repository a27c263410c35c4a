// Operands as strided views in memory: extents, self-overlap, and overlap between the operands of
// a call.
#pragma once

#include "plan/overlap.h"
#include "plan/pipeline.h"

namespace qkvfuse::internal {

/// Refuses an operand whose extent does not fit, or an output that overlaps itself.
[[nodiscard]] Status CheckOperandExtent(const Pipeline& pipeline, Operand operand,
                                        TokenCount tokens);

/// Refuses an output, or the workspace, that shares an element with another output or with an
/// input; a dense output that lies exactly on its own part of x is allowed.
[[nodiscard]] Status CheckOverlap(const Pipeline& pipeline, const Tensors& tensors,
                                  TokenCount tokens, Workspace workspace);

}  // namespace qkvfuse::internal
