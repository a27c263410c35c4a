#include "reference/conversions.h"

#include <bit>
#include <cmath>

namespace qkvfuse::reference {
namespace {

// `kept` without its last `drop` bits, rounded to nearest, ties to even.
uint32_t RoundOff(uint32_t kept, uint32_t drop) {
  const uint32_t half = 1U << (drop - 1);
  const uint32_t odd = (kept >> drop) & 1U;
  return (kept + half - 1 + odd) >> drop;
}

// An fp8 type: codes 0 .. `largest` are the numbers from 0 up.
struct Float8 {
  int mantissa_bits;
  int bias;
  uint8_t largest;

  [[nodiscard]] float ValueOf(uint8_t code) const {
    const int exponent = code >> mantissa_bits;
    const int mantissa = code & ((1 << mantissa_bits) - 1);
    if (exponent == 0) {
      return std::ldexp(static_cast<float>(mantissa), 1 - bias - mantissa_bits);
    }
    return std::ldexp(static_cast<float>(mantissa + (1 << mantissa_bits)),
                      exponent - bias - mantissa_bits);
  }
};
constexpr Float8 kE4M3{3, 7, 0x7E};
constexpr Float8 kE5M2{2, 15, 0x7B};

const Float8& Float8Of(DType dtype) { return dtype == DType::kFloat8E4M3 ? kE4M3 : kE5M2; }

}  // namespace

float WidenHalf(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000U) << 16;
  const uint32_t exponent = (bits >> 10) & 0x1FU;
  const uint32_t mantissa = bits & 0x3FFU;
  if (exponent == 0x1F) return std::bit_cast<float>(sign | 0x7F800000U | mantissa << 13);
  if (exponent != 0) {
    return std::bit_cast<float>(sign | (exponent + 112) << 23 | mantissa << 13);
  }
  const float magnitude = static_cast<float>(mantissa) * 0x1p-24F;  // exact
  return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(magnitude));
}

float WidenBfloat16(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

uint16_t NarrowHalf(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits >> 16) & 0x8000U;
  const uint32_t magnitude = bits & 0x7FFFFFFFU;
  if (magnitude > 0x7F800000U) return static_cast<uint16_t>(sign | 0x7E00U);
  if (magnitude >= 0x477FF000U) return static_cast<uint16_t>(sign | 0x7C00U);  // >= 65520
  if (magnitude >= 0x38800000U) {                                              // >= 2^-14
    return static_cast<uint16_t>(sign | RoundOff(magnitude - 0x38000000U, 13));
  }
  if (magnitude < 0x33000000U) return static_cast<uint16_t>(sign);  // < 2^-25
  const uint32_t significand = 0x800000U | (magnitude & 0x7FFFFFU);
  return static_cast<uint16_t>(sign | RoundOff(significand, 126 - (magnitude >> 23)));
}

uint16_t NarrowBfloat16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if (std::isnan(value)) return static_cast<uint16_t>(bits >> 16 | 0x40U);
  return static_cast<uint16_t>(RoundOff(bits, 16));  // beyond the largest: carries into infinity
}

int8_t NarrowToCode(float z) {
  if (std::isnan(z)) z = 0.0F;
  z = std::fmin(std::fmax(z, -128.0F), 127.0F);
  return static_cast<int8_t>(std::nearbyintf(z));  // half to even
}

uint8_t NarrowToFloat8(DType dtype, float z) {
  const Float8& type = Float8Of(dtype);
  if (std::isnan(z)) return 0x7F;
  const uint8_t sign = std::signbit(z) ? 0x80 : 0;
  const float size = std::fabs(z);
  // The first code whose number is not below; between two numbers the nearer one, or the even code.
  uint8_t code = 0;
  while (code < type.largest && type.ValueOf(code) < size) ++code;
  const float above = type.ValueOf(code);
  if (code > 0 && above > size) {
    // Exact: numbers of few bits, and a float between them.
    const double to_above = static_cast<double>(above) - static_cast<double>(size);
    const double to_below = static_cast<double>(size) -
                            static_cast<double>(type.ValueOf(static_cast<uint8_t>(code - 1)));
    if (to_below < to_above || (to_below == to_above && code % 2 != 0)) --code;
  }
  return static_cast<uint8_t>(sign | code);
}

float LargestCode(DType dtype) {
  return dtype == DType::kInt8 ? 127.0F : Float8Of(dtype).ValueOf(Float8Of(dtype).largest);
}

}  // namespace qkvfuse::reference
