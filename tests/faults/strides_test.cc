// Faults in strides and places: a pitch ignored, one tensor's strides taken for another's, offsets
// dropped, caches that share a buffer, tails.
#include <array>
#include <optional>

#include "tests/faults/fault.h"

namespace qkvfuse::testing {
namespace {

using cases::Case;
using cases::StridePattern;
using cases::TensorId;

TEST(Faults, C14) {
  Fault fault(
      "op=qnr dtype=bf16 heads=5/2 head_dim=64 tokens=3 k_cache=int8+offset v_cache=int8+offset "
      "layout=pa_nz block_size=32 blocks=2 strides=x:pitch,q_out:pitch");  // gaps hold NaN
  fault.Slots({9, 1, 40});
  fault.ExpectRight();
  fault.ExpectCodes(TensorId::kKCache,
                    {{30, -6, 1, -2, -2, 3, -3, -11, 4, -3, -4, -7, -14, 7, 2, -1},
                     {23, 13, 13, 7, -1, -2, 2, -5},
                     0x3953282F44E8CD3FU});
  fault.ExpectCodes(TensorId::kVCache,
                    {{-105, -54, -20, 4, 22, 36, 48, -36, -20, -7, 4, 52, 72, -83, -51, -26},
                     {6, 60, 78, -78, -45, -21, -3, 12},
                     0xD84E213A41B3D777U});
  fault.ExpectSpots(TensorId::kQOut, {{{0, 0, 0}, 1.35701298},
                                      {{0, 0, 32}, -0.239435119},
                                      {{0, 4, 63}, -0.0091340943},
                                      {{2, 0, 1}, 0.356606582},
                                      {{2, 4, 31}, 0.434640072},
                                      {{1, 2, 62}, 1.18855856}});
  fault.ExpectToldApart("pitch of x is its width", WithPackedStrides(TensorId::kX));
  fault.ExpectToldApart("pitch of q_out is its width", WithPackedStrides(TensorId::kQOut));
}

// Everything there is, so that each tensor can be moved about.
std::string FullLine(cases::Operator op, cases::Layout layout) {
  Case c;
  c.op = op;
  c.layout = layout;
  c.dtype = c.x_dtype = DType::kFloat16;
  c.heads = {3, 2, 2};
  c.head_dim = 64;
  c.tokens = TokenCount(3, 4);
  c.k_cache.has_offset = c.v_cache.has_offset = true;
  c.dense_kv = true;
  c.block_size = 8;
  if (op == cases::Operator::kDequantRopeQuantKvcache) {
    c.x_dtype = DType::kInt32;
    c.token_scale = true;
    c.bias = DType::kBFloat16;
  }
  return cases::PrintCase(c);
}

int64_t Extent(const StridedShape& shape) {
  int64_t extent = 1;
  for (size_t a = 0; a < static_cast<size_t>(shape.rank); ++a) {
    extent += (shape.dims[a] - 1) * shape.strides[a];
  }
  return extent;
}

// Strides that the view does not have: each axis on its own as if packed, and all of them; those
// that stay inside its storage.
std::vector<StridedShape> WrongStrides(const StridedShape& shape) {
  StridedShape packed = shape;
  packed.MakeContiguous();
  std::vector<StridedShape> wrong;
  for (int axis = 0; axis <= shape.rank; ++axis) {
    StridedShape one = axis == shape.rank ? packed : shape;
    if (axis < shape.rank) {
      const auto a = static_cast<size_t>(axis);
      if (shape.dims[a] == 1) continue;
      one.strides[a] = packed.strides[a];
    }
    if (one != shape && Extent(one) <= Extent(shape)) wrong.push_back(one);
  }
  return wrong;
}

class EachTensorsStride : public ::testing::TestWithParam<TensorId> {};

TEST_P(EachTensorsStride, IsItsOwn) {
  // Patterns under which packed strides stay inside the buffer.
  const std::pair<StridePattern, const char*> patterns[] = {
      {StridePattern::kPitch, "pitch"},
      {StridePattern::kHeadPitch, "head_pitch"},
      {StridePattern::kChannel, "channel"},
      {StridePattern::kHeadsFirst, "heads_first"}};
  int faults = 0;
  for (const cases::Operator op :
       {cases::Operator::kQkvRmsNormRopeCache, cases::Operator::kDequantRopeQuantKvcache}) {
    for (const cases::Layout layout :
         {cases::Layout::kPaNz, cases::Layout::kPaged, cases::Layout::kContiguous}) {
      for (const auto& [pattern, name] : patterns) {
        const std::string line = FullLine(op, layout);
        if (!cases::Has(CaseOf(line), GetParam())) continue;
        Fault fault(line + " strides=" + std::string(cases::Name(GetParam())) + ":" + name);
        fault.ExpectRight();
        reference::Problem p = fault.problem().ReferenceProblem();
        for (const StridedShape& wrong : WrongStrides(ViewOf(p, GetParam()).shape)) {
          ++faults;
          fault.ExpectToldApart("strides of " + std::string(cases::Name(GetParam())),
                                [&](reference::Problem faulty) {
                                  ViewOf(faulty, GetParam()).shape = wrong;
                                  reference::RunExact(faulty);
                                });
        }
      }
    }
  }
  EXPECT_GT(faults, 0);
}

// C20 and C14: where one tensor's stride was at fault, every tensor's is tried.
INSTANTIATE_TEST_SUITE_P(C14Kind, EachTensorsStride,
                         ::testing::Values(TensorId::kX, TensorId::kQGamma, TensorId::kKGamma,
                                           TensorId::kCos, TensorId::kSin, TensorId::kKScale,
                                           TensorId::kVScale, TensorId::kKOffset,
                                           TensorId::kVOffset, TensorId::kWeightScale,
                                           TensorId::kTokenScale, TensorId::kBias, TensorId::kQOut,
                                           TensorId::kQBeforeQuant, TensorId::kKOut,
                                           TensorId::kVOut, TensorId::kKCache, TensorId::kVCache),
                         [](const auto& test) { return std::string(cases::Name(test.param)); });

TEST(Faults, C16) {
  const std::string line =
      "op=qnr dtype=bf16 heads=2/1 head_dim=64 tokens=2 k_cache=int8 v_cache=int8 layout=pa_nz "
      "block_size=32 blocks=1";
  const std::string offsets =
      " strides=x:offset,q_gamma:offset,k_gamma:offset,cos:offset,sin:offset,q_out:offset,"
      "k_cache:offset,v_cache:offset,k_scale:offset,v_scale:offset";
  for (const std::string& places : {std::string(), offsets}) {
    Fault fault(line + places);
    fault.Slots({31, 0});
    fault.ExpectRight();
    fault.ExpectCodes(TensorId::kKCache, {{-9, 18, 2, 8, -7, -1, 2, 3, -12, -8, 0, 3, 1, -3, 1, -2},
                                          {-7, 0, -1, -4, -1, 7, 1, -22},
                                          0xABDB487ED30842A7U});
    fault.ExpectCodes(TensorId::kVCache,
                      {{-38, -1, 24, 42, 55, -46, -27, -11, 2, 14, 23, 118, -77, -39, -13, 8},
                       {-32, -2, 19, 36, 48, -42, -25, -11},
                       0x47FAC42F398DFF06U});
    fault.ExpectSpots(TensorId::kQOut, {{{0, 0, 0}, 1.35701298},
                                        {{0, 0, 32}, -0.239435119},
                                        {{0, 1, 63}, -0.0722570773},
                                        {{1, 0, 1}, -0.180378506},
                                        {{1, 1, 31}, 0.46364909},
                                        {{1, 1, 62}, -0.252482178}});
    if (places.empty()) continue;
    // The fault itself is a crash; guard_test runs every alignment. Here: an offset dropped.
    for (const TensorId id : {TensorId::kX, TensorId::kQGamma, TensorId::kKGamma, TensorId::kCos,
                              TensorId::kSin, TensorId::kKScale, TensorId::kVScale, TensorId::kQOut,
                              TensorId::kKCache, TensorId::kVCache}) {
      fault.ExpectToldApart("offset of " + std::string(cases::Name(id)),
                            [id](reference::Problem p) {
                              TensorView& view = ViewOf(p, id);
                              view.data = static_cast<char*>(view.data) - 3 * SizeOf(view.dtype);
                              reference::RunExact(p);
                            });
    }
  }
}

// Both caches in one buffer of int8, or apart: strides of [block, row, head, channel].
struct SharedCaches {
  const char* name;
  std::array<int64_t, 4> strides;
  int64_t v_first;  // elements behind the first of K
};

constexpr int64_t kSharedBytes = 3 * 4 * 2 * 2 * 32;  // 3 blocks, 4 rows, 2 heads, K and V

constexpr SharedCaches kShared[] = {
    {"K and V of a head side by side", {512, 128, 64, 1}, 32},
    {"K and V of a token side by side", {512, 128, 32, 1}, 64},
    {"K and V of a block side by side", {512, 64, 32, 1}, 256},
    {"heads outside of rows", {256, 32, 128, 1}, 768},
    {"heads outside of rows, side by side", {512, 64, 256, 1}, 32},
    {"channels interleaved", {512, 128, 64, 2}, 1},
};

StridedShape SharedShape(const SharedCaches& shared) {
  StridedShape shape = StridedShape::Contiguous({3, 4, 2, 32});
  for (size_t axis = 0; axis < 4; ++axis) shape.strides[axis] = shared.strides[axis];
  return shape;
}

std::vector<int8_t> RunReference(reference::Problem p, const StridedShape& k, const StridedShape& v,
                                 int64_t v_first) {
  std::vector<int8_t> bytes(kSharedBytes, 0x55);
  p.k_cache.data = {DType::kInt8, k, bytes.data()};
  p.v_cache.data = {DType::kInt8, v, bytes.data() + v_first};
  reference::RunExact(p);
  return bytes;
}

TEST(Faults, C18) {
  Fault fault(
      "op=qnr dtype=fp16 heads=2/2 head_dim=32 tokens=3 k_cache=int8 v_cache=int8 layout=paged "
      "block_size=4 blocks=3");
  fault.Fill(TensorId::kKScale, Cyc(9, 7, 128)).Slots({6, 1, 11});
  fault.ExpectRight();
  fault.ExpectCodes(TensorId::kKCache, {{8, 2, -2, 1, 0, 0, -1, -4, 14, 11, -9, 7, 0, 8, 2, 1},
                                        {-3, 1, -3, -3, -2, -3, 1, -9},
                                        0x328D734485BBEA10U});
  fault.ExpectCodes(TensorId::kVCache,
                    {{104, -88, -49, -21, 0, 17, 30, 41, -34, -20, -8, 9, 37, 55, 69, -47},
                     {55, 71, -62, -36, -15, 1, 15, 26},
                     0xF0021A01C7003A63U});
  const std::vector<double> k_codes = fault.Written(TensorId::kKCache);
  const reference::Problem& p = fault.problem().ReferenceProblem();
  for (const SharedCaches& shared : kShared) {
    const StridedShape shape = SharedShape(shared);
    const auto right = RunReference(p, shape, shape, shared.v_first);
    QkvRmsNormRopeCacheSpec spec = fault.problem().QnrSpec();
    for (CacheSpec* const cache : {&spec.k_cache, &spec.v_cache}) {
      cache->layout.block_stride = shared.strides[0];
      cache->layout.row_stride = shared.strides[1];
      cache->layout.head_stride = shared.strides[2];
      cache->layout.channel_stride = shared.strides[3];
    }
    for (const Variant& variant : TargetsAndPaths()) {
      std::vector<int8_t> found(kSharedBytes, 0x55);
      Tensors tensors = fault.problem().tensors();
      tensors.k_cache = found.data();
      tensors.v_cache = found.data() + shared.v_first;
      const Result<Plan> plan = MakePlan(spec, {true, variant.path, variant.target});
      ASSERT_TRUE(plan.ok()) << plan.status().message();
      const Status status = plan->Run(tensors, fault.problem().tokens());
      ASSERT_TRUE(status.ok()) << shared.name << ": " << status.message();
      EXPECT_EQ(found, right) << shared.name;
    }
    // Head 1, channel 0 of the token in slot 6: block 1, row 2.
    const auto at = static_cast<size_t>(shape.strides[0] + 2 * shape.strides[1] + shape.strides[2]);
    EXPECT_EQ(right[at], static_cast<int8_t>(k_codes[32])) << shared.name;
    for (const StridedShape& wrong : WrongStrides(shape)) {
      EXPECT_NE(RunReference(p, wrong, shape, shared.v_first), right) << shared.name << ": K";
      EXPECT_NE(RunReference(p, shape, wrong, shared.v_first), right) << shared.name << ": V";
    }
  }
}

TEST(Faults, C20) {
  Fault fault(
      "op=qnr dtype=fp16 heads=1/1 head_dim=32 tokens=3 k_cache=16bit v_cache=16bit layout=pa_nz "
      "block_size=16 blocks=1 strides=sin:pitch");
  fault.Slots({0, 1, 2});
  fault.ExpectRight();
  fault.ExpectSpots(TensorId::kQOut, {{{0, 0, 0}, 0.540473029},
                                      {{0, 0, 16}, -0.550287915},
                                      {{0, 0, 31}, 0.100111832},
                                      {{2, 0, 1}, -1.04933709},
                                      {{2, 0, 15}, 0.732345256},
                                      {{1, 0, 30}, 0.10413757}});
  fault.ExpectToldApart("pitch of cos for sin", [](reference::Problem p) {
    p.sin.shape = p.cos.shape;
    reference::RunExact(p);
  });
}

TEST(Faults, C21) {
  Fault fault(
      "op=qnr dtype=fp16 heads=1/1 head_dim=32 tokens=3 k_cache=16bit v_cache=16bit layout=pa_nz "
      "block_size=16 blocks=1 strides=cos:broadcast,sin:broadcast");
  // Every write of the broadcast row is a row of the table; the last must be row 0.
  const auto row_0 = [](const Generator& table) {
    return [=](int64_t i) { return table(i % 32); };
  };
  fault.Fill(TensorId::kCos, row_0(Pat(13, 5, 127, 64)))
      .Fill(TensorId::kSin, row_0(Pat(29, 17, 127, 64)))
      .Slots({0, 1, 2});
  fault.ExpectRight();
  fault.ExpectSpots(TensorId::kQOut, {{{0, 0, 0}, 0.540473029},
                                      {{0, 0, 16}, -0.550287915},
                                      {{0, 0, 31}, 0.100111832},
                                      {{2, 0, 1}, 0.297671789},
                                      {{2, 0, 15}, -0.141184937},
                                      {{1, 0, 30}, -0.663457101}});
  // The fault reads past the row, where the guard page is; here what the next rows would give.
  Fault whole_table("op=qnr dtype=fp16 heads=1/1 head_dim=32 tokens=3");
  for (const TensorId id : {TensorId::kCos, TensorId::kSin}) {
    fault.ExpectToldApart("pitch 32", [&](reference::Problem p) {
      reference::Problem other = whole_table.problem().ReferenceProblem();
      ViewOf(p, id) = ViewOf(other, id);
      reference::RunExact(p);
    });
  }
}

// Stride 0 on an output: every axis of every output is refused by name.
TEST(Faults, C21Kind) {
  Fault fault(
      "op=qnr dtype=fp16 heads=2/2 head_dim=32 tokens=3 k_cache=16bit v_cache=int8 layout=pa_nz "
      "block_size=16 before_quant=1");
  const auto expect_refused = [&](const QkvRmsNormRopeCacheSpec& spec, const std::string& name) {
    const Result<Plan> plan = MakePlan(spec);
    const Status status =
        plan.ok() ? plan->Run(fault.problem().tensors(), fault.problem().tokens()) : plan.status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << name;
    EXPECT_EQ(status.message().rfind(name + ":", 0), 0U) << status.message();
    EXPECT_TRUE(fault.problem().CompareUntouched().ok());
  };
  using Spec = QkvRmsNormRopeCacheSpec;
  const std::pair<const char*, std::optional<TokenStrides> Spec::*> rows[] = {
      {"q_out", &Spec::q_out_strides},
      {"q_before_quant", &Spec::q_before_quant_strides},
      {"k_out", &Spec::k_out_strides},
      {"v_out", &Spec::v_out_strides}};
  for (const auto& [name, strides] : rows) {
    for (int64_t TokenStrides::*const axis :
         {&TokenStrides::token, &TokenStrides::head, &TokenStrides::channel}) {
      Spec spec = fault.problem().QnrSpec();
      spec.*strides = TokenStrides{3 * 64, 64, 32, 1};
      (spec.*strides).value().*axis = 0;
      expect_refused(spec, name);
    }
  }
  const std::pair<const char*, CacheSpec Spec::*> caches[] = {{"k_cache", &Spec::k_cache},
                                                              {"v_cache", &Spec::v_cache}};
  for (const auto& [name, cache] : caches) {
    for (int64_t CacheLayout::*const axis :
         {&CacheLayout::block_stride, &CacheLayout::head_stride, &CacheLayout::row_stride,
          &CacheLayout::channel_stride}) {
      Spec spec = fault.problem().QnrSpec();
      (spec.*cache).layout.*axis = 0;
      expect_refused(spec, name);
    }
  }
}

}  // namespace
}  // namespace qkvfuse::testing
