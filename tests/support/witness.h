// A witness of 16-bit conversions that shares nothing with the library or the references: values
// by ldexp, rounding by a search for the nearest, and the processor's own instructions.
#pragma once

#include <cstdint>

#include "qkvfuse/dtype.hpp"

namespace qkvfuse::testing {

/// The value of fp16 or bf16 bits.
[[nodiscard]] double Decode16(DType dtype, uint16_t bits);

/// The bits nearest to `value` (not NaN), ties to even.
[[nodiscard]] uint16_t Narrow16(DType dtype, float value);

[[nodiscard]] bool IsQuietNan16(DType dtype, uint16_t bits);

/// fp16 by the processor's instructions; call only where HasHalfInstructions.
[[nodiscard]] bool HasHalfInstructions();
[[nodiscard]] double WidenByInstruction(uint16_t bits);
[[nodiscard]] uint16_t NarrowByInstruction(float value);

}  // namespace qkvfuse::testing
