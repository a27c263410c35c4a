// Where the elements of a tensor lie under a StridePattern.
#pragma once

#include <cstdint>

#include "cases/case.h"
#include "qkvfuse/tensor.hpp"

namespace qkvfuse::cases {

/// A view and the storage it needs, in elements.
struct Placement {
  StridedShape shape;
  int64_t first = 0;     // where in the storage the element with all indices 0 lies
  int64_t elements = 0;  // of the storage, gaps included
};

/// The sizes of `dims` under another pattern; `head_axis` is the dimension that kHeadsFirst makes
/// the outermost one.
[[nodiscard]] Placement Place(const StridedShape& dims, StridePattern pattern, int head_axis);

}  // namespace qkvfuse::cases
