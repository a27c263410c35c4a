// Slots: which cache row each token goes to. Checked once per call against the cache's capacity,
// with repeated slots found by a table in the workspace; resolved to row offsets per tile.
#pragma once

#include "plan/workspace.h"

namespace qkvfuse::internal {

/// Refuses slots outside the cache and, in strict mode, repeated ones and those below -1. In
/// lenient mode marks the tokens whose slot a later token takes. Writes only the workspace.
[[nodiscard]] Status CheckSlots(const PlanImpl& plan, const Tensors& tensors, TokenCount tokens,
                                const WorkspaceParts& parts);

/// Rows of the caches for tokens [first, first + count), counted over the whole batch.
struct CacheRows {
  int64_t k[kernels::kTileTokens];
  int64_t v[kernels::kTileTokens];
  int64_t k_scales[kernels::kTileTokens];  // of caches of dynamic scales
  int64_t v_scales[kernels::kTileTokens];
};
void ResolveRows(const PlanImpl& plan, const Tensors& tensors, TokenCount tokens,
                 const WorkspaceParts& parts, int64_t first, int64_t count, CacheRows* rows);

}  // namespace qkvfuse::internal
