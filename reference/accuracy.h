// The accuracy test: every output element lies between the correct roundings of the two ends of
// its interval of reference/precise.h.
#pragma once

#include <cstdint>
#include <string>

#include "reference/precise.h"
#include "reference/problem.h"

namespace qkvfuse::reference {

/// The bits of `value` rounded once to fp16 or bf16, nearest, ties to even.
[[nodiscard]] uint16_t Round16(DType dtype, double value);

/// The number that bits of fp16 or bf16 stand for; NaN is not expected.
[[nodiscard]] double Decode16(DType dtype, uint16_t bits);

/// Clamped to [-128, 127] and rounded half to even; NaN gives 0.
[[nodiscard]] int8_t RoundCode(double value);

/// R(y-E) <= bits <= R(y+E); NaN where y is NaN, whatever its sign and payload.
[[nodiscard]] bool IsWithin(DType dtype, PreciseValue value, uint16_t bits);

/// Q(z-Ez) <= code <= Q(z+Ez).
[[nodiscard]] bool IsWithin(PreciseValue quotient, int8_t code);

struct AccuracyReport {
  int64_t elements = 0;  // looked at
  int64_t outside = 0;   // of them, not in their interval
  double worst_ulp = 0;  // largest |out - y| of a finite 16-bit output, in units of its last place
  int64_t worst_code_distance = 0;  // largest |code - Q(z)|
  std::string first_outside;        // output, token, head, channel, value; empty when none
};

/// Looks at the outputs that the problem's views hold. Cache rows are looked at for the token that
/// wrote them last. Domain: inputs that overflow or underflow nothing (docs/numerics.md).
[[nodiscard]] AccuracyReport CheckAccuracy(const Problem& problem);

}  // namespace qkvfuse::reference
