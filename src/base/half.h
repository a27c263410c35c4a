// Scalar conversions between fp32 and the two 16-bit formats: exact widening, and narrowing to
// nearest, ties to even, with subnormals kept and NaN quiet (docs/numerics.md, step 1).
#pragma once

#include <bit>
#include <cstdint>

namespace qkvfuse {

[[nodiscard]] constexpr float FloatFromBFloat16(uint16_t bits) noexcept {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

[[nodiscard]] constexpr uint16_t BFloat16FromFloat(float value) noexcept {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return static_cast<uint16_t>((bits >> 16) | 0x40u);
  return static_cast<uint16_t>((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16);
}

[[nodiscard]] constexpr float FloatFromHalf(uint16_t bits) noexcept {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
  const uint32_t exponent = (bits >> 10) & 0x1Fu;
  const uint32_t mantissa = bits & 0x3FFu;
  if (exponent == 0) {
    // Zero or subnormal: mantissa * 2^-24, exact in fp32.
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return std::bit_cast<float>(std::bit_cast<uint32_t>(magnitude) | sign);
  }
  if (exponent == 31) {
    const uint32_t quiet = mantissa == 0 ? 0u : 0x400000u;
    return std::bit_cast<float>(sign | 0x7F800000u | quiet | (mantissa << 13));
  }
  return std::bit_cast<float>(sign | ((exponent + 112u) << 23) | (mantissa << 13));
}

[[nodiscard]] constexpr uint16_t HalfFromFloat(float value) noexcept {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const uint32_t magnitude = bits & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u) {
    return static_cast<uint16_t>(sign | 0x7E00u | ((magnitude >> 13) & 0x1FFu));
  }
  if (magnitude >= 0x477FF000u) return static_cast<uint16_t>(sign | 0x7C00u);  // rounds to infinity
  uint32_t kept;       // the 16-bit magnitude before rounding
  uint32_t discarded;  // the bits below it, as a fraction of 2^31 of one unit in the last place
  if (magnitude >= 0x38800000u) {  // normal, 2^-14 or more
    kept = (magnitude >> 13) - (112u << 10);
    discarded = magnitude << 18;  // 13 bits, the top one at bit 30
  } else {
    const uint32_t shift =
        126u - (magnitude >> 23);  // 24 significant bits become multiples of 2^-24
    const uint32_t significand = (magnitude & 0x7FFFFFu) | 0x800000u;
    if (shift > 25u) return static_cast<uint16_t>(sign);  // below half of the smallest subnormal
    kept = significand >> shift;
    discarded =
        static_cast<uint32_t>((static_cast<uint64_t>(significand) << (31u - shift)) & 0x7FFFFFFFu);
  }
  constexpr uint32_t kTie = 0x40000000u;
  const bool rounds_up =
      (discarded & 0x7FFFFFFFu) > kTie || ((discarded & 0x7FFFFFFFu) == kTie && (kept & 1u) != 0);
  return static_cast<uint16_t>(sign | (kept + (rounds_up ? 1u : 0u)));
}

}  // namespace qkvfuse
