// Executes a plan on ranges of tokens.
#pragma once

#include "plan/plan_impl.h"

namespace qkvfuse::internal {

/// Tokens [begin, end), counted over the whole batch, after a CheckData that returned ok.
void RunTokens(const PlanImpl& plan, const Tensors& tensors, TokenCount tokens, int64_t begin,
               int64_t end, Workspace workspace) noexcept;

/// A cache in the memory of a call, without a piece table.
[[nodiscard]] kernels::Destination CacheDestination(const PlanImpl& plan, Operand cache,
                                                    const Tensors& tensors) noexcept;

/// Refuses options that mean nothing.
[[nodiscard]] Status CheckRunOptions(const RunOptions& options) noexcept;

/// Parts into which a Run of `tokens` is split: 1 where forking costs more than it gains.
[[nodiscard]] int PartsOf(const PlanImpl& plan, TokenCount tokens,
                          const RunOptions& options) noexcept;

}  // namespace qkvfuse::internal
