// The fp8 conversions against formulas in double that share nothing with them: every code, and a
// dense sweep of floats against the nearest of all codes.
#include "base/float8.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

namespace qkvfuse {
namespace {

struct Format {
  const char* name;
  int mantissa_bits;
  int bias;
  double largest;
  uint8_t (*narrow)(float);
  float (*widen)(uint8_t);
};

constexpr Format kFormats[] = {{"e4m3", 3, 7, 448, E4M3FromFloat, FloatFromE4M3},
                               {"e5m2", 2, 15, 57344, E5M2FromFloat, FloatFromE5M2}};

/// Value of a positive finite code, from the definition of the format.
double ValueOf(const Format& format, int code) {
  const int exponent = code >> format.mantissa_bits;
  const double mantissa =
      (code & ((1 << format.mantissa_bits) - 1)) / static_cast<double>(1 << format.mantissa_bits);
  if (exponent == 0) return std::ldexp(mantissa, 1 - format.bias);
  return std::ldexp(1 + mantissa, exponent - format.bias);
}

/// Values of the codes 0, 1, ... up to the largest finite one.
std::vector<double> FiniteValues(const Format& format) {
  std::vector<double> values;
  for (int code = 0; values.empty() || values.back() < format.largest; ++code) {
    values.push_back(ValueOf(format, code));
  }
  return values;
}

/// The nearest of the values, of two equally near the one with the even code, by trying both
/// neighbours.
int NearestEven(const std::vector<double>& values, double value) {
  const auto above = std::lower_bound(values.begin(), values.end(), value);
  if (above == values.end()) return static_cast<int>(values.size()) - 1;
  const int high = static_cast<int>(above - values.begin());
  if (high == 0) return 0;
  const double to_high = *above - value;
  const double to_low = value - values[static_cast<size_t>(high) - 1];
  if (to_high == to_low) return high % 2 == 0 ? high : high - 1;
  return to_high < to_low ? high : high - 1;
}

TEST(Float8, WidensEveryCode) {
  for (const Format& format : kFormats) {
    const int largest = static_cast<int>(FiniteValues(format).size()) - 1;
    for (int code = 0; code < 256; ++code) {
      const float found = format.widen(static_cast<uint8_t>(code));
      const int magnitude = code & 0x7F;
      EXPECT_EQ(std::signbit(found), code >= 128) << format.name << " " << code;
      if (magnitude <= largest) {
        EXPECT_EQ(std::fabs(found), ValueOf(format, magnitude)) << format.name << " " << code;
      } else if (format.mantissa_bits == 2 && magnitude == 0x7C) {
        EXPECT_TRUE(std::isinf(found)) << code;
      } else {
        EXPECT_TRUE(std::isnan(found)) << format.name << " " << code;
      }
    }
  }
  EXPECT_EQ(FiniteValues(kFormats[0]).size(), 0x7Fu);
  EXPECT_EQ(FiniteValues(kFormats[1]).size(), 0x7Cu);
}

TEST(Float8, EveryFiniteCodeComesBack) {
  for (const Format& format : kFormats) {
    for (int code = 0; code < static_cast<int>(FiniteValues(format).size()); ++code) {
      EXPECT_EQ(format.narrow(static_cast<float>(ValueOf(format, code))), code) << format.name;
      EXPECT_EQ(format.narrow(-static_cast<float>(ValueOf(format, code))), code | 0x80)
          << format.name;
    }
  }
}

TEST(Float8, NarrowsToNearestEven) {
  for (const Format& format : kFormats) {
    const std::vector<double> values = FiniteValues(format);
    for (uint64_t bits = 0; bits <= 0x7F800000u; bits += 1021) {
      const float value = std::bit_cast<float>(static_cast<uint32_t>(bits));
      const int expected = NearestEven(values, value);
      ASSERT_EQ(format.narrow(value), expected) << format.name << " " << value;
      ASSERT_EQ(format.narrow(-value), expected | 0x80) << format.name << " " << -value;
    }
  }
}

// Around every tie, where an error of one unit in the last place shows.
TEST(Float8, NarrowsTies) {
  for (const Format& format : kFormats) {
    const std::vector<double> values = FiniteValues(format);
    for (size_t code = 0; code + 1 < values.size(); ++code) {
      const auto tie = static_cast<float>((values[code] + values[code + 1]) / 2);
      const int low = static_cast<int>(code);
      EXPECT_EQ(format.narrow(tie), low + low % 2) << format.name << " " << tie;
      EXPECT_EQ(format.narrow(std::nextafter(tie, 0.0f)), low) << format.name << " " << tie;
      EXPECT_EQ(format.narrow(std::nextafter(tie, 1e9f)), low + 1) << format.name << " " << tie;
    }
  }
}

TEST(Float8, SaturatesAndKeepsZerosSigns) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const Format& format : kFormats) {
    const auto largest = static_cast<float>(format.largest);
    const uint8_t code = format.narrow(largest);
    for (const float beyond : {std::nextafter(largest, kInfinity), 2 * largest, 3e38f, kInfinity}) {
      EXPECT_EQ(format.narrow(beyond), code) << format.name << " " << beyond;
      EXPECT_EQ(format.narrow(-beyond), code | 0x80) << format.name << " " << beyond;
    }
    for (const float tiny : {0.0f, 1e-45f, 1e-20f}) {
      EXPECT_EQ(format.narrow(tiny), 0) << format.name << " " << tiny;
      EXPECT_EQ(format.narrow(-tiny), 0x80) << format.name << " " << tiny;
    }
    for (const uint32_t nan : {0x7F800001u, 0x7FFFFFFFu, 0xFF800001u, 0xFFC00000u}) {
      EXPECT_EQ(format.narrow(std::bit_cast<float>(nan)), 0x7F) << format.name << " " << nan;
    }
  }
}

// All of it can be done at compile time.
static_assert(E4M3FromFloat(FloatFromE4M3(0x01)) == 0x01);
static_assert(E5M2FromFloat(FloatFromE5M2(0xFB)) == 0xFB);

}  // namespace
}  // namespace qkvfuse
