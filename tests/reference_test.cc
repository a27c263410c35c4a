// The references against values worked out by hand, and against each other.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "reference/accuracy.h"
#include "reference/exact.h"
#include "reference/precise.h"
#include "tests/support/same_bits.h"
#include "tests/support/witness.h"

namespace qkvfuse::testing {
namespace {

template <typename T>
TensorView ViewOf(DType dtype, std::vector<T>& data, std::initializer_list<int64_t> dims) {
  return {dtype, StridedShape::Contiguous(dims), data.data()};
}

// One token, one head each, head_dim 2, bfloat16: small enough for paper.
struct PaperProblem {
  std::vector<uint16_t> x = {0x4040, 0x4080, 0x4040, 0x4080, 0x3F80, 0xC000};  // 3 4 | 3 4 | 1 -2
  std::vector<uint16_t> cos = {0x3F00, 0x3F80};                                // 0.5 1
  std::vector<uint16_t> sin = {0x3F80, 0x4000};                                // 1 2
  std::vector<uint16_t> gamma = {0x4000, 0x3F80};                              // 2 1
  std::vector<int64_t> slots = {3};
  std::vector<float> scale = {0.5F, -0.25F};
  std::vector<float> offset = {10, 0.5F};
  std::vector<uint16_t> q_out = {0, 0};
  std::vector<uint16_t> v_out = {0, 0};
  std::vector<int8_t> k_cache = std::vector<int8_t>(8, 99);  // two blocks of two rows
  std::vector<int8_t> v_cache = std::vector<int8_t>(8, 99);

  reference::Problem Get(bool has_norm) {
    reference::Problem p;
    p.has_norm = has_norm;
    p.sequence = 1;
    p.q_heads = p.k_heads = p.v_heads = 1;
    p.head_dim = 2;
    p.x = ViewOf(DType::kBFloat16, x, {1, 1, 3, 2});
    p.cos = ViewOf(DType::kBFloat16, cos, {1, 1, 2});
    p.sin = ViewOf(DType::kBFloat16, sin, {1, 1, 2});
    p.q_gamma = p.k_gamma = ViewOf(DType::kBFloat16, gamma, {2});
    p.slots = ViewOf(DType::kInt64, slots, {1});
    p.cache_order = reference::CacheOrder::kNd;
    p.k_cache = {ViewOf(DType::kInt8, k_cache, {2, 2, 1, 2}), ViewOf(DType::kFloat32, scale, {2}),
                 ViewOf(DType::kFloat32, offset, {2})};
    p.v_cache = {
        ViewOf(DType::kInt8, v_cache, {2, 2, 1, 2}), ViewOf(DType::kFloat32, scale, {2}), {}};
    p.q_out = ViewOf(DType::kBFloat16, q_out, {1, 1, 1, 2});
    p.v_out = ViewOf(DType::kBFloat16, v_out, {1, 1, 1, 2});
    return p;
  }
};

double Value(uint16_t bits) { return Decode16(DType::kBFloat16, bits); }

TEST(Exact, RotatesAndQuantisesByHand) {
  PaperProblem paper;
  reference::RunExact(paper.Get(/*has_norm=*/false));
  // lo = 3*0.5 - 4*1, hi = 4*1 + 3*2
  EXPECT_EQ(Value(paper.q_out[0]), -2.5);
  EXPECT_EQ(Value(paper.q_out[1]), 10);
  EXPECT_EQ(paper.v_out, (std::vector<uint16_t>{0x3F80, 0xC000}));
  // Slot 3 is row 1 of block 1. k: -2.5/0.5 + 10 = 5, 10/-0.25 + 0.5 = -39.5; v: 1/0.5, -2/-0.25
  EXPECT_EQ(paper.k_cache, (std::vector<int8_t>{99, 99, 99, 99, 99, 99, 5, -40}));
  EXPECT_EQ(paper.v_cache, (std::vector<int8_t>{99, 99, 99, 99, 99, 99, 2, 8}));
}

TEST(Exact, NormalisesByHand) {
  PaperProblem paper;
  reference::RunExact(paper.Get(/*has_norm=*/true));
  // mean of 9 and 16 is 12.5; a = x/sqrt(12.5); gamma 2, 1:
  // lo = a0*2*0.5 - a1*1*1 = -1/sqrt(12.5), hi = a1*1*1 + a0*2*2 = 16/sqrt(12.5)
  EXPECT_NEAR(Value(paper.q_out[0]), -0.28284, 0.001);
  EXPECT_NEAR(Value(paper.q_out[1]), 4.52548, 0.02);
}

TEST(Exact, SkipsNegativeSlots) {
  PaperProblem paper;
  paper.slots[0] = -1;
  reference::RunExact(paper.Get(false));
  EXPECT_EQ(paper.k_cache, std::vector<int8_t>(8, 99));
  EXPECT_EQ(Value(paper.q_out[0]), -2.5);
}

// The PA_NZ formula, spelt out once more: [block, chunk, row, within].
TEST(Exact, AddressesPaNz) {
  constexpr int64_t kHeads = 2, kHeadDim = 32, kBlockSize = 4, kChunk = 16, kSlot = 6;
  std::vector<uint16_t> x(4 * kHeadDim + kHeads * kHeadDim);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<uint16_t>(i);
  std::vector<uint16_t> table(kHeadDim, 0x3C00);
  std::vector<uint16_t> q_out(2 * kHeadDim);
  std::vector<uint16_t> k_cache(2 * kHeads * kHeadDim * kBlockSize, 0xFFFF);
  std::vector<uint16_t> v_cache = k_cache;
  std::vector<int32_t> slots = {kSlot};
  reference::Problem p;
  p.sequence = 1;
  p.q_heads = p.k_heads = p.v_heads = kHeads;
  p.head_dim = kHeadDim;
  p.x = ViewOf(DType::kFloat16, x, {1, 1, 3 * kHeads, kHeadDim});
  p.cos = p.sin = ViewOf(DType::kFloat16, table, {1, 1, kHeadDim});
  p.slots = ViewOf(DType::kInt32, slots, {1});
  p.q_out = ViewOf(DType::kFloat16, q_out, {1, 1, kHeads, kHeadDim});
  const std::initializer_list<int64_t> dims = {2, kHeads * kHeadDim / kChunk, kBlockSize, kChunk};
  p.k_cache.data = ViewOf(DType::kFloat16, k_cache, dims);
  p.v_cache.data = ViewOf(DType::kFloat16, v_cache, dims);
  reference::RunExact(p);
  // Slot 6 is row 2 of block 1; channel 5 of head 1 is element 37: chunk 2, place 5.
  const size_t block = 1, chunk = 2, row = 2, within = 5;
  const size_t address = ((block * 4 + chunk) * 4 + row) * 16 + within;
  EXPECT_EQ(v_cache[address], x[4 * kHeadDim + 37]);
  int64_t written = 0;
  for (const uint16_t element : v_cache) written += element != 0xFFFF ? 1 : 0;
  EXPECT_EQ(written, kHeads * kHeadDim);
}

TEST(Round16, AgreesWithTheWitness) {
  std::mt19937_64 random(11);
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16}) {
    for (int i = 0; i < 100000; ++i) {
      const float value = std::ldexp(static_cast<float>(random() >> 40) - 0x1p23F,
                                     static_cast<int>(random() % 200) - 140);
      ASSERT_EQ(reference::Round16(dtype, static_cast<double>(value)), Narrow16(dtype, value))
          << std::hexfloat << value;
    }
  }
}

// A double is rounded once, not by way of a float.
TEST(Round16, RoundsOnce) {
  EXPECT_EQ(reference::Round16(DType::kBFloat16, 1 + 0x1p-8 + 0x1p-40), 0x3F81);
  EXPECT_EQ(reference::Round16(DType::kBFloat16, 1 + 0x1p-8), 0x3F80);
  EXPECT_EQ(reference::Round16(DType::kFloat16, 65519.999), 0x7BFF);
  EXPECT_EQ(reference::Round16(DType::kFloat16, 65520.0), 0x7C00);
  EXPECT_EQ(reference::Round16(DType::kFloat16, -0x1p-25), 0x8000);
  EXPECT_EQ(reference::Round16(DType::kFloat16, 0x1.000001p-25), 0x0001);
}

TEST(IsWithin, HoldsTheEndsOfTheInterval) {
  const DType dtype = DType::kBFloat16;
  // 1 + 2^-8 lies on the tie of 0x3F80 and 0x3F81.
  EXPECT_TRUE(reference::IsWithin(dtype, {1 + 0x1p-8, 1e-6}, 0x3F80));
  EXPECT_TRUE(reference::IsWithin(dtype, {1 + 0x1p-8, 1e-6}, 0x3F81));
  EXPECT_FALSE(reference::IsWithin(dtype, {1 + 0x1p-8, 0}, 0x3F81));
  EXPECT_FALSE(reference::IsWithin(dtype, {1 + 0x1p-8, 1e-6}, 0x3F82));
  EXPECT_TRUE(reference::IsWithin(dtype, {NAN, 1}, 0xFFC1));
  EXPECT_FALSE(reference::IsWithin(dtype, {NAN, 1}, 0x7F80));
  EXPECT_FALSE(reference::IsWithin(dtype, {1, 1e-6}, 0x7FC0));
  const double infinity = std::numeric_limits<double>::infinity();
  EXPECT_TRUE(reference::IsWithin(dtype, {infinity, infinity}, 0x7F80));
  EXPECT_FALSE(reference::IsWithin(dtype, {infinity, infinity}, 0xFF80));
  EXPECT_TRUE(reference::IsWithin({2.5, 1e-3}, 2));
  EXPECT_TRUE(reference::IsWithin({2.5, 1e-3}, 3));
  EXPECT_FALSE(reference::IsWithin({2.5, 0}, 3));
  EXPECT_TRUE(reference::IsWithin({NAN, 0}, 0));
  EXPECT_FALSE(reference::IsWithin({NAN, 0}, 1));
}

// Two independent evaluations: scalar fp32 and double.
TEST(Exact, LiesWithinTheIntervalsOfPrecise) {
  for (const char* line :
       {"op=qnr dtype=bf16 heads=3/2 head_dim=128 tokens=20 k_cache=int8+offset v_cache=16bit "
        "before_quant=1 data=heavy_tailed",
        "op=qnr dtype=fp16 heads=3/2 head_dim=46 tokens=20 layout=paged slots=repeated strict=0",
        "op=drq dtype=fp16 heads=3/2 head_dim=80 tokens=20 layout=paged bias=fp32 token_scale=1 "
        "kv_output=1",
        "op=drq dtype=bf16 x=16bit heads=3/2 head_dim=80 tokens=4x5 layout=contiguous "
        "kv_output=1"}) {
    const auto problem = MakeProblem(CaseOf(line));
    ASSERT_NE(problem, nullptr);
    reference::RunExact(problem->ReferenceProblem());
    const auto report = reference::CheckAccuracy(problem->ReferenceProblem());
    EXPECT_GE(report.elements, 20 * 3 * 46);
    EXPECT_EQ(report.outside, 0) << report.first_outside << "\n  case: " << line;
  }
}

}  // namespace
}  // namespace qkvfuse::testing
