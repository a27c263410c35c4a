// op=fused: every option of the general operator is drawn by itself; what contradicts itself, or
// what the library refuses, is drawn again.
#include "tests/support/draw.h"
#include "tests/support/random_case.h"

namespace qkvfuse::testing {
namespace {

using cases::CacheCase;
using cases::Case;
using cases::FusedCase;
using cases::StridePattern;
using cases::TensorId;

constexpr HeadCounts kHeads[] = {{1, 1, 1}, {8, 1, 1}, {4, 2, 2}, {3, 2, 2}, {16, 4, 4}, {5, 5, 5}};
constexpr int64_t kHeadDims[] = {2, 6, 16, 18, 32, 46, 64, 64, 80, 96, 128, 128, 144, 256};
constexpr int64_t kRotaryDims[] = {2, 4, 6, 14, 16, 32, 48, 64, 96};
constexpr int64_t kBlockSizes[] = {1, 3, 8, 16, 32};
constexpr double kEpsilons[] = {0, 1e-6, 0.5};
constexpr DType kFloats[] = {DType::kFloat32, DType::kFloat16, DType::kBFloat16};
constexpr DType kXTypes[] = {DType::kFloat32, DType::kFloat16, DType::kBFloat16, DType::kBFloat16,
                             DType::kInt32};
constexpr DType kOutputs[] = {DType::kFloat32,    DType::kFloat16,   DType::kBFloat16,
                              DType::kInt8,       DType::kInt8,      DType::kInt8,
                              DType::kFloat8E4M3, DType::kFloat8E5M2};
constexpr DType kBiases[] = {DType::kFloat32, DType::kFloat16, DType::kBFloat16, DType::kInt32};

// A type that goes with x: fp32, or x's own; of an int32 x any.
DType WithX(Draw& draw, DType x) {
  if (x == DType::kInt32) return draw.OneOf(kFloats);
  return draw.OneIn(2) ? DType::kFloat32 : x;
}

CacheCase DrawOutput(Draw& draw) {
  CacheCase output;
  output.dtype = draw.OneOf(kOutputs);
  if (!IsQuantised(output.dtype)) return output;
  output.rule = draw.EnumUpTo(ScaleRule::kDynamic);
  if (output.is_dynamic()) return output;
  output.granularity = draw.EnumUpTo(ScaleGranularity::kTensor);
  output.has_offset = output.dtype == DType::kInt8 && draw.OneIn(3);
  return output;
}

void DrawTypes(Draw& draw, Case& c) {
  FusedCase& f = c.fused;
  c.x_dtype = draw.OneOf(kXTypes);
  c.dtype = c.x_dtype == DType::kInt32 ? DType::kBFloat16 : c.x_dtype;
  const bool is_int32 = c.x_dtype == DType::kInt32;
  c.token_scale = is_int32 && draw.OneIn(2);
  if (draw.OneIn(3)) c.bias = is_int32 ? draw.OneOf(kBiases) : WithX(draw, c.x_dtype);
  f.gamma_dtype = WithX(draw, c.x_dtype);
  f.table_dtype = WithX(draw, c.x_dtype);
  f.q_out = draw.OneIn(2) ? CacheCase{c.dtype} : DrawOutput(draw);
  c.k_cache = draw.OneIn(4) ? CacheCase{c.dtype} : DrawOutput(draw);
  c.v_cache = draw.OneIn(4) ? CacheCase{c.dtype} : DrawOutput(draw);
  f.dense_dtype = draw.OneIn(2) ? c.dtype : draw.OneOf(kFloats);
  c.dense_kv = draw.OneIn(2);
}

void DrawSizes(Draw& draw, Case& c) {
  c.heads = draw.OneOf(kHeads);
  c.head_dim = draw.OneOf(kHeadDims);
  if (draw.OneIn(4)) c.fused.v_head_dim = draw.OneOf(kHeadDims);
  c.fused.is_separate = draw.OneIn(3);
  c.tokens = draw.OneIn(2) ? TokenCount(draw.Below(20)) : TokenCount(draw.Below(5), draw.Below(7));
  c.layout = draw.EnumUpTo(cases::Layout::kShuffled);
  c.block_size = draw.OneOf(kBlockSizes);
}

void DrawNorm(Draw& draw, Case& c) {
  FusedCase& f = c.fused;
  f.q_norm = draw.EnumUpTo(NormSpec::Kind::kFullWidth);
  f.k_norm = draw.OneIn(2) ? f.q_norm : draw.EnumUpTo(NormSpec::Kind::kFullWidth);
  if (draw.OneIn(3)) f.v_norm = draw.EnumUpTo(NormSpec::Kind::kFullWidth);
  f.gamma = draw.EnumUpTo(NormSpec::Gamma::kNone);
  c.epsilon = draw.OneOf(kEpsilons);
  const bool norms_qk = f.q_norm != NormSpec::Kind::kNone || f.k_norm != NormSpec::Kind::kNone;
  if (norms_qk && f.rope != RopeSpec::Pairing::kNone) {
    f.norm_order = draw.EnumUpTo(NormOrder::kAfterRope);
  }
  const bool is_wide =
      f.q_norm == NormSpec::Kind::kFullWidth || f.k_norm == NormSpec::Kind::kFullWidth;
  if (is_wide && draw.OneIn(3)) {
    f.gathered_heads = c.heads.q + draw.Below(20);
    f.measures = draw.OneIn(2);
  }
}

void DrawRope(Draw& draw, Case& c) {
  FusedCase& f = c.fused;
  f.rope = draw.OneIn(5)
               ? RopeSpec::Pairing::kNone
               : (draw.OneIn(3) ? RopeSpec::Pairing::kInterleaved : RopeSpec::Pairing::kHalves);
  if (f.rope == RopeSpec::Pairing::kNone) return;
  if (draw.OneIn(3)) {
    f.rotary_dim = draw.OneOf(kRotaryDims);
    f.rotates_last = draw.OneIn(2) && f.rotary_dim != c.head_dim;
  }
  f.table = draw.EnumUpTo(RopeSpec::Table::kJoined);
  f.half_width = f.table != RopeSpec::Table::kJoined && draw.OneIn(2);
  f.max_positions = 1 + draw.Below(40);
  if (f.table == RopeSpec::Table::kRowPerToken) return;
  f.position_dtype = draw.OneIn(2) ? DType::kInt32 : DType::kInt64;
  if (draw.OneIn(3)) {
    f.sections = draw.EnumUpTo(RopeSpec::Sections::kInterleaved);
  }
}

void DrawSlots(Draw& draw, Case& c) {
  c.fused.has_caches = !c.fused.measures && !draw.OneIn(8);
  c.slot_mode = draw.EnumUpTo(SlotMode::kPageTable);
  c.slots = draw.EnumUpTo(cases::SlotPattern::kSkipped);
  c.slot_dtype = draw.OneIn(2) ? DType::kInt32 : DType::kInt64;
  c.fused.sequences = 1 + draw.Below(5);
  c.fused.zeroes_unused_rows = c.slot_mode == SlotMode::kPageTable && draw.OneIn(2);
  if (!c.fused.has_caches) c.slot_mode = SlotMode::kSlotPerToken;
  if (c.is_ragged()) c.tokens = TokenCount(c.tokens.total());
  c.strict = c.slots != cases::SlotPattern::kRepeated && draw.OneIn(2);
  c.data = draw.EnumUpTo(cases::DataKind::kTies);
  c.seed = draw.Seed();
}

void DrawPlaces(Draw& draw, Case& c) {
  c.interleaved = c.fused.has_caches && draw.OneIn(8);
  // Heads that nothing happens to are in place already.
  if (c.fused.rope != RopeSpec::Pairing::kNone && draw.OneIn(6)) {
    c.in_place = {draw.OneIn(2), c.dense_kv && draw.OneIn(2), c.dense_kv && draw.OneIn(2)};
  }
  for (size_t i = 0; i < cases::kTensorCount; ++i) {
    const auto id = static_cast<TensorId>(i);
    if (cases::Has(c, id) && draw.OneIn(4)) c.stride(id) = draw.EnumUpTo(StridePattern::kLonger);
  }
  if (c.interleaved) c.stride(TensorId::kVCache) = c.stride(TensorId::kKCache);
}

}  // namespace

std::optional<Case> DrawFusedCase(const std::function<uint64_t()>& numbers) {
  Draw draw(numbers);
  Case c;
  c.op = cases::Operator::kFusedQkv;
  DrawTypes(draw, c);
  DrawSizes(draw, c);
  DrawRope(draw, c);
  DrawNorm(draw, c);
  DrawSlots(draw, c);
  DrawPlaces(draw, c);
  if (c.rotary_dim() > c.head_dim || !cases::Validate(c).ok()) return std::nullopt;
  return c;
}

}  // namespace qkvfuse::testing
