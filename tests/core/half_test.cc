// The scalar conversions of the library, exhaustively where that is quick.
#include "base/half.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>

namespace qkvfuse {
namespace {

TEST(Half, WidensEveryPattern) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const int exponent = static_cast<int>((bits >> 10) & 31);
    const double sign = (bits & 0x8000) != 0 ? -1.0 : 1.0;
    const double mantissa = bits & 0x3FF;
    const float value = FloatFromHalf(static_cast<uint16_t>(bits));
    if (exponent == 31) {
      EXPECT_EQ(std::isinf(value), mantissa == 0) << bits;
      EXPECT_EQ(std::isnan(value), mantissa != 0) << bits;
      // A NaN becomes quiet and keeps its payload.
      const uint32_t quiet = (bits & 1023) == 0 ? 0 : 0x400000U;
      EXPECT_EQ(std::bit_cast<uint32_t>(value) & 0x7FFFFFU, quiet | (bits & 1023) << 13) << bits;
    } else if (exponent == 0) {
      EXPECT_EQ(value, sign * std::ldexp(mantissa, -24)) << bits;
    } else {
      EXPECT_EQ(value, sign * std::ldexp(1024 + mantissa, exponent - 25)) << bits;
    }
    EXPECT_EQ(std::signbit(value), (bits & 0x8000) != 0) << bits;
  }
}

/// The 16-bit finite neighbours of a positive value are tried by hand: the chosen one is nearest,
/// and of two equally near the even one.
template <typename Narrow, typename Widen>
void ExpectNearestEven(uint32_t step, uint32_t infinity, const Narrow& narrow, const Widen& widen) {
  for (uint64_t bits = 0; bits < 0x7F800000u; bits += step) {
    const float value = std::bit_cast<float>(static_cast<uint32_t>(bits));
    const uint16_t chosen = narrow(value);
    ASSERT_EQ(narrow(-value), chosen | 0x8000) << bits;
    if (chosen == infinity) {
      // The first value beyond the largest finite one by half of its last place.
      const double largest = widen(static_cast<uint16_t>(infinity - 1));
      const double below = widen(static_cast<uint16_t>(infinity - 2));
      ASSERT_GE(value, largest + (largest - below) / 2) << bits;
      continue;
    }
    const double distance = std::fabs(static_cast<double>(widen(chosen)) - value);
    for (const int neighbour : {-1, 1}) {
      const int other = chosen + neighbour;
      if (other < 0 || other == static_cast<int>(infinity)) continue;
      const double other_distance =
          std::fabs(static_cast<double>(widen(static_cast<uint16_t>(other))) - value);
      ASSERT_TRUE(distance < other_distance || (distance == other_distance && chosen % 2 == 0))
          << bits;
    }
  }
}

// Quiet, with the upper bits of the payload.
TEST(Half, NarrowsNan) {
  for (const uint32_t sign : {0U, 1U}) {
    for (const uint32_t payload : {1U, 0x2000U, 0x155555U, 0x2AAAAAU, 0x400000U, 0x7FFFFFU}) {
      const auto nan = std::bit_cast<float>(sign << 31 | 0x7F800000U | payload);
      EXPECT_EQ(HalfFromFloat(nan), sign << 15 | 0x7E00U | payload >> 13) << payload;
      EXPECT_EQ(BFloat16FromFloat(nan), sign << 15 | 0x7FC0U | payload >> 16) << payload;
    }
  }
}

TEST(Half, NarrowsToNearestEven) {
  ExpectNearestEven(509, 0x7C00, HalfFromFloat, FloatFromHalf);
  // Around every fp16 value and every tie.
  for (uint32_t bits = 0; bits < 0x7BFF; ++bits) {
    const uint32_t low = std::bit_cast<uint32_t>(FloatFromHalf(static_cast<uint16_t>(bits)));
    const uint32_t high = std::bit_cast<uint32_t>(FloatFromHalf(static_cast<uint16_t>(bits + 1)));
    const float tie = (std::bit_cast<float>(low) + std::bit_cast<float>(high)) / 2;
    EXPECT_EQ(HalfFromFloat(tie), bits + bits % 2);
    EXPECT_EQ(HalfFromFloat(std::nextafter(tie, 0.0f)), bits);
    EXPECT_EQ(HalfFromFloat(std::nextafter(tie, 1e9f)), bits + 1);
  }
}

TEST(BFloat16, NarrowsToNearestEven) {
  ExpectNearestEven(509, 0x7F80, BFloat16FromFloat, FloatFromBFloat16);
  EXPECT_EQ(BFloat16FromFloat(std::bit_cast<float>(0x3F808000u)), 0x3F80);
  EXPECT_EQ(BFloat16FromFloat(std::bit_cast<float>(0x3F818000u)), 0x3F82);
  EXPECT_EQ(BFloat16FromFloat(std::bit_cast<float>(0x00000001u)), 0x0000);
  EXPECT_EQ(BFloat16FromFloat(std::bit_cast<float>(0x00018000u)), 0x0002);
}

TEST(Conversions, KeepNanQuiet) {
  for (const uint32_t bits : {0x7F800001u, 0x7FFFFFFFu, 0xFF800001u, 0x7FC00000u}) {
    const float nan = std::bit_cast<float>(bits);
    EXPECT_EQ(HalfFromFloat(nan) & 0x7E00, 0x7E00);
    EXPECT_EQ(BFloat16FromFloat(nan) & 0x7FC0, 0x7FC0);
  }
}

}  // namespace
}  // namespace qkvfuse
