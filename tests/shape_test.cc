// Bit equality with reference/exact over head counts, head dimensions, token and thread counts.
#include <gtest/gtest.h>

#include <string>
#include <tuple>

#include "tests/support/same_bits.h"

namespace qkvfuse::testing {
namespace {

using cases::Case;
using cases::Layout;
using cases::Operator;

constexpr HeadCounts kHeads[] = {{1, 1, 1},  {8, 1, 1},  {16, 4, 4}, {32, 8, 8},
                                 {40, 8, 8}, {64, 4, 4}, {129, 2, 2}};
constexpr int64_t kHeadDims[] = {2,  4,   6,   16,  18,  46,  48,  64, 80,
                                 96, 100, 112, 128, 144, 192, 256, 512};

// A case whose types and layout change with `number`.
Case CaseNumber(Operator op, int64_t number) {
  Case c;
  c.op = op;
  c.dtype = number % 2 == 0 ? DType::kBFloat16 : DType::kFloat16;
  c.x_dtype = op == Operator::kDequantRopeQuantKvcache && number % 3 != 0 ? DType::kInt32 : c.dtype;
  c.layout = static_cast<Layout>(number % 3);
  if (op == Operator::kQkvRmsNormRopeCache) {
    if (number % 4 == 1) c.k_cache = {c.dtype, false};
    if (number % 5 == 1) c.v_cache = {c.dtype, false};
  } else {
    c.slot_dtype = DType::kInt32;
  }
  if (c.k_cache.dtype == DType::kInt8) c.k_cache.has_offset = number % 7 < 3;
  c.dense_kv = number % 4 >= 2;
  c.block_size = 16;
  c.seed = static_cast<uint64_t>(number) + 1;
  return c;
}

// PA_NZ where the chunks divide head_dim, a paged cache elsewhere.
void FitLayout(Case& c) {
  if (!cases::Validate(c).ok()) c.layout = Layout::kPaged;
}

class HeadsAndDims : public ::testing::TestWithParam<HeadCounts> {};

TEST_P(HeadsAndDims, BothOperators) {
  int64_t number = GetParam().total();
  for (const Operator op : {Operator::kQkvRmsNormRopeCache, Operator::kDequantRopeQuantKvcache}) {
    for (const int64_t head_dim : kHeadDims) {
      Case c = CaseNumber(op, ++number);
      c.heads = GetParam();
      c.head_dim = head_dim;
      c.tokens = TokenCount(1 + number % 3);
      FitLayout(c);
      ExpectSameBits(c);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Shape, HeadsAndDims, ::testing::ValuesIn(kHeads), [](const auto& test) {
  return std::to_string(test.param.q) + "_" + std::to_string(test.param.k);
});

TEST(Shape, EveryHeadDim) {
  for (int64_t head_dim = 2; head_dim <= 1024; head_dim += 2) {
    for (const Operator op : {Operator::kQkvRmsNormRopeCache, Operator::kDequantRopeQuantKvcache}) {
      Case c = CaseNumber(op, head_dim / 2);
      c.heads = {2, 1, 1};
      c.head_dim = head_dim;
      c.tokens = TokenCount(2);
      FitLayout(c);
      ExpectSameBits(c);
    }
  }
}

// Runs of tokens end inside and at the ends of whatever the kernels group together.
TEST(Shape, EveryTokenCount) {
  for (int64_t tokens = 1; tokens <= 70; ++tokens) {
    for (const Operator op : {Operator::kQkvRmsNormRopeCache, Operator::kDequantRopeQuantKvcache}) {
      Case c = CaseNumber(op, tokens);
      c.heads = {2, 1, 1};
      c.head_dim = 32;
      c.tokens = TokenCount(tokens);
      ExpectSameBits(c);
    }
  }
}

TEST(Shape, BatchAndSequence) {
  int64_t number = 0;
  for (const auto& [batch, sequence] :
       {std::pair{1, 1}, {1, 33}, {5, 1}, {3, 5}, {64, 1}, {7, 33}, {16, 16}}) {
    for (const Operator op : {Operator::kQkvRmsNormRopeCache, Operator::kDequantRopeQuantKvcache}) {
      for (const Layout layout : {Layout::kPaNz, Layout::kPaged, Layout::kContiguous}) {
        Case c = CaseNumber(op, ++number);
        c.heads = {2, 1, 1};
        c.head_dim = 32;
        c.tokens = TokenCount(batch, sequence);
        c.layout = layout;
        c.block_size = 48;
        if (layout == Layout::kContiguous) c.slot_mode = SlotMode::kStartPerSequence;
        ExpectSameBits(c);
      }
    }
  }
}

using OperatorAndTokens = std::tuple<Operator, int>;

class Threads : public ::testing::TestWithParam<OperatorAndTokens> {};

TEST_P(Threads, AnySplitGivesTheSameBits) {
  const auto [op, tokens] = GetParam();
  Case c = CaseNumber(op, tokens);
  c.layout = Layout::kPaNz;
  c.heads = {2, 1, 1};
  c.head_dim = 64;
  c.block_size = 128;
  c.tokens = TokenCount(tokens);
  ExpectSameBits(c, TargetsPathsAndThreads());
}

INSTANTIATE_TEST_SUITE_P(
    Shape, Threads,
    ::testing::Combine(::testing::Values(Operator::kQkvRmsNormRopeCache,
                                         Operator::kDequantRopeQuantKvcache),
                       ::testing::Values(1, 2, 3, 5, 7, 8, 63, 64, 100, 1000, 5000)),
    [](const auto& test) {
      const bool is_qnr = std::get<0>(test.param) == Operator::kQkvRmsNormRopeCache;
      return (is_qnr ? "qnr_" : "drq_") + std::to_string(std::get<1>(test.param));
    });

}  // namespace
}  // namespace qkvfuse::testing
