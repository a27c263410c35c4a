// Seeded data of the inputs. The same case gives the same bytes everywhere: no distribution of the
// standard library and no transcendental function takes part.
#pragma once

#include <cstdint>

#include "cases/case.h"
#include "qkvfuse/tensor.hpp"

namespace qkvfuse::cases {

/// Writes every element of input `id` of the case.
void Fill(const Case& c, TensorId id, const TensorView& view);

/// Writes `value` as the view's dtype, rounded to nearest even; integers saturate,
/// and are 0 for NaN.
void StoreElement(const TensorView& view, int64_t offset_elements, double value);

/// Offset, in elements, of the element at `position` in row-major order.
[[nodiscard]] int64_t OffsetOf(const StridedShape& shape, int64_t position);

}  // namespace qkvfuse::cases
