// The definition of both operators: every operation of docs/numerics.md in its written order, one
// element at a time. Compiled without contraction: std::fma stands where a fused multiply-add is
// meant, and nowhere else is there one.
#include "reference/exact.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <vector>

namespace qkvfuse::reference {
namespace {

// Conversions.

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

// `kept` without its last `drop` bits, rounded to nearest, ties to even.
uint32_t RoundOff(uint32_t kept, uint32_t drop) {
  const uint32_t half = 1U << (drop - 1);
  const uint32_t odd = (kept >> drop) & 1U;
  return (kept + half - 1 + odd) >> drop;
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

// Memory.

std::byte* Element(const TensorView& view, std::initializer_list<int64_t> index) {
  int64_t offset = 0;
  size_t axis = 0;
  for (const int64_t i : index) offset += i * view.shape.strides[axis++];
  return static_cast<std::byte*>(view.data) + offset * SizeOf(view.dtype);
}

// The element that is the `position`th in row-major order.
std::byte* Element(const TensorView& view, int64_t position) {
  int64_t offset = 0;
  for (int axis = view.shape.rank - 1; axis >= 0; --axis) {
    const size_t a = static_cast<size_t>(axis);
    offset += position % view.shape.dims[a] * view.shape.strides[a];
    position /= view.shape.dims[a];
  }
  return static_cast<std::byte*>(view.data) + offset * SizeOf(view.dtype);
}

template <typename T>
T Read(const std::byte* address) {
  T value;
  std::memcpy(&value, address, sizeof(T));
  return value;
}

float Widen(DType dtype, const std::byte* address) {
  if (dtype == DType::kFloat16) return WidenHalf(Read<uint16_t>(address));
  if (dtype == DType::kBFloat16) return WidenBfloat16(Read<uint16_t>(address));
  return Read<float>(address);
}

void StoreRounded(DType dtype, std::byte* address, float value) {
  const uint16_t bits = dtype == DType::kFloat16 ? NarrowHalf(value) : NarrowBfloat16(value);
  std::memcpy(address, &bits, sizeof(bits));
}

bool IsPresent(const TensorView& view) { return view.data != nullptr; }

// One head.

// Head `head` of the packed row of token `sequence` of batch entry `batch`.
struct HeadPosition {
  int64_t batch;
  int64_t sequence;
  int64_t token;  // over the whole batch
  int64_t head;   // of the packed row
};

// The int32 element x of channel `h` of the packed row.
float Dequantise(const Problem& p, int32_t x, int64_t token, int64_t h) {
  const bool has_bias = IsPresent(p.bias);
  if (has_bias && p.bias.dtype == DType::kInt32) {
    const int32_t bias = Read<int32_t>(Element(p.bias, h));
    x = static_cast<int32_t>(static_cast<uint32_t>(x) + static_cast<uint32_t>(bias));
  }
  float y = static_cast<float>(x) * Read<float>(Element(p.weight_scale, h));
  if (IsPresent(p.token_scale)) y = y * Read<float>(Element(p.token_scale, token));
  if (has_bias && p.bias.dtype != DType::kInt32) {
    y = y + Widen(p.bias.dtype, Element(p.bias, h));
  }
  return y;
}

std::vector<float> LoadHead(const Problem& p, const HeadPosition& at) {
  std::vector<float> x(static_cast<size_t>(p.head_dim));
  for (int64_t d = 0; d < p.head_dim; ++d) {
    const std::byte* address = Element(p.x, {at.batch, at.sequence, at.head, d});
    x[static_cast<size_t>(d)] =
        p.x.dtype == DType::kInt32
            ? Dequantise(p, Read<int32_t>(address), at.token, at.head * p.head_dim + d)
            : Widen(p.x.dtype, address);
  }
  return x;
}

void Normalise(std::vector<float>& x, float epsilon) {
  float acc[16] = {};
  for (size_t i = 0; i < x.size(); ++i) acc[i % 16] = std::fma(x[i], x[i], acc[i % 16]);
  for (const size_t width : {8U, 4U, 2U, 1U}) {
    for (size_t l = 0; l < width; ++l) acc[l] = acc[l] + acc[l + width];
  }
  const float mean = acc[0] / static_cast<float>(x.size());
  const float root = std::sqrt(mean + epsilon);
  const float inv = 1.0F / root;
  for (float& value : x) value = value * inv;
}

// The four half-width coefficient rows of one token and part.
struct Coefficients {
  std::vector<float> cl, sl, ch, sh;
};

Coefficients MakeCoefficients(const Problem& p, const HeadPosition& at, const TensorView& gamma) {
  const auto cos = [&](int64_t d) {
    return Widen(p.cos.dtype, Element(p.cos, {at.batch, at.sequence, d}));
  };
  const auto sin = [&](int64_t d) {
    return Widen(p.sin.dtype, Element(p.sin, {at.batch, at.sequence, d}));
  };
  const auto scaled = [&](int64_t gamma_index, float factor) {
    if (!p.has_norm) return factor;
    return Widen(gamma.dtype, Element(gamma, gamma_index)) * factor;
  };
  const int64_t h = p.head_dim / 2;
  Coefficients c;
  for (int64_t j = 0; j < h; ++j) {
    c.cl.push_back(scaled(j, cos(j)));
    c.sl.push_back(scaled(j + h, sin(j)));
    c.ch.push_back(scaled(j + h, cos(j + h)));
    c.sh.push_back(scaled(j, sin(j + h)));
  }
  return c;
}

void Rotate(std::vector<float>& a, const Coefficients& c) {
  const size_t h = a.size() / 2;
  for (size_t j = 0; j < h; ++j) {
    const float lo = std::fma(a[j], c.cl[j], -(a[j + h] * c.sl[j]));
    const float hi = std::fma(a[j + h], c.ch[j], a[j] * c.sh[j]);
    a[j] = lo;
    a[j + h] = hi;
  }
}

// Sinks.

// A finished head: its values, and where its bits came from if nothing was computed.
struct Head {
  HeadPosition at;
  int64_t head;  // within its part
  std::vector<float> y;
  bool is_copy;  // v: stored bit for bit where the types are equal
};

void Store16(const Problem& p, const Head& head, int64_t d, DType dtype, std::byte* address) {
  if (head.is_copy && p.x.dtype == dtype) {
    const HeadPosition& at = head.at;
    std::memcpy(address, Element(p.x, {at.batch, at.sequence, at.head, d}), sizeof(uint16_t));
  } else {
    StoreRounded(dtype, address, head.y[static_cast<size_t>(d)]);
  }
}

void StoreDense(const Problem& p, const Head& head, const TensorView& out) {
  if (!IsPresent(out)) return;
  for (int64_t d = 0; d < p.head_dim; ++d) {
    std::byte* address = Element(out, {head.at.batch, head.at.sequence, head.head, d});
    Store16(p, head, d, out.dtype, address);
  }
}

int8_t Quantise(const Cache& cache, int64_t channel, float y) {
  float z = y / Read<float>(Element(cache.scale, channel));
  if (IsPresent(cache.offset)) z = z + Read<float>(Element(cache.offset, channel));
  return NarrowToCode(z);
}

CacheRow RowOf(const Problem& p, const HeadPosition& at) {
  const bool per_token = p.slot_rule == SlotRule::kPerToken;
  const std::byte* address = Element(p.slots, per_token ? at.token : at.batch);
  const int64_t slot =
      p.slots.dtype == DType::kInt64 ? Read<int64_t>(address) : int64_t{Read<int32_t>(address)};
  if (!per_token) return {at.batch, slot + at.sequence};
  if (slot < 0) return {-1, -1};
  const bool is_pa_nz = p.cache_order == CacheOrder::kPaNz;
  const int64_t block_size = p.k_cache.data.shape.dims[is_pa_nz ? 2 : 1];
  return {slot / block_size, slot % block_size};
}

std::byte* CacheElement(const Problem& p, const TensorView& cache, CacheRow to, int64_t channel) {
  if (p.cache_order == CacheOrder::kPaNz) {
    const int64_t chunk = cache.shape.dims[3];
    return Element(cache, {to.block, channel / chunk, to.row, channel % chunk});
  }
  return Element(cache, {to.block, to.row, channel / p.head_dim, channel % p.head_dim});
}

void StoreCache(const Problem& p, const Head& head, const Cache& cache) {
  if (!IsPresent(cache.data)) return;
  const CacheRow to = RowOf(p, head.at);
  if (to.block < 0) return;
  for (int64_t d = 0; d < p.head_dim; ++d) {
    const int64_t channel = head.head * p.head_dim + d;
    std::byte* address = CacheElement(p, cache.data, to, channel);
    if (cache.data.dtype == DType::kInt8) {
      const int8_t code = Quantise(cache, channel, head.y[static_cast<size_t>(d)]);
      std::memcpy(address, &code, sizeof(code));
    } else {
      Store16(p, head, d, cache.data.dtype, address);
    }
  }
}

// Both operators.

// q or k: [dequantise], [norm], rotate.
Head RotatedHead(const Problem& p, HeadPosition at, int64_t head, const Coefficients& c) {
  std::vector<float> a = LoadHead(p, at);
  if (p.has_norm) Normalise(a, static_cast<float>(p.epsilon));
  Rotate(a, c);
  return {at, head, a, /*is_copy=*/false};
}

void RunToken(const Problem& p, int64_t token) {
  HeadPosition at{token / p.sequence, token % p.sequence, token, 0};
  const Coefficients q_coefficients = MakeCoefficients(p, at, p.q_gamma);
  for (int64_t head = 0; head < p.q_heads; ++head, ++at.head) {
    const Head q = RotatedHead(p, at, head, q_coefficients);
    StoreDense(p, q, p.q_out);
    StoreDense(p, q, p.q_before_quant);
  }
  const Coefficients k_coefficients = MakeCoefficients(p, at, p.k_gamma);
  for (int64_t head = 0; head < p.k_heads; ++head, ++at.head) {
    const Head k = RotatedHead(p, at, head, k_coefficients);
    StoreDense(p, k, p.k_out);
    StoreCache(p, k, p.k_cache);
  }
  for (int64_t head = 0; head < p.v_heads; ++head, ++at.head) {
    const Head v{at, head, LoadHead(p, at), /*is_copy=*/true};
    StoreDense(p, v, p.v_out);
    StoreCache(p, v, p.v_cache);
  }
}

}  // namespace

void RunExact(const Problem& problem) { RunExact(problem, 0, problem.tokens()); }

void RunExact(const Problem& problem, int64_t token_begin, int64_t token_end) {
  for (int64_t token = token_begin; token < token_end; ++token) RunToken(problem, token);
}

}  // namespace qkvfuse::reference
