// The definition of the operators: every operation of docs/numerics.md in its written order, one
// element at a time. Compiled without contraction: std::fma stands where a fused multiply-add is
// meant, and nowhere else is there one.
#include "reference/exact.h"

#include <cmath>
#include <cstring>
#include <initializer_list>
#include <vector>

#include "reference/conversions.h"
#include "reference/places.h"

namespace qkvfuse::reference {
namespace {

float Widen(DType dtype, const std::byte* address) {
  if (dtype == DType::kFloat16) return WidenHalf(Read<uint16_t>(address));
  if (dtype == DType::kBFloat16) return WidenBfloat16(Read<uint16_t>(address));
  return Read<float>(address);
}

void StoreRounded(DType dtype, std::byte* address, float value) {
  if (dtype == DType::kFloat32) {
    std::memcpy(address, &value, sizeof(value));
    return;
  }
  const uint16_t bits = dtype == DType::kFloat16 ? NarrowHalf(value) : NarrowBfloat16(value);
  std::memcpy(address, &bits, sizeof(bits));
}

// One head.

// The int32 element x of channel `h` of the packed row.
float Dequantise(const FusedProblem& p, int32_t x, int64_t token, int64_t h) {
  if (IsPresent(p.bias) && p.bias.dtype == DType::kInt32) {
    const int32_t bias = Read<int32_t>(Element(p.bias, h));
    x = static_cast<int32_t>(static_cast<uint32_t>(x) + static_cast<uint32_t>(bias));
  }
  float y = static_cast<float>(x) * Read<float>(Element(p.weight_scale, h));
  if (IsPresent(p.token_scale)) y = y * Read<float>(Element(p.token_scale, token));
  return y;
}

std::vector<float> LoadHead(const FusedProblem& p, const FusedPart& part, const HeadPosition& at) {
  std::vector<float> x(static_cast<size_t>(part.head_dim()));
  for (int64_t d = 0; d < part.head_dim(); ++d) {
    const std::byte* address = Element(part.x, {at.batch, at.sequence, at.head, d});
    const int64_t h = part.first_channel + at.head * part.head_dim() + d;
    float y = part.x.dtype == DType::kInt32 ? Dequantise(p, Read<int32_t>(address), at.token, h)
                                            : Widen(part.x.dtype, address);
    if (IsPresent(p.bias) && p.bias.dtype != DType::kInt32) {
      y = y + Widen(p.bias.dtype, Element(p.bias, h));
    }
    x[static_cast<size_t>(d)] = y;
  }
  return x;
}

float SumOfSquares(const std::vector<float>& x) {
  float acc[16] = {};
  for (size_t i = 0; i < x.size(); ++i) acc[i % 16] = std::fma(x[i], x[i], acc[i % 16]);
  for (const size_t width : {8U, 4U, 2U, 1U}) {
    for (size_t l = 0; l < width; ++l) acc[l] = acc[l] + acc[l + width];
  }
  return acc[0];
}

// The weight of channel d of a head; 1 where there is none, which changes no product.
float WeightOf(const FusedPart& part, int64_t head, int64_t d) {
  if (!IsPresent(part.gamma)) return 1.0F;
  const int64_t place = part.is_full_width ? head * part.head_dim() + d : d;
  const float gamma = Widen(part.gamma.dtype, Element(part.gamma, place));
  return part.gamma_is_one_plus ? 1.0F + gamma : gamma;
}

// The entry of a table for one channel of pair j.
float TableEntry(const FusedRope& rope, const TensorView& table, const HeadPosition& at, int64_t j,
                 bool is_hi) {
  int64_t entry = j;
  if (!rope.half_width) {
    entry = rope.is_interleaved ? 2 * j + (is_hi ? 1 : 0) : j + (is_hi ? rope.rotary_dim / 2 : 0);
  }
  if (!IsPresent(rope.positions)) {
    return Widen(table.dtype, Element(table, {at.batch, at.sequence, entry}));
  }
  const bool has_sections = !rope.section.empty();
  const int64_t section = has_sections ? rope.section[static_cast<size_t>(j)] : 0;
  const std::byte* address = has_sections ? Element(rope.positions, {section, at.token})
                                          : Element(rope.positions, {at.token});
  const int64_t position = rope.positions.dtype == DType::kInt64 ? Read<int64_t>(address)
                                                                 : int64_t{Read<int32_t>(address)};
  return Widen(table.dtype, Element(table, {position, entry}));
}

// The coefficients of the pairs of one token and head.
struct Coefficients {
  std::vector<float> cl, sl, ch, sh;
};

int64_t LoChannel(const FusedRope& rope, int64_t j) {
  return rope.first_channel + (rope.is_interleaved ? 2 * j : j);
}

int64_t HiChannel(const FusedRope& rope, int64_t j) {
  return rope.first_channel + (rope.is_interleaved ? 2 * j + 1 : j + rope.rotary_dim / 2);
}

Coefficients MakeCoefficients(const FusedProblem& p, const FusedPart& part,
                              const HeadPosition& at) {
  Coefficients c;
  const FusedRope& rope = p.rope;
  const bool has_weight = part.has_norm && !p.norm_after_rope;
  const auto weight = [&](int64_t d) { return has_weight ? WeightOf(part, at.head, d) : 1.0F; };
  for (int64_t j = 0; part.has_rope && j < rope.rotary_dim / 2; ++j) {
    const float lo = weight(LoChannel(rope, j));
    const float hi = weight(HiChannel(rope, j));
    c.cl.push_back(lo * TableEntry(rope, rope.cos, at, j, false));
    c.sl.push_back(hi * TableEntry(rope, rope.sin, at, j, false));
    c.ch.push_back(hi * TableEntry(rope, rope.cos, at, j, true));
    c.sh.push_back(lo * TableEntry(rope, rope.sin, at, j, true));
  }
  return c;
}

void Rotate(const FusedRope& rope, const Coefficients& c, std::vector<float>& a) {
  for (size_t j = 0; j < c.cl.size(); ++j) {
    float& lo = a[static_cast<size_t>(LoChannel(rope, static_cast<int64_t>(j)))];
    float& hi = a[static_cast<size_t>(HiChannel(rope, static_cast<int64_t>(j)))];
    const float y_lo = std::fma(lo, c.cl[j], -(hi * c.sl[j]));
    const float y_hi = std::fma(hi, c.ch[j], lo * c.sh[j]);
    lo = y_lo;
    hi = y_hi;
  }
}

bool IsRotated(const FusedProblem& p, const FusedPart& part, int64_t d) {
  return part.has_rope && d >= p.rope.first_channel && d < p.rope.first_channel + p.rope.rotary_dim;
}

bool NormsAfterRope(const FusedProblem& p, const FusedPart& part) {
  return p.norm_after_rope && part.has_rope;
}

// Head after head of one token and part, with what does not change between them.
class Heads {
 public:
  Heads(const FusedProblem& p, const FusedPart& part, const HeadPosition& first)
      : p_(p), part_(part), shared_(MakeCoefficients(p, part, first)) {
    if (part.has_norm && part.is_full_width) inverse_ = FullWidthInverse(first);
  }

  // From its source to the value y of every channel.
  [[nodiscard]] std::vector<float> Finish(const HeadPosition& at) const {
    std::vector<float> y = LoadHead(p_, part_, at);
    const bool norms_after = NormsAfterRope(p_, part_);
    if (norms_after) RotateHead(at, y);
    if (part_.has_norm) {
      const float inverse = part_.is_full_width ? inverse_ : Inverse(SumOfSquares(y), 1);
      for (float& value : y) value = value * inverse;
    }
    if (!norms_after) RotateHead(at, y);
    for (int64_t d = 0; part_.has_norm && d < part_.head_dim(); ++d) {
      if (!norms_after && IsRotated(p_, part_, d)) continue;  // the coefficients have the weight
      float& value = y[static_cast<size_t>(d)];
      value = value * WeightOf(part_, at.head, d);
    }
    return y;
  }

  // The sum of squares that a norm takes of a head.
  [[nodiscard]] float Measure(const HeadPosition& at) const {
    std::vector<float> x = LoadHead(p_, part_, at);
    if (NormsAfterRope(p_, part_)) RotateHead(at, x);
    return SumOfSquares(x);
  }

 private:
  void RotateHead(const HeadPosition& at, std::vector<float>& a) const {
    // A full-width weight differs from head to head.
    if (part_.is_full_width) return Rotate(p_.rope, MakeCoefficients(p_, part_, at), a);
    Rotate(p_.rope, shared_, a);
  }

  [[nodiscard]] float Inverse(float sum, int64_t heads) const {
    const float mean = sum / static_cast<float>(heads * part_.head_dim());
    const float root = std::sqrt(mean + static_cast<float>(p_.epsilon));
    return 1.0F / root;
  }

  [[nodiscard]] float FullWidthInverse(HeadPosition at) const {
    const bool is_gathered = IsPresent(part_.sums);
    const int64_t heads = is_gathered ? part_.sums.shape.dims[1] : part_.heads();
    float sum = 0.0F;
    for (at.head = 0; at.head < heads; ++at.head) {
      const float of_head =
          is_gathered ? Read<float>(Element(part_.sums, {at.token, at.head})) : Measure(at);
      sum = at.head == 0 ? of_head : sum + of_head;
    }
    return Inverse(sum, heads);
  }

  const FusedProblem& p_;
  const FusedPart& part_;
  Coefficients shared_;
  float inverse_ = 1.0F;
};

// Sinks.

// A finished head: its values, and where its bits came from if nothing was computed.
struct Head {
  const FusedPart& part;
  HeadPosition at;
  std::vector<float> y;
  bool is_copy;  // stored bit for bit where the types are equal
};

float DynamicScale(const Head& head, DType dtype) {
  float amax = 0.0F;
  for (const float y : head.y) {
    if (std::fabs(y) > amax) amax = std::fabs(y);
  }
  return amax / LargestCode(dtype);
}

// The code of channel d; `dynamic` is the head's own scale.
uint8_t CodeOf(const Head& head, const FusedOutput& to, int64_t d, float dynamic) {
  const float y = head.y[static_cast<size_t>(d)];
  float z = 0.0F;
  if (to.rule == CodeRule::kDynamic) {
    if (dynamic == 0.0F) return 0;
    z = y / dynamic;
  } else {
    const int64_t place = head.at.head * head.part.head_dim() + d;
    const float scale = Read<float>(Element(to.scale, place));
    z = to.rule == CodeRule::kMultiply ? y * scale : y / scale;
    if (IsPresent(to.offset)) z = z + Read<float>(Element(to.offset, place));
  }
  if (to.data.dtype == DType::kInt8) return static_cast<uint8_t>(NarrowToCode(z));
  return NarrowToFloat8(to.data.dtype, z);
}

void StoreElement(const Head& head, const FusedOutput& to, int64_t d, float dynamic,
                  std::byte* address) {
  if (IsQuantised(to.data.dtype)) {
    const uint8_t code = CodeOf(head, to, d, dynamic);
    std::memcpy(address, &code, sizeof(code));
  } else if (head.is_copy && head.part.x.dtype == to.data.dtype) {
    const HeadPosition& at = head.at;
    std::memcpy(address, Element(head.part.x, {at.batch, at.sequence, at.head, d}),
                static_cast<size_t>(SizeOf(to.data.dtype)));
  } else {
    StoreRounded(to.data.dtype, address, head.y[static_cast<size_t>(d)]);
  }
}

void StoreDense(const Head& head, const FusedOutput& to) {
  if (!IsPresent(to.data)) return;
  const HeadPosition& at = head.at;
  float dynamic = 0.0F;
  if (to.rule == CodeRule::kDynamic) {
    dynamic = DynamicScale(head, to.data.dtype);
    std::memcpy(Element(to.scales, {at.batch, at.sequence, at.head}), &dynamic, sizeof(dynamic));
  }
  for (int64_t d = 0; d < head.part.head_dim(); ++d) {
    StoreElement(head, to, d, dynamic, Element(to.data, {at.batch, at.sequence, at.head, d}));
  }
}

void StoreCache(const FusedProblem& p, const Head& head, const FusedOutput& cache) {
  if (!IsPresent(cache.data)) return;
  const CacheRow to = RowOf(p, head.at);
  if (to.block < 0) return;
  float dynamic = 0.0F;
  if (cache.rule == CodeRule::kDynamic) {
    dynamic = DynamicScale(head, cache.data.dtype);
    std::memcpy(Element(cache.scales, {to.block, to.row, head.at.head}), &dynamic, sizeof(dynamic));
  }
  const int64_t head_dim = head.part.head_dim();
  for (int64_t d = 0; d < head_dim; ++d) {
    StoreElement(head, cache, d, dynamic, CacheElement(cache, head_dim, to, head.at.head, d));
  }
}

void ZeroRow(const FusedPart& part, CacheRow row) {
  const FusedOutput& cache = part.cache;
  for (int64_t head = 0; head < part.heads(); ++head) {
    for (int64_t d = 0; d < part.head_dim(); ++d) {
      std::memset(CacheElement(cache, part.head_dim(), row, head, d), 0,
                  static_cast<size_t>(SizeOf(cache.data.dtype)));
    }
    if (cache.rule != CodeRule::kDynamic) continue;
    std::memset(Element(cache.scales, {row.block, row.row, head}), 0, sizeof(float));
  }
}

// The rows of a sequence's last page that it does not use.
void ZeroUnusedRows(const FusedProblem& p, int64_t token) {
  const int64_t b = SequenceOf(p, token);
  if (ReadIndex(p.row_offsets, b + 1) != token + 1) return;
  for (int64_t row = ReadIndex(p.lengths, b); row % p.block_size != 0; ++row) {
    for (const FusedPart& part : p.parts) {
      if (IsPresent(part.cache.data)) ZeroRow(part, PageRow(p, b, row));
    }
  }
}

void RunHead(const FusedProblem& p, const FusedPart& part, const Heads& heads,
             const HeadPosition& at) {
  if (IsPresent(part.head_sums)) {
    const float sum = heads.Measure(at);
    std::memcpy(Element(part.head_sums, {at.token, at.head}), &sum, sizeof(sum));
    return;
  }
  const bool is_copy = !part.has_norm && !part.has_rope && !IsPresent(p.bias);
  const Head head{part, at, heads.Finish(at), is_copy};
  for (const FusedOutput& dense : part.dense) StoreDense(head, dense);
  StoreCache(p, head, part.cache);
}

void RunToken(const FusedProblem& p, int64_t token) {
  for (const FusedPart& part : p.parts) {
    if (!IsPresent(part.x)) continue;
    HeadPosition at{token / p.sequence, token % p.sequence, token, 0};
    const Heads heads(p, part, at);
    for (; at.head < part.heads(); ++at.head) RunHead(p, part, heads, at);
  }
  if (p.zeroes_unused_rows) ZeroUnusedRows(p, token);
}

}  // namespace

void RunExact(const FusedProblem& problem) {
  for (int64_t token = 0; token < problem.tokens(); ++token) RunToken(problem, token);
}

void RunExact(const Problem& problem) { RunExact(problem, 0, problem.tokens()); }

void RunExact(const Problem& problem, int64_t token_begin, int64_t token_end) {
  const FusedProblem general = Generalise(problem);
  for (int64_t token = token_begin; token < token_end; ++token) RunToken(general, token);
}

}  // namespace qkvfuse::reference
