// A checked cache as one side of a move.
#pragma once

#include <vector>

#include "kernels/move_rows.h"
#include "qkvfuse/pages.hpp"

namespace qkvfuse {

/// One side of a move with the parameters that it points to.
struct Side {
  kernels::MoveSide side;
  std::vector<float> scale;
  std::vector<float> offset;
};

/// Reads scales and offsets, unless `uses_scales` says that the codes' meaning does not matter.
[[nodiscard]] Side SideOf(const CacheView& cache, bool uses_scales);

/// Whether a cache has dynamic scales.
[[nodiscard]] bool IsDynamic(const CacheSpec& spec);

/// Whether the codes of two caches mean the same values.
[[nodiscard]] bool MeanTheSame(const CacheView& a, const CacheView& b);

}  // namespace qkvfuse
