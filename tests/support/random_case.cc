// Every option is drawn by itself; what contradicts itself is drawn again.
#include "tests/support/random_case.h"

#include <random>

#include "tests/support/draw.h"

namespace qkvfuse::testing {
namespace {

using cases::Case;
using cases::StridePattern;
using cases::TensorId;

constexpr HeadCounts kHeads[] = {{1, 1, 1}, {8, 1, 1}, {4, 2, 2}, {3, 2, 2}, {16, 4, 4}, {5, 5, 5}};
constexpr int64_t kHeadDims[] = {2, 4, 6, 16, 18, 32, 46, 48, 64, 64, 80, 96, 112, 128, 128, 144};
constexpr int64_t kBlockSizes[] = {1, 3, 7, 16, 32, 128};
constexpr double kEpsilons[] = {0, 1e-6, 1e-5, 0.5};
constexpr DType kBiases[] = {DType::kFloat32, DType::kFloat16, DType::kBFloat16, DType::kInt32};

cases::CacheCase DrawCache(Draw& draw, const Case& c) {
  if (c.is_qnr() && draw.OneIn(3)) return {c.dtype, false};
  return {DType::kInt8, draw.OneIn(2)};
}

void DrawOperator(Draw& draw, Case& c) {
  c.op = draw.EnumUpTo(cases::Operator::kDequantRopeQuantKvcache);
  c.dtype = draw.OneIn(2) ? DType::kFloat16 : DType::kBFloat16;
  c.x_dtype = !c.is_qnr() && !draw.OneIn(4) ? DType::kInt32 : c.dtype;
  if (c.x_dtype == DType::kInt32) {
    c.token_scale = draw.OneIn(2);
    if (!draw.OneIn(5)) c.bias = draw.OneOf(kBiases);
  }
  c.k_cache = DrawCache(draw, c);
  c.v_cache = DrawCache(draw, c);
  c.dense_kv = draw.OneIn(2);
  c.epsilon = draw.OneOf(kEpsilons);
}

void DrawSizes(Draw& draw, Case& c) {
  c.heads = draw.OneOf(kHeads);
  c.head_dim = draw.OneOf(kHeadDims);
  c.tokens = draw.OneIn(2) ? TokenCount(draw.Below(20)) : TokenCount(draw.Below(5), draw.Below(7));
  c.layout = draw.EnumUpTo(cases::Layout::kContiguous);
  c.block_size = draw.OneOf(kBlockSizes);
}

void DrawSlots(Draw& draw, Case& c) {
  c.slot_mode = draw.EnumUpTo(SlotMode::kStartPerSequence);
  c.slots = draw.EnumUpTo(cases::SlotPattern::kSkipped);
  c.slot_dtype = draw.OneIn(2) ? DType::kInt32 : DType::kInt64;
  c.strict = c.slots != cases::SlotPattern::kRepeated && draw.OneIn(2);
  c.data = draw.EnumUpTo(cases::DataKind::kTies);
  c.seed = draw.Seed();
}

void DrawPlaces(Draw& draw, Case& c) {
  c.interleaved = draw.OneIn(5);
  const bool may_be_in_place = c.x_dtype == c.dtype && draw.OneIn(4);
  if (may_be_in_place) {
    c.in_place = {draw.OneIn(2), c.dense_kv && draw.OneIn(2), c.dense_kv && draw.OneIn(2)};
  }
  for (size_t i = 0; i < cases::kTensorCount; ++i) {
    const auto id = static_cast<TensorId>(i);
    if (cases::Has(c, id) && draw.OneIn(4)) c.stride(id) = draw.EnumUpTo(StridePattern::kLonger);
  }
  if (c.interleaved) c.stride(TensorId::kVCache) = c.stride(TensorId::kKCache);
}

}  // namespace

std::optional<Case> DrawCase(const std::function<uint64_t()>& numbers) {
  Draw draw(numbers);
  Case c;
  DrawOperator(draw, c);
  DrawSizes(draw, c);
  DrawSlots(draw, c);
  DrawPlaces(draw, c);
  if (!cases::Validate(c).ok()) return std::nullopt;
  return c;
}

namespace {

Case FirstValid(uint64_t seed,
                std::optional<Case> (*draw)(const std::function<uint64_t()>& numbers)) {
  std::mt19937_64 engine(seed);
  while (true) {
    if (const auto c = draw([&engine] { return engine() >> 32; })) return *c;
  }
}

}  // namespace

Case RandomCase(uint64_t seed) { return FirstValid(seed, &DrawCase); }

Case RandomFusedCase(uint64_t seed) { return FirstValid(seed, &DrawFusedCase); }

}  // namespace qkvfuse::testing
