// Every refusal of MakePlan and MakeMeasurePlan for FusedQkvSpec.
#include "tests/contract/refusals.h"

namespace qkvfuse::testing {
namespace {

using C = Call<Fused>;
using Pairing = RopeSpec::Pairing;
using Sections = RopeSpec::Sections;
using Table = RopeSpec::Table;

/// A row; the sentence is compared whole with that in tests/support/sentences.txt.
Refusal<Fused> Row(const char* name, std::function<void(C&)> break_it, StatusCode code = kInvalid) {
  return {name, Phase::kMakePlan, code, {}, std::move(break_it)};
}

template <typename E>
E Unknown(int value) {
  return static_cast<E>(value);
}

constexpr char kLine[] =
    "op=fused dtype=bf16 heads=4/2 head_dim=64 tokens=8 k_cache=int8+offset v_cache=16bit "
    "layout=paged block_size=16 kv_output=1";

TEST(Contract, FusedSource) {
  ExpectAllRefused<Fused>(
      kLine,
      {Row("x of int8", [](C& c) { c.spec.x_dtype = DType::kInt8; }),
       Row("token scale of bf16", [](C& c) { c.spec.has_token_scale = true; }),
       Row("weight scale of bf16",
           [](C& c) { c.spec.weight_scale_shape = StridedShape::Contiguous({512}); }),
       Row("token scale's shape",
           [](C& c) { c.spec.token_scale_shape = StridedShape::Contiguous({8}); }),
       Row("shape without bias", [](C& c) { c.spec.bias_shape = StridedShape::Contiguous({512}); }),
       Row("bias of another type", [](C& c) { c.spec.bias = DType::kFloat16; }),
       Row("int32 bias of bf16", [](C& c) { c.spec.bias = DType::kInt32; }),
       Row("bias too short",
           [](C& c) {
             c.spec.bias = DType::kBFloat16;
             c.spec.bias_shape = StridedShape::Contiguous({511});
           }),
       Row("v_head_dim odd", [](C& c) { c.spec.v_head_dim = 31; }),
       Row("v_head_dim too large", [](C& c) { c.spec.v_head_dim = 1026; }),
       Row("strides of q in packed rows", [](C& c) { c.spec.q_strides.emplace(); }),
       Row("strides of k in packed rows", [](C& c) { c.spec.k_strides.emplace(); }),
       Row("strides of v in packed rows", [](C& c) { c.spec.v_strides.emplace(); }),
       Row("strides of x beside q, k and v",
           [](C& c) {
             c.spec.is_separate = true;
             c.spec.x_strides = TokenStrides{TokenStrides::kFollows, 512, 64, 1};
           }),
       Row("gaps between heads of two sizes", [](C& c) {
         c.spec.v_head_dim = 32;
         c.spec.x_strides = TokenStrides{TokenStrides::kFollows, 1024, 65, 1};
       })});
}

TEST(Contract, FusedNorm) {
  ExpectAllRefused<Fused>(
      kLine,
      {Row("norm kind", [](C& c) { c.spec.q_norm.kind = Unknown<NormSpec::Kind>(3); }),
       Row("gamma", [](C& c) { c.spec.k_norm.gamma = Unknown<NormSpec::Gamma>(7); }),
       Row("gamma without norm",
           [](C& c) { c.spec.v_norm.gamma_shape = StridedShape::Contiguous({64}); }),
       Row("one plus without norm", [](C& c) { c.spec.v_norm.gamma = NormSpec::Gamma::kOnePlus; }),
       Row("gamma's type without norm", [](C& c) { c.spec.v_norm.gamma_dtype = DType::kFloat32; }),
       Row("type of no gamma", [](C& c) { c.spec.q_norm.gamma = NormSpec::Gamma::kNone; }),
       Row("norms of nothing",
           [](C& c) {
             c.spec.k_out.reset();
             c.spec.v_out.reset();
             c.spec.k_cache.reset();
             c.spec.v_cache.reset();
           }),
       Row("epsilon without norm",
           [](C& c) {
             c.spec.q_norm = c.spec.k_norm = NormSpec{};
             c.spec.epsilon = 1e-5;
           }),
       Row("heads without norm", [](C& c) { c.spec.v_norm.total_heads = 4; }),
       Row("shape of no gamma",
           [](C& c) {
             c.spec.q_norm.gamma = NormSpec::Gamma::kNone;
             c.spec.q_norm.gamma_dtype.reset();
             c.spec.q_norm.gamma_shape = StridedShape::Contiguous({64});
           }),
       Row("gamma of another type", [](C& c) { c.spec.q_norm.gamma_dtype = DType::kFloat16; }),
       Row("gamma too short",
           [](C& c) { c.spec.q_norm.gamma_shape = StridedShape::Contiguous({63}); }),
       Row("full-width gamma too short",
           [](C& c) {
             c.spec.k_norm.kind = NormSpec::Kind::kFullWidth;
             c.spec.k_norm.gamma_shape = StridedShape::Contiguous({2, 63});
           }),
       Row("gathered heads per head", [](C& c) { c.spec.q_norm.total_heads = 8; }),
       Row("fewer gathered heads than heads",
           [](C& c) {
             c.spec.q_norm.kind = NormSpec::Kind::kFullWidth;
             c.spec.q_norm.total_heads = 3;
           }),
       Row("too many gathered heads",
           [](C& c) {
             c.spec.q_norm.kind = NormSpec::Kind::kFullWidth;
             c.spec.q_norm.total_heads = int64_t{1} << 40;
           }),
       Row("gathered heads of v",
           [](C& c) {
             c.spec.v_norm.kind = NormSpec::Kind::kFullWidth;
             c.spec.v_norm.total_heads = 8;
           }),
       Row("norm order", [](C& c) { c.spec.norm_order = Unknown<NormOrder>(2); }),
       Row("norm after no rotation",
           [](C& c) {
             c.spec.norm_order = NormOrder::kAfterRope;
             c.spec.rope = RopeSpec{};
             c.spec.rope.pairing = Pairing::kNone;
           }),
       Row("no norm after the rotation",
           [](C& c) {
             c.spec.norm_order = NormOrder::kAfterRope;
             c.spec.q_norm = c.spec.k_norm = NormSpec{};
           }),
       Row("epsilon", [](C& c) { c.spec.epsilon = -1; })});
}

TEST(Contract, FusedRope) {
  ExpectAllRefused<Fused>(
      "op=fused dtype=bf16 heads=4/2 head_dim=64 tokens=8 k_cache=16bit v_cache=16bit layout=paged "
      "block_size=16 table=two sections=interleaved rope=interleaved",
      {Row("pairing", [](C& c) { c.spec.rope.pairing = Unknown<Pairing>(3); }),
       Row("rotary_dim odd", [](C& c) { c.spec.rope.rotary_dim = 31; }),
       Row("rotary_dim beyond the head", [](C& c) { c.spec.rope.rotary_dim = 66; }),
       Row("rotary_dim negative", [](C& c) { c.spec.rope.rotary_dim = -2; }),
       Row("rotary_dim without rotation",
           [](C& c) {
             c.spec.rope = RopeSpec{};
             c.spec.rope.pairing = Pairing::kNone;
             c.spec.rope.rotary_dim = 32;
           }),
       Row("tables without rotation", [](C& c) { c.spec.rope.pairing = Pairing::kNone; }),
       Row("table", [](C& c) { c.spec.rope.table = Unknown<Table>(3); }),
       Row("table of another type", [](C& c) { c.spec.rope.dtype = DType::kFloat16; }),
       Row("rotates the last of all channels", [](C& c) { c.spec.rope.rotates_last = true; }),
       Row("type of no table",
           [](C& c) {
             c.spec.rope = RopeSpec{};
             c.spec.rope.pairing = Pairing::kNone;
             c.spec.rope.dtype = DType::kFloat32;
           }),
       Row("type of positions of rows per token",
           [](C& c) {
             c.spec.rope = RopeSpec{};
             c.spec.rope.position_dtype = DType::kInt32;
           }),
       Row("stride of positions of rows per token",
           [](C& c) {
             c.spec.rope = RopeSpec{};
             c.spec.rope.position_stride = 2;
           }),
       Row("stride of sections without any",
           [](C& c) {
             c.spec.rope.sections = Sections::kNone;
             c.spec.rope.position_section_stride = 8;
           }),
       Row("half width of joined",
           [](C& c) {
             c.spec.rope.table = Table::kJoined;
             c.spec.rope.half_width = true;
           }),
       Row("sin of joined",
           [](C& c) {
             c.spec.rope.table = Table::kJoined;
             c.spec.rope.sin_strides.emplace();
           }),
       Row("positions of int8", [](C& c) { c.spec.rope.position_dtype = DType::kInt8; }),
       Row("positions of rows per token", [](C& c) { c.spec.rope.table = Table::kRowPerToken; }),
       Row("sections of rows per token",
           [](C& c) {
             c.spec.rope.table = Table::kRowPerToken;
             c.spec.rope.max_positions = 0;
           }),
       Row("no positions", [](C& c) { c.spec.rope.max_positions = 0; }),
       Row("too many positions", [](C& c) { c.spec.rope.max_positions = int64_t{1} << 33; }),
       Row("batch stride of a table",
           [](C& c) {
             c.spec.rope.cos_strides = TokenStrides{64, 64, 0, 1};
           }),
       Row("batch stride of sin",
           [](C& c) {
             c.spec.rope.sin_strides = TokenStrides{64, 64, 0, 1};
           }),
       Row("sections", [](C& c) { c.spec.rope.sections = Unknown<Sections>(3); }),
       Row("pairs without sections", [](C& c) { c.spec.rope.sections = Sections::kNone; }),
       Row("sum of sections",
           [](C& c) {
             c.spec.rope.section_pairs = {8, 8, 8};
           }),
       Row("negative section",
           [](C& c) {
             c.spec.rope.section_pairs = {-8, 20, 20};
           }),
       Row("sections that do not reach", [](C& c) {
         c.spec.rope.section_pairs = {2, 20, 10};
       })});
}

TEST(Contract, FusedOutputs) {
  ExpectAllRefused<Fused>(
      kLine,
      {Row("q_out of int32", [](C& c) { c.spec.q_out.dtype = DType::kInt32; }),
       Row("k_out of int8", [](C& c) { c.spec.k_out->dtype = DType::kInt8; }),
       Row("v_out of fp8", [](C& c) { c.spec.v_out->dtype = DType::kFloat8E4M3; }),
       Row("q_before_quant of int64", [](C& c) { c.spec.q_before_quant->dtype = DType::kInt64; }),
       Row("k_cache of int64", [](C& c) { c.spec.k_cache->dtype = DType::kInt64; }),
       Row("v_cache of int32", [](C& c) { c.spec.v_cache->dtype = DType::kInt32; }),
       Row("k_cache alone", [](C& c) { c.spec.v_cache.reset(); }),
       Row("v_cache alone", [](C& c) { c.spec.k_cache.reset(); }),
       Row("slots without caches",
           [](C& c) {
             c.spec.k_cache.reset();
             c.spec.v_cache.reset();
             c.spec.slots.dtype = DType::kInt32;
           }),
       Row("scale rule", [](C& c) { c.spec.k_cache->scale_rule = Unknown<ScaleRule>(3); }),
       Row("granularity", [](C& c) { c.spec.k_cache->granularity = Unknown<ScaleGranularity>(9); }),
       Row("rule of bf16", [](C& c) { c.spec.v_cache->scale_rule = ScaleRule::kMultiply; }),
       Row("granularity of bf16",
           [](C& c) { c.spec.v_cache->granularity = ScaleGranularity::kHead; }),
       Row("scale of bf16",
           [](C& c) {
             c.spec.v_cache->scale_shape = StridedShape::Contiguous({2, 64});
           }),
       Row("shape without offset",
           [](C& c) {
             c.spec.v_cache->offset_shape = StridedShape::Contiguous({2, 64});
           }),
       Row("offset of fp8", [](C& c) { c.spec.k_cache->dtype = DType::kFloat8E5M2; }),
       Row("offset of dynamic scales",
           [](C& c) {
             c.spec.k_cache->scale_rule = ScaleRule::kDynamic;
             c.spec.k_cache->scale_layout = PagedNhd(2, 16, 2, 1);
           }),
       Row("scale shape per tensor",
           [](C& c) {
             c.spec.k_cache->granularity = ScaleGranularity::kTensor;
             c.spec.k_cache->scale_shape = StridedShape::Contiguous({2});
           }),
       Row("scale shape per head",
           [](C& c) {
             c.spec.k_cache->granularity = ScaleGranularity::kHead;
             c.spec.k_cache->scale_shape = StridedShape::Contiguous({2, 64});
           }),
       Row("scale shape of negative rank",
           [](C& c) {
             c.spec.k_cache->granularity = ScaleGranularity::kTensor;
             c.spec.k_cache->scale_shape.rank = -5;
           }),
       Row("offset of a dense output", [](C& c) { c.spec.k_out->has_offset = true; }),
       Row("offset of an fp8 q_out",
           [](C& c) {
             c.spec.q_out.dtype = DType::kFloat8E4M3;
             c.spec.q_out.has_offset = true;
           }),
       Row("scale layout of static scales",
           [](C& c) { c.spec.k_cache->scale_layout = PagedNhd(2, 16, 2, 1); }),
       Row("scale layout of other blocks",
           [](C& c) {
             c.spec.k_cache->has_offset = false;
             c.spec.k_cache->scale_rule = ScaleRule::kDynamic;
             c.spec.k_cache->scale_layout = PagedNhd(3, 16, 2, 1);
           }),
       Row("scale layout that overlaps itself",
           [](C& c) {
             c.spec.k_cache->has_offset = false;
             c.spec.k_cache->scale_rule = ScaleRule::kDynamic;
             c.spec.k_cache->scale_layout = PagedNhd(2, 16, 1, 1);
             c.spec.k_cache->scale_layout.head_stride = 0;
           }),
       Row("rule of a dense output", [](C& c) { c.spec.k_out->scale_rule = ScaleRule::kMultiply; }),
       Row("dynamic dense output", [](C& c) { c.spec.k_out->scale_rule = ScaleRule::kDynamic; }),
       Row("strides of scales that are not written",
           [](C& c) { c.spec.q_out.scale_out_strides.emplace(); })});
}

TEST(Contract, FusedTypesOfInt32) {
  ExpectAllRefused<Fused>(
      "op=fused dtype=bf16 x=int32 heads=4/2 head_dim=64 tokens=8 k_cache=int8 v_cache=int8 "
      "layout=paged block_size=16 kv_output=1",
      {Row("q_out without a type", [](C& c) { c.spec.q_out.dtype.reset(); }),
       Row("k_out without a type", [](C& c) { c.spec.k_out->dtype.reset(); }),
       Row("gamma without a type", [](C& c) { c.spec.q_norm.gamma_dtype.reset(); }),
       Row("table without a type", [](C& c) { c.spec.rope.dtype.reset(); })});
}

TEST(Contract, FusedPartsThatAreNotWanted) {
  ExpectAllRefused<Fused>(
      "op=fused dtype=bf16 heads=4/2 head_dim=64 tokens=8 layout=paged caches=0 separate=1",
      {Row("strides of a k that is not wanted", [](C& c) { c.spec.k_strides.emplace(); }),
       Row("strides of a v that is not wanted", [](C& c) { c.spec.v_strides.emplace(); })});
}

TEST(Contract, FusedSlots) {
  ExpectAllRefused<Fused>(
      kLine,
      {Row("unknown slot mode", [](C& c) { c.spec.slots.mode = Unknown<SlotMode>(-1); }),
       Row("type of slots", [](C& c) { c.spec.slots.dtype = DType::kInt8; }),
       Row("page table without pages", [](C& c) { c.spec.slots.mode = SlotMode::kPageTable; }),
       Row("pages of slots", [](C& c) { c.spec.slots.pages = 3; }),
       Row("too many pages",
           [](C& c) {
             c.spec.slots.mode = SlotMode::kPageTable;
             c.spec.slots.pages = int64_t{1} << 33;
           }),
       Row("zeroed rows of slots", [](C& c) { c.spec.slots.zeroes_unused_rows = true; }),
       Row("stride of too many pages", [](C& c) {
         c.spec.slots.mode = SlotMode::kPageTable;
         c.spec.slots.pages = int64_t{1} << 40;
         c.spec.slots.stride = int64_t{1} << 40;
       })});
}

TEST(Contract, FusedMeasure) {
  ExpectAllRefused<Fused>(
      "op=fused dtype=bf16 heads=4/2 head_dim=64 tokens=8 layout=paged q_norm=full k_norm=full "
      "gathered_heads=8 measures=1",
      {Row("nothing to measure",
           [](C& c) { c.spec.q_norm.total_heads = c.spec.k_norm.total_heads = 0; }),
       Row("slots of a measure that has none", [](C& c) { c.spec.slots.pages = 3; }),
       Row("measure of int8", [](C& c) { c.spec.x_dtype = DType::kInt8; })});
}

}  // namespace
}  // namespace qkvfuse::testing
