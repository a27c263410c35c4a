// Scalar conversions between fp32 and the two 8-bit float formats: exact widening, and saturating
// narrowing to nearest, ties to even, with subnormals and the sign of zero kept (docs/numerics.md).
#pragma once

#include <bit>
#include <cstdint>

namespace qkvfuse {

/// A sign bit, 7 - mantissa_bits exponent bits and the mantissa. Formats: "FP8 Formats for Deep
/// Learning", Micikevicius et al., 2022.
struct Float8Format {
  uint32_t mantissa_bits;
  uint32_t bias;     // a code with exponent e and mantissa m is (1 + m) * 2^(e - bias)
  uint32_t largest;  // code of the largest finite value; what is above it is no number
  bool has_infinity;

  /// Exponent of the smallest normal value and of the subnormals, as fp32 has it.
  [[nodiscard]] constexpr uint32_t FirstExponent() const noexcept { return 128 - bias; }
  /// The value of one subnormal step.
  [[nodiscard]] constexpr float Step() const noexcept {
    return std::bit_cast<float>((FirstExponent() - mantissa_bits) << 23);
  }
  /// Mantissa bits that fp32 has and the format has not.
  [[nodiscard]] constexpr uint32_t Shift() const noexcept { return 23 - mantissa_bits; }
};

inline constexpr Float8Format kE4M3{3, 7, 0x7E, false};  // e4m3fn: up to 448, NaN is 0x7F
inline constexpr Float8Format kE5M2{2, 15, 0x7B, true};  // up to 57344

/// The value of a code; NaN codes give a quiet NaN of their sign.
template <Float8Format kFormat>
[[nodiscard]] constexpr float FloatFromFloat8(uint8_t code) noexcept {
  constexpr uint32_t kRebias = (kFormat.FirstExponent() - 1) << 23;
  const uint32_t sign = static_cast<uint32_t>(code & 0x80u) << 24;
  const uint32_t magnitude = code & 0x7Fu;
  if (magnitude > kFormat.largest) {
    const bool is_infinity = kFormat.has_infinity && magnitude == kFormat.largest + 1;
    return std::bit_cast<float>(sign | (is_infinity ? 0x7F800000u : 0x7FC00000u));
  }
  if (magnitude >> kFormat.mantissa_bits == 0) {  // zero or subnormal
    const float value = static_cast<float>(magnitude) * kFormat.Step();
    return std::bit_cast<float>(std::bit_cast<uint32_t>(value) | sign);
  }
  return std::bit_cast<float>(sign | ((magnitude << kFormat.Shift()) + kRebias));
}

/// The nearest code. Values beyond the largest one, infinities included, become the largest one of
/// their sign; NaN becomes 0x7F; what underflows becomes a zero of its sign. Rounds as the
/// floating-point environment says: nearest even in a ScopedFpEnvironment.
template <Float8Format kFormat>
[[nodiscard]] constexpr uint8_t Float8FromFloat(float value) noexcept {
  constexpr uint32_t kLargest =
      std::bit_cast<uint32_t>(FloatFromFloat8<kFormat>(static_cast<uint8_t>(kFormat.largest)));
  constexpr uint32_t kFirstNormal = kFormat.FirstExponent() << 23;
  // Where one unit in the last place of fp32 is one subnormal step.
  constexpr float kSteps = kFormat.Step() * 0x1p23f;
  constexpr uint32_t kHalf = 1u << (kFormat.Shift() - 1);
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits >> 24) & 0x80u;
  uint32_t magnitude = bits & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u) return 0x7F;
  magnitude = magnitude < kLargest ? magnitude : kLargest;
  const uint32_t subnormal = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + kSteps) -
                             std::bit_cast<uint32_t>(kSteps);
  const uint32_t is_odd = (magnitude >> kFormat.Shift()) & 1u;
  const uint32_t normal =
      (magnitude - (kFirstNormal - (1u << 23)) + kHalf - 1 + is_odd) >> kFormat.Shift();
  return static_cast<uint8_t>(sign | (magnitude < kFirstNormal ? subnormal : normal));
}

[[nodiscard]] constexpr float FloatFromE4M3(uint8_t code) noexcept {
  return FloatFromFloat8<kE4M3>(code);
}
[[nodiscard]] constexpr float FloatFromE5M2(uint8_t code) noexcept {
  return FloatFromFloat8<kE5M2>(code);
}
[[nodiscard]] constexpr uint8_t E4M3FromFloat(float value) noexcept {
  return Float8FromFloat<kE4M3>(value);
}
[[nodiscard]] constexpr uint8_t E5M2FromFloat(float value) noexcept {
  return Float8FromFloat<kE5M2>(value);
}

}  // namespace qkvfuse
