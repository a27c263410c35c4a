// What both examples need around the library: bfloat16 conversions and rows of a rotation table.
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace example {

/// Round to nearest, ties to even; for finite values.
inline uint16_t ToBFloat16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  return static_cast<uint16_t>((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16);
}

inline float FromBFloat16(uint16_t value) {
  return std::bit_cast<float>(static_cast<uint32_t>(value) << 16);
}

/// cos and sin rows of one token each, [tokens, head_dim] bf16; the two halves of a row are equal.
struct RopeTable {
  std::vector<uint16_t> cos;
  std::vector<uint16_t> sin;
};

inline RopeTable MakeRopeTable(const std::vector<int64_t>& positions, int64_t head_dim) {
  constexpr double kTheta = 1e6;  // Qwen3
  RopeTable table;
  for (const int64_t position : positions) {
    for (int64_t d = 0; d < head_dim; ++d) {
      const double exponent = 2.0 * static_cast<double>(d % (head_dim / 2));
      const double frequency = std::pow(kTheta, -exponent / static_cast<double>(head_dim));
      const double angle = static_cast<double>(position) * frequency;
      table.cos.push_back(ToBFloat16(static_cast<float>(std::cos(angle))));
      table.sin.push_back(ToBFloat16(static_cast<float>(std::sin(angle))));
    }
  }
  return table;
}

}  // namespace example
