// Decoding by sign, exponent and mantissa; encoding by rounding to the format's spacing.
#include "scalar16.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>

namespace qkvfuse::capi_test {
namespace {

struct Format {
  int mantissa_bits;
  int exponent_bits;
  [[nodiscard]] int bias() const { return (1 << (exponent_bits - 1)) - 1; }
};

Format FormatOf(aclDataType type) { return type == ACL_FLOAT16 ? Format{10, 5} : Format{7, 8}; }

float Decode(const Format& format, unsigned bits) {
  const int exponent =
      static_cast<int>(bits >> format.mantissa_bits) & ((1 << format.exponent_bits) - 1);
  const int mantissa = static_cast<int>(bits) & ((1 << format.mantissa_bits) - 1);
  const double sign = (bits & 0x8000u) != 0 ? -1.0 : 1.0;
  if (exponent == (1 << format.exponent_bits) - 1) {
    return mantissa != 0 ? std::numeric_limits<float>::quiet_NaN()
                         : static_cast<float>(sign * std::numeric_limits<double>::infinity());
  }
  const int significand = exponent == 0 ? mantissa : mantissa + (1 << format.mantissa_bits);
  const int scale = std::max(exponent, 1) - format.bias() - format.mantissa_bits;
  return static_cast<float>(sign * std::ldexp(significand, scale));
}

std::unique_ptr<std::array<float, 65536>> MakeTable(aclDataType type) {
  auto table = std::make_unique<std::array<float, 65536>>();
  for (unsigned bits = 0; bits < table->size(); ++bits) {
    (*table)[bits] = Decode(FormatOf(type), bits);
  }
  return table;
}

}  // namespace

const std::array<float, 65536>& Values16(aclDataType type) {
  static const auto half = MakeTable(ACL_FLOAT16);
  static const auto bfloat16 = MakeTable(ACL_BF16);
  return type == ACL_FLOAT16 ? *half : *bfloat16;
}

uint16_t Encode16(aclDataType type, double value) {
  const Format format = FormatOf(type);
  const double magnitude = std::fabs(value);
  const int lowest = 1 - format.bias();
  const int exponent = magnitude == 0 ? lowest : std::max(std::ilogb(magnitude), lowest);
  // In units of the spacing at this exponent; a carry runs into the exponent as it should.
  const auto units =
      static_cast<unsigned>(std::nearbyint(std::ldexp(magnitude, format.mantissa_bits - exponent)));
  const auto base = static_cast<unsigned>(exponent - lowest) << format.mantissa_bits;
  return static_cast<uint16_t>(base + units + (std::signbit(value) ? 0x8000u : 0u));
}

}  // namespace qkvfuse::capi_test
