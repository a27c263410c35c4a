// Slow and obvious 16-bit conversions.
#include "tests/support/witness.h"

#include <bit>
#include <cmath>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace qkvfuse::testing {
namespace {

int MantissaBits(DType dtype) { return dtype == DType::kFloat16 ? 10 : 7; }
int Bias(DType dtype) { return dtype == DType::kFloat16 ? 15 : 127; }
uint16_t Infinity(DType dtype) { return dtype == DType::kFloat16 ? 0x7C00 : 0x7F80; }

}  // namespace

double Decode16(DType dtype, uint16_t bits) {
  const int mantissa_bits = MantissaBits(dtype);
  const uint16_t magnitude = bits & 0x7FFF;
  const double sign = (bits & 0x8000) != 0 ? -1 : 1;
  if (magnitude > Infinity(dtype)) return std::nan("");
  if (magnitude == Infinity(dtype)) return sign * HUGE_VAL;
  const int field = magnitude >> mantissa_bits;
  const double mantissa = std::ldexp(magnitude & ((1 << mantissa_bits) - 1), -mantissa_bits);
  if (field == 0) return sign * std::ldexp(mantissa, 1 - Bias(dtype));
  return sign * std::ldexp(1 + mantissa, field - Bias(dtype));
}

uint16_t Narrow16(DType dtype, float value) {
  const double magnitude = std::abs(static_cast<double>(value));
  const auto sign = static_cast<uint16_t>(std::signbit(value) ? 0x8000 : 0);
  // The largest pattern that is not above the magnitude, by bisection.
  uint16_t low = 0;
  uint16_t high = Infinity(dtype);
  while (high - low > 1) {
    const auto middle = static_cast<uint16_t>((low + high) / 2);
    (Decode16(dtype, middle) <= magnitude ? low : high) = middle;
  }
  // Infinity takes the place of the next power of two.
  const double above =
      high == Infinity(dtype) ? std::ldexp(1.0, Bias(dtype) + 1) : Decode16(dtype, high);
  const double to_low = magnitude - Decode16(dtype, low);
  const double to_high = above - magnitude;
  const bool is_up = to_high < to_low || (to_high == to_low && (low & 1) != 0);
  return sign | (is_up ? high : low);
}

bool IsQuietNan16(DType dtype, uint16_t bits) {
  const int quiet_bit = 1 << (MantissaBits(dtype) - 1);
  return (bits & 0x7FFF) > Infinity(dtype) && (bits & quiet_bit) != 0;
}

#if defined(__x86_64__)

bool HasHalfInstructions() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  __asm__("cpuid" : "=a"(eax), "=b"(ebx), "=c"(ecx), "=d"(edx) : "a"(1), "c"(0));
  constexpr unsigned kF16cAndAvx = (1U << 29) | (1U << 28);
  return (ecx & kF16cAndAvx) == kF16cAndAvx;
}

__attribute__((target("f16c"))) double WidenByInstruction(uint16_t bits) {
  return static_cast<double>(_cvtsh_ss(bits));
}

__attribute__((target("f16c"))) uint16_t NarrowByInstruction(float value) {
  const __m128i halves = _mm_cvtps_ph(_mm_set_ss(value), _MM_FROUND_TO_NEAREST_INT);
  return static_cast<uint16_t>(_mm_cvtsi128_si32(halves));
}

#elif defined(__aarch64__)

// A conversion of __fp16 is an instruction, which every such processor has.
bool HasHalfInstructions() { return true; }
double WidenByInstruction(uint16_t bits) {
  return static_cast<double>(std::bit_cast<__fp16>(bits));
}
uint16_t NarrowByInstruction(float value) {
  return std::bit_cast<uint16_t>(static_cast<__fp16>(value));
}

#else

bool HasHalfInstructions() { return false; }
double WidenByInstruction(uint16_t) { return 0; }
uint16_t NarrowByInstruction(float) { return 0; }

#endif

}  // namespace qkvfuse::testing
