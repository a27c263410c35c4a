// Bit equality with reference/exact, gaps included, for every tensor under every stride pattern,
// for caches that share a buffer, and for outputs in place.
#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "reference/exact.h"
#include "tests/support/same_bits.h"

namespace qkvfuse::testing {
namespace {

using cases::Case;
using cases::Layout;
using cases::Operator;
using cases::StridePattern;
using cases::TensorId;

// Everything there is, so that each tensor can be moved about.
Case FullCase(Operator op, DType dtype, Layout layout) {
  Case c;
  c.op = op;
  c.dtype = dtype;
  c.x_dtype = dtype;
  c.heads = {3, 2, 2};
  c.head_dim = 64;
  c.tokens = TokenCount(3, 4);
  c.k_cache.has_offset = true;
  c.v_cache.has_offset = true;
  c.dense_kv = true;
  c.layout = layout;
  c.block_size = 8;
  if (op == Operator::kDequantRopeQuantKvcache) {
    c.x_dtype = DType::kInt32;
    c.token_scale = true;
    c.bias = dtype;
    c.slot_dtype = DType::kInt32;
  }
  return c;
}

class EachTensor : public ::testing::TestWithParam<size_t> {};

TEST_P(EachTensor, EveryPattern) {
  for (int i = 0; i <= static_cast<int>(StridePattern::kLonger); ++i) {
    for (const Operator op : {Operator::kQkvRmsNormRopeCache, Operator::kDequantRopeQuantKvcache}) {
      for (const Layout layout : {Layout::kPaNz, Layout::kPaged, Layout::kContiguous}) {
        for (const DType dtype : {DType::kBFloat16, DType::kFloat16}) {
          Case c = FullCase(op, dtype, layout);
          c.strides[GetParam()] = static_cast<StridePattern>(i);
          if (cases::Validate(c).ok()) ExpectSameBits(c);
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Stride, EachTensor, ::testing::Range(size_t{0}, cases::kTensorCount),
                         [](const auto& test) {
                           return std::string(cases::Name(static_cast<TensorId>(test.param)));
                         });

TEST(Stride, SixteenBitCachesAndHalfX) {
  for (const TensorId id : {TensorId::kX, TensorId::kKCache, TensorId::kVCache}) {
    for (int i = 0; i <= static_cast<int>(StridePattern::kBroadcast); ++i) {
      for (const Layout layout : {Layout::kPaNz, Layout::kPaged}) {
        Case c = FullCase(Operator::kQkvRmsNormRopeCache, DType::kFloat16, layout);
        c.k_cache = c.v_cache = {c.dtype, false};
        c.data = cases::DataKind::kSpecial;
        c.stride(id) = static_cast<StridePattern>(i);
        if (cases::Validate(c).ok()) ExpectSameBits(c);
      }
    }
  }
}

TEST(Stride, CachesInterleavedInOneBuffer) {
  for (int i = 0; i <= static_cast<int>(StridePattern::kMirrored); ++i) {
    for (const Operator op : {Operator::kQkvRmsNormRopeCache, Operator::kDequantRopeQuantKvcache}) {
      for (const Layout layout : {Layout::kPaNz, Layout::kPaged, Layout::kContiguous}) {
        Case c = FullCase(op, DType::kBFloat16, layout);
        c.interleaved = true;
        c.stride(TensorId::kKCache) = static_cast<StridePattern>(i);
        c.stride(TensorId::kVCache) = static_cast<StridePattern>(i);
        ExpectSameBits(c);
      }
    }
  }
}

TEST(Stride, DenseOutputsInPlace) {
  for (int parts = 1; parts < 8; ++parts) {
    for (int i = 0; i <= static_cast<int>(StridePattern::kHeadsFirst); ++i) {
      for (const Operator op :
           {Operator::kQkvRmsNormRopeCache, Operator::kDequantRopeQuantKvcache}) {
        Case c = FullCase(op, DType::kBFloat16, Layout::kPaged);
        c.x_dtype = c.dtype;
        c.token_scale = false;
        c.bias.reset();
        c.in_place = {(parts & 1) != 0, (parts & 2) != 0, (parts & 4) != 0};
        c.stride(TensorId::kX) = static_cast<StridePattern>(i);
        ExpectSameBits(c);
      }
    }
  }
}

// All tokens of a sequence read one row of cos and sin, and each sequence has its own.
TEST(Stride, SequencesShareTheirRowOfATable) {
  const Case c =
      FullCase(Operator::kDequantRopeQuantKvcache, DType::kBFloat16, Layout::kContiguous);
  const auto problem = MakeProblem(c);
  ASSERT_NE(problem, nullptr);
  const int64_t sequence = c.tokens.sequence;
  const auto row_bytes = static_cast<size_t>(c.head_dim * SizeOf(c.dtype));
  for (const void* table : {problem->tensors().cos, problem->tensors().sin}) {
    char* const rows = static_cast<char*>(const_cast<void*>(table));
    for (int64_t token = 0; token < c.tokens.total(); ++token) {
      const int64_t first = token / sequence * sequence;
      std::memcpy(rows + static_cast<size_t>(token) * row_bytes,
                  rows + static_cast<size_t>(first) * row_bytes, row_bytes);
    }
  }
  problem->ResetOutputs();
  reference::RunExact(problem->ReferenceProblem());
  const TokenStrides shared{sequence * c.head_dim, 0, c.head_dim, 1};
  for (const bool is_cos : {true, false}) {
    problem->ResetLibraryOutputs();
    DequantRopeQuantKvcacheSpec spec = problem->DrqSpec();
    (is_cos ? spec.cos_strides : spec.sin_strides) = shared;
    const Result<Plan> plan = MakePlan(spec);
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    ASSERT_TRUE(plan->Run(problem->tensors(), problem->tokens()).ok());
    const Status same = problem->Compare();
    EXPECT_TRUE(same.ok()) << same.message();
  }
}

}  // namespace
}  // namespace qkvfuse::testing
