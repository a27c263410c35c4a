#include "tests/pages/model.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>

namespace qkvfuse::testing {
namespace {

/// A float format of at most 16 bits.
struct Format {
  int mantissa_bits;
  int bias;
  uint32_t largest;   // pattern of the largest finite value
  uint32_t infinity;  // or where there is none, a pattern that does not exist
  uint32_t sign;
};

Format FormatOf(DType dtype) {
  switch (dtype) {
    case DType::kFloat16:
      return {10, 15, 0x7BFF, 0x7C00, 0x8000};
    case DType::kBFloat16:
      return {7, 127, 0x7F7F, 0x7F80, 0x8000};
    case DType::kFloat8E4M3:
      return {3, 7, 0x7E, 0x100, 0x80};
    default:
      return {2, 15, 0x7B, 0x7C, 0x80};
  }
}

/// The magnitude that a pattern stands for, with the exponent taken as any other where the format
/// has infinities and NaN.
double Magnitude(const Format& format, uint32_t pattern) {
  const auto exponent = static_cast<int>(pattern >> format.mantissa_bits);
  const double one = std::ldexp(1.0, format.mantissa_bits);
  const double mantissa = (pattern & ((1u << format.mantissa_bits) - 1)) / one;
  return exponent == 0 ? std::ldexp(mantissa, 1 - format.bias)
                       : std::ldexp(1 + mantissa, exponent - format.bias);
}

/// Magnitudes of the patterns 0, 1, ... up to one beyond the largest finite one.
const std::vector<double>& Magnitudes(DType dtype) {
  static std::map<DType, std::vector<double>> tables;
  std::vector<double>& table = tables[dtype];
  const Format format = FormatOf(dtype);
  for (uint32_t i = static_cast<uint32_t>(table.size()); i <= format.largest + 1; ++i) {
    table.push_back(Magnitude(format, i));
  }
  return table;
}

uint32_t NearestEven(const std::vector<double>& table, double magnitude) {
  const auto above = std::lower_bound(table.begin(), table.end(), magnitude);
  if (above == table.begin()) return 0;
  const auto high = static_cast<uint32_t>(std::min(above, table.end() - 1) - table.begin());
  const double to_high = std::fabs(table[high] - magnitude);
  const double to_low = magnitude - table[high - 1];
  if (to_high == to_low) return high % 2 == 0 ? high : high - 1;
  return to_high < to_low ? high : high - 1;
}

uint32_t FloatPattern(DType dtype, float value) {
  const Format format = FormatOf(dtype);
  const bool is_8bit = IsFloat8(dtype);
  if (std::isnan(value)) return is_8bit ? 0x7F : format.infinity + 1;
  double magnitude = std::fabs(static_cast<double>(value));
  if (is_8bit) magnitude = std::min(magnitude, Magnitude(format, format.largest));
  const uint32_t pattern = NearestEven(Magnitudes(dtype), magnitude);
  return pattern | (std::signbit(value) ? format.sign : 0);
}

uint32_t Int8Pattern(float value) {
  if (std::isnan(value)) return 0;
  const double whole = std::nearbyint(std::clamp(static_cast<double>(value), -128.0, 127.0));
  return static_cast<uint8_t>(static_cast<int>(whole));
}

size_t ParameterIndex(const CacheView& view, int64_t head, int64_t channel) {
  switch (view.spec.granularity) {
    case ScaleGranularity::kChannel:
      return static_cast<size_t>(head * view.head_dim + channel);
    case ScaleGranularity::kHead:
      return static_cast<size_t>(head);
    default:
      return 0;
  }
}

float RandomScale(std::mt19937& random) {
  std::uniform_real_distribution<float> mantissa(0.5f, 1.0f);
  std::uniform_int_distribution<int> exponent(-8, 8);
  const float scale = std::ldexp(mantissa(random), exponent(random));
  return random() % 8 == 0 ? -scale : scale;
}

/// Random exponents of 8 bits make nearly all values huge or tiny: gives three quarters of the
/// values, of fp32 or bf16, an exponent from -8 to 7.
void TameMost(std::mt19937& random, size_t bytes, std::vector<char>* data) {
  for (size_t at = 0; at < data->size(); at += bytes) {
    if (random() % 4 == 0) continue;
    const auto top = static_cast<uint32_t>(random() % 16 + 119) << 7 | (random() & 0x807F);
    (*data)[at + bytes - 2] = static_cast<char>(top);
    (*data)[at + bytes - 1] = static_cast<char>(top >> 8);
  }
}

}  // namespace

uint32_t LoadBits(const char* at, int64_t bytes) {
  uint32_t bits = 0;
  std::memcpy(&bits, at, static_cast<size_t>(bytes));  // little-endian, as all targets are
  return bits;
}

size_t ElementsOf(const CacheLayout& layout, int64_t heads, int64_t head_dim) {
  int64_t last = 0;
  for (int64_t slot = 0; slot < layout.slots(); ++slot) {
    for (int64_t head = 0; head < heads; ++head) {
      for (int64_t channel = 0; channel < head_dim; ++channel) {
        last = std::max(last, layout.AddressOf(slot, head, channel));
      }
    }
  }
  return static_cast<size_t>(last) + 1;
}

TestCache::TestCache(const CacheSpec& spec, int64_t heads, int64_t head_dim, unsigned seed) {
  std::mt19937 random(seed);
  view.spec = spec;
  view.heads = heads;
  view.head_dim = head_dim;
  const auto bytes = static_cast<size_t>(SizeOf(spec.dtype));
  data.resize(ElementsOf(spec.layout, heads, head_dim) * bytes);
  for (char& byte : data) byte = static_cast<char>(random());
  if (spec.dtype == DType::kFloat32 || spec.dtype == DType::kBFloat16)
    TameMost(random, bytes, &data);
  view.data = data.data();
  if (!IsQuantised(spec.dtype)) return;
  if (spec.scale_rule == ScaleRule::kDynamic) {
    scale_cache.resize(ElementsOf(spec.scale_layout, heads, 1));
    for (float& s : scale_cache) s = std::fabs(RandomScale(random));
    view.scale_cache = scale_cache.data();
    return;
  }
  scale.resize(ParameterIndex(view, heads - 1, head_dim - 1) + 1);
  for (float& s : scale) s = RandomScale(random);
  view.scale = scale.data();
  if (!spec.has_offset) return;
  offset.resize(scale.size());
  for (float& o : offset) o = 8 * RandomScale(random);
  view.offset = offset.data();
}

uint32_t TestCache::BitsAt(int64_t slot, int64_t head, int64_t channel) const {
  const int64_t bytes = SizeOf(view.spec.dtype);
  return LoadBits(data.data() + view.spec.layout.AddressOf(slot, head, channel) * bytes, bytes);
}

float TestCache::ScaleAt(int64_t slot, int64_t head) const {
  return scale_cache[static_cast<size_t>(view.spec.scale_layout.AddressOf(slot, head, 0))];
}

float TestCache::ValueAt(int64_t slot, int64_t head, int64_t channel) const {
  volatile float y = ValueOf(view.spec.dtype, BitsAt(slot, head, channel));
  if (!IsQuantised(view.spec.dtype)) return y;
  if (view.spec.scale_rule == ScaleRule::kDynamic) return y * ScaleAt(slot, head);
  const size_t i = ParameterIndex(view, head, channel);
  if (view.spec.has_offset) y = y - offset[i];
  return view.spec.scale_rule == ScaleRule::kDivide ? y * scale[i] : y / scale[i];
}

std::vector<CacheLayout> EveryLayout(int64_t blocks, int64_t block_size, int64_t heads,
                                     int64_t head_dim) {
  const int64_t block = block_size * heads * head_dim;
  CacheLayout gaps = PagedNhd(blocks, block_size, heads, head_dim);
  gaps.channel_stride = 2;
  gaps.head_stride = 2 * head_dim + 1;
  gaps.row_stride = heads * gaps.head_stride + 3;
  gaps.block_stride = block_size * gaps.row_stride + 5;
  gaps.name = "gaps";
  return {PaNz(blocks, block_size, heads, head_dim, 2),
          PagedNhd(blocks, block_size, heads, head_dim),
          PagedHnd(blocks, block_size, heads, head_dim),
          ContiguousBsnd(blocks, block_size, heads, head_dim),
          ContiguousBnsd(blocks, block_size, heads, head_dim),
          XSplitK(blocks, block_size, heads, head_dim, head_dim / 2),
          Transposed(blocks, block_size, heads, head_dim),
          ShuffledV(blocks, block_size, heads, head_dim, block_size / 2),
          InTurn(PagedNhd(blocks, block_size, heads, head_dim), block),
          InTurn(PagedNhd(blocks, block_size, heads, head_dim), heads * head_dim),
          InTurn(PagedHnd(blocks, block_size, heads, head_dim), head_dim),
          InTurn(ShuffledV(blocks, block_size, heads, head_dim, 2), block),
          gaps};
}

std::vector<CacheSpec> EveryFormat() {
  std::vector<CacheSpec> specs;
  CacheSpec spec;
  for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
    spec.dtype = dtype;
    specs.push_back(spec);
  }
  for (const DType dtype : {DType::kInt8, DType::kFloat8E4M3, DType::kFloat8E5M2}) {
    spec.dtype = dtype;
    spec.granularity = ScaleGranularity::kChannel;
    spec.scale_rule = ScaleRule::kDynamic;
    specs.push_back(spec);
    for (const ScaleRule rule : {ScaleRule::kDivide, ScaleRule::kMultiply}) {
      spec.scale_rule = rule;
      for (const ScaleGranularity granularity :
           {ScaleGranularity::kChannel, ScaleGranularity::kHead, ScaleGranularity::kTensor}) {
        spec.granularity = granularity;
        specs.push_back(spec);
        if (dtype != DType::kInt8) continue;
        spec.has_offset = true;
        specs.push_back(spec);
        spec.has_offset = false;
      }
    }
  }
  return specs;
}

CacheSpec WithLayout(CacheSpec spec, const CacheLayout& layout, bool scales_by_head) {
  spec.layout = layout;
  if (IsQuantised(spec.dtype) && spec.scale_rule == ScaleRule::kDynamic) {
    spec.scale_layout = scales_by_head ? ScalesHn(layout.blocks, layout.block_size, kSmallHeads)
                                       : ScalesNh(layout.blocks, layout.block_size, kSmallHeads);
  }
  return spec;
}

std::string Describe(const CacheSpec& spec) {
  return std::string(Name(spec.dtype)) + ", rule " +
         std::to_string(static_cast<int>(spec.scale_rule)) + ", granularity " +
         std::to_string(static_cast<int>(spec.granularity)) + (spec.has_offset ? ", offset" : "") +
         ", " + spec.layout.name;
}

CacheSpec Int8Spec() {
  CacheSpec spec;
  spec.layout = PagedNhd(4, 4, kSmallHeads, kSmallHeadDim);
  return spec;
}

CacheSpec DynamicSpec() {
  CacheSpec spec = Int8Spec();
  spec.scale_rule = ScaleRule::kDynamic;
  spec.scale_layout = ScalesNh(4, 4, kSmallHeads);
  return spec;
}

float ValueOf(DType dtype, uint32_t bits) {
  if (dtype == DType::kFloat32) return std::bit_cast<float>(bits);
  if (dtype == DType::kInt8) return static_cast<float>(static_cast<int8_t>(bits));
  const Format format = FormatOf(dtype);
  const uint32_t magnitude = bits & (format.sign - 1);
  const float sign = (bits & format.sign) != 0 ? -1.0f : 1.0f;
  if (magnitude == format.infinity) return sign * std::numeric_limits<float>::infinity();
  if (magnitude > format.largest) return std::numeric_limits<float>::quiet_NaN();
  return sign * static_cast<float>(Magnitude(format, magnitude));
}

uint32_t PatternOf(DType dtype, float value) {
  if (dtype == DType::kFloat32) return std::bit_cast<uint32_t>(value);
  return dtype == DType::kInt8 ? Int8Pattern(value) : FloatPattern(dtype, value);
}

Codes CodesOf(const TestCache& cache, int64_t head, const std::vector<float>& y) {
  const CacheSpec& spec = cache.view.spec;
  const bool is_dynamic = IsQuantised(spec.dtype) && spec.scale_rule == ScaleRule::kDynamic;
  Codes codes;
  if (is_dynamic) {
    float largest = 0.0f;
    for (const float value : y) {
      if (std::fabs(value) > largest) largest = std::fabs(value);
    }
    const float code = spec.dtype == DType::kInt8         ? 127.0f
                       : spec.dtype == DType::kFloat8E4M3 ? 448.0f
                                                          : 57344.0f;
    codes.scale = largest / code;
  }
  for (size_t channel = 0; channel < y.size(); ++channel) {
    volatile float z = y[channel];
    if (is_dynamic) {
      if (codes.scale == 0.0f) {
        codes.bits.push_back(0);
        continue;
      }
      z = z / codes.scale;
    } else if (IsQuantised(spec.dtype)) {
      const size_t i = ParameterIndex(cache.view, head, static_cast<int64_t>(channel));
      z = spec.scale_rule == ScaleRule::kDivide ? z / cache.scale[i] : z * cache.scale[i];
      if (spec.has_offset) z = z + cache.offset[i];
    }
    codes.bits.push_back(PatternOf(spec.dtype, z));
  }
  return codes;
}

bool AreSame(DType dtype, uint32_t a, uint32_t b) {
  if (a == b) return true;
  return IsFloat(dtype) && std::isnan(ValueOf(dtype, a)) && std::isnan(ValueOf(dtype, b));
}

}  // namespace qkvfuse::testing
