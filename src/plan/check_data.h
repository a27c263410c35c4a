// Checks that need token counts and data: extents, pointers, overlap, scales, slots. They read
// inputs and write nothing but the workspace.
#pragma once

#include "plan/plan_impl.h"

namespace qkvfuse::internal {

/// Token counts, 64-bit extents, outputs that overlap themselves, sequences that the cache cannot
/// hold.
[[nodiscard]] Status CheckExtents(const PlanImpl& plan, TokenCount tokens);

/// The part of it that looks at extents, without regard to what was checked before.
[[nodiscard]] Status CheckRowExtents(const PlanImpl& plan, TokenCount tokens);

/// CheckExtents and everything else of Plan::Check.
[[nodiscard]] Status CheckData(const PlanImpl& plan, const Tensors& tensors, TokenCount tokens,
                               Workspace workspace);

}  // namespace qkvfuse::internal
