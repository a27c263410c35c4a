// Moves rows on several threads.
#pragma once

#include "plan/row_map.h"
#include "qkvfuse/plan.hpp"

namespace qkvfuse::internal {

/// Moves all rows of a map that was checked. Any split gives the same bytes.
void RunMove(const kernels::Move& move, const RowMap& rows, const RunOptions& options) noexcept;

}  // namespace qkvfuse::internal
