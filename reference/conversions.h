// Conversions between fp32 and the types of storage, bit by bit, for reference/exact.
#pragma once

#include <cstdint>

#include "qkvfuse/dtype.hpp"

namespace qkvfuse::reference {

[[nodiscard]] float WidenHalf(uint16_t bits);
[[nodiscard]] float WidenBfloat16(uint16_t bits);

/// To nearest, ties to even; overflow becomes infinity.
[[nodiscard]] uint16_t NarrowHalf(float value);
[[nodiscard]] uint16_t NarrowBfloat16(float value);

/// NaN gives 0, then saturated, then rounded half to even.
[[nodiscard]] int8_t NarrowToCode(float z);

/// fp8 of either kind: NaN gives 0x7F, else saturated and rounded to nearest, ties to the even
/// code.
[[nodiscard]] uint8_t NarrowToFloat8(DType dtype, float z);

/// The largest code of int8 or fp8, as a number.
[[nodiscard]] float LargestCode(DType dtype);

}  // namespace qkvfuse::reference
