// Parameters (gammas, scales, offsets, biases) as kernels read them: contiguous fp32, or int32 for
// an int32 bias. The caller's memory is used where it already is that, else a copy in the
// workspace.
#pragma once

#include "plan/plan_impl.h"

namespace qkvfuse::internal {

/// Whether Check has to copy the operand to the workspace.
[[nodiscard]] bool NeedsPacking(const OperandSpec& spec) noexcept;

/// Elements of a parameter that a call uses.
[[nodiscard]] int64_t ParameterCount(const OperandSpec& spec, TokenCount tokens) noexcept;

/// Packs `count` elements, in row-major order of the parameter's shape, from `from` to `to`.
void PackParameter(const PlanImpl& plan, const OperandSpec& spec, const void* from, int64_t count,
                   void* to) noexcept;

}  // namespace qkvfuse::internal
