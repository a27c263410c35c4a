// Loops that the compiler vectorises; every step rounds once (docs/reading_back.md).
#include "kernels/row_codes.h"

#include <array>
#include <bit>
#include <cstring>

#include "base/float8.h"
#include "base/half.h"

namespace qkvfuse::kernels {
namespace {

template <Float8Format kFormat>
constexpr std::array<float, 256> Float8Table() noexcept {
  std::array<float, 256> table{};
  for (unsigned code = 0; code < 256; ++code) {
    table[code] = FloatFromFloat8<kFormat>(static_cast<uint8_t>(code));
  }
  return table;
}
constexpr std::array<float, 256> kE4M3Values = Float8Table<kE4M3>();
constexpr std::array<float, 256> kE5M2Values = Float8Table<kE5M2>();

/// to[i] = function(from[i])
template <typename From, typename To, typename Function>
void Map(const void* from, int64_t count, void* to, const Function& function) noexcept {
  const auto* const in = static_cast<const From*>(from);
  auto* const out = static_cast<To*>(to);
  for (int64_t i = 0; i < count; ++i) out[i] = function(in[i]);
}

void Widen(DType dtype, const void* from, int64_t count, float* y) noexcept {
  switch (dtype) {
    case DType::kFloat16:
      return Map<uint16_t, float>(from, count, y, FloatFromHalf);
    case DType::kBFloat16:
      return Map<uint16_t, float>(from, count, y, FloatFromBFloat16);
    case DType::kInt8:
      return Map<int8_t, float>(from, count, y, [](int8_t x) { return static_cast<float>(x); });
    case DType::kFloat8E4M3:
      return Map<uint8_t, float>(from, count, y, [](uint8_t x) { return kE4M3Values[x]; });
    case DType::kFloat8E5M2:
      return Map<uint8_t, float>(from, count, y, [](uint8_t x) { return kE5M2Values[x]; });
    default:  // fp32
      std::memcpy(y, from, static_cast<size_t>(count) * sizeof(float));
  }
}

/// NaN gives 0; what is beyond the range its end.
int8_t Int8FromFloat(float z) noexcept {
  // Adding it leaves no bits for fractions, so that the sum rounds z to nearest even.
  constexpr float kWhole = 0x1.8p23f;
  z = z == z ? z : 0.0f;
  z = z < -128.0f ? -128.0f : z;
  z = z > 127.0f ? 127.0f : z;
  return static_cast<int8_t>(std::bit_cast<uint32_t>(z + kWhole) - std::bit_cast<uint32_t>(kWhole));
}

void Narrow(DType dtype, const float* z, int64_t count, void* to) noexcept {
  switch (dtype) {
    case DType::kFloat16:
      return Map<float, uint16_t>(z, count, to, HalfFromFloat);
    case DType::kBFloat16:
      return Map<float, uint16_t>(z, count, to, BFloat16FromFloat);
    case DType::kInt8:
      return Map<float, int8_t>(z, count, to, Int8FromFloat);
    case DType::kFloat8E4M3:
      return Map<float, uint8_t>(z, count, to, E4M3FromFloat);
    case DType::kFloat8E5M2:
      return Map<float, uint8_t>(z, count, to, E5M2FromFloat);
    default:  // fp32
      std::memcpy(to, z, static_cast<size_t>(count) * sizeof(float));
  }
}

/// The code that the largest value of a head gets with dynamic scales.
float LargestCode(DType dtype) noexcept {
  if (dtype == DType::kInt8) return 127.0f;
  return dtype == DType::kFloat8E4M3 ? 448.0f : 57344.0f;
}

/// max |y|, NaN left out. The bits of magnitudes are ordered as their values.
float LargestMagnitude(const float* y, int64_t count) noexcept {
  int32_t largest = 0;
  for (int64_t i = 0; i < count; ++i) {
    const auto bits = static_cast<int32_t>(std::bit_cast<uint32_t>(y[i]) & 0x7FFFFFFFu);
    const int32_t number = bits > 0x7F800000 ? 0 : bits;
    largest = number > largest ? number : largest;
  }
  return std::bit_cast<float>(largest);
}

float EncodeDynamic(DType dtype, const float* y, int64_t channels, void* codes) noexcept {
  const float scale = LargestMagnitude(y, channels) / LargestCode(dtype);
  if (scale == 0.0f) {
    std::memset(codes, 0, static_cast<size_t>(channels));
    return scale;
  }
  float z[kMaxHeadDim];
  for (int64_t i = 0; i < channels; ++i) z[i] = y[i] / scale;
  Narrow(dtype, z, channels, codes);
  return scale;
}

}  // namespace

void DecodeHead(const CodeFormat& format, const void* codes, float dynamic_scale, int64_t channels,
                float* y) noexcept {
  Widen(format.dtype, codes, channels, y);
  if (!IsQuantised(format.dtype)) return;
  if (format.rule == ScaleRule::kDynamic) {
    for (int64_t i = 0; i < channels; ++i) y[i] *= dynamic_scale;
    return;
  }
  if (format.offset != nullptr) {
    const float* const offset = format.offset;
    for (int64_t i = 0; i < channels; ++i) y[i] -= offset[i];
  }
  const float* const scale = format.scale;
  if (format.rule == ScaleRule::kMultiply) {
    for (int64_t i = 0; i < channels; ++i) y[i] /= scale[i];
  } else {
    for (int64_t i = 0; i < channels; ++i) y[i] *= scale[i];
  }
}

float EncodeHead(const CodeFormat& format, const float* y, int64_t channels, void* codes) noexcept {
  if (!IsQuantised(format.dtype)) {
    Narrow(format.dtype, y, channels, codes);
    return 0.0f;
  }
  if (format.rule == ScaleRule::kDynamic) return EncodeDynamic(format.dtype, y, channels, codes);
  float z[kMaxHeadDim];
  const float* const scale = format.scale;
  if (format.rule == ScaleRule::kMultiply) {
    for (int64_t i = 0; i < channels; ++i) z[i] = y[i] * scale[i];
  } else {
    for (int64_t i = 0; i < channels; ++i) z[i] = y[i] / scale[i];
  }
  if (format.offset != nullptr) {
    const float* const offset = format.offset;
    for (int64_t i = 0; i < channels; ++i) z[i] += offset[i];
  }
  Narrow(format.dtype, z, channels, codes);
  return 0.0f;
}

void ExpandParameter(const CacheParameter& from, int64_t heads, int64_t head_dim,
                     float* to) noexcept {
  const StridedShape& shape = from.shape;
  for (int64_t i = 0; i < heads * head_dim; ++i) {
    int64_t element = i;
    if (from.granularity == ScaleGranularity::kHead) element = i / head_dim;
    if (from.granularity == ScaleGranularity::kTensor) element = 0;
    int64_t offset = shape.rank == 0 ? element : 0;
    for (int axis = shape.rank - 1; axis >= 0; --axis) {
      const auto a = static_cast<size_t>(axis);
      offset += element % shape.dims[a] * shape.strides[a];
      element /= shape.dims[a];
    }
    to[i] = from.data[offset];
  }
}

}  // namespace qkvfuse::kernels
