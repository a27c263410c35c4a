// Bit equality with reference/exact over every type, optional argument, layout, slot pattern and
// kind of data of both operators.
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <tuple>

#include "reference/exact.h"
#include "tests/support/same_bits.h"

namespace qkvfuse::testing {
namespace {

using cases::CacheCase;
using cases::Case;
using cases::DataKind;
using cases::Layout;
using cases::Operator;
using cases::SlotPattern;

constexpr DType kSixteenBit[] = {DType::kFloat16, DType::kBFloat16};
constexpr Layout kLayouts[] = {Layout::kPaNz, Layout::kPaged, Layout::kContiguous};
constexpr DataKind kData[] = {DataKind::kUniform, DataKind::kHeavyTailed, DataKind::kSpecial,
                              DataKind::kTies};

Case SmallCase(Operator op, DType dtype, Layout layout) {
  Case c;
  c.op = op;
  c.dtype = dtype;
  c.x_dtype = dtype;
  c.heads = {3, 2, 2};
  c.head_dim = 64;
  c.tokens = TokenCount(2, 3);
  c.layout = layout;
  c.block_size = 32;
  if (layout == Layout::kContiguous) c.slot_mode = SlotMode::kStartPerSequence;
  if (op == Operator::kDequantRopeQuantKvcache) c.slot_dtype = DType::kInt32;
  return c;
}

using DTypeAndLayout = std::tuple<DType, Layout>;

std::string NameOf(const ::testing::TestParamInfo<DTypeAndLayout>& info) {
  const auto [dtype, layout] = info.param;
  const char* layouts[] = {"pa_nz", "paged", "contiguous"};
  return std::string(Name(dtype)) + "_" + layouts[static_cast<int>(layout)];
}

class TypesAndOptions : public ::testing::TestWithParam<DTypeAndLayout> {};

TEST_P(TypesAndOptions, QkvRmsNormRopeCache) {
  const auto [dtype, layout] = GetParam();
  const CacheCase caches[] = {{dtype, false}, {DType::kInt8, false}, {DType::kInt8, true}};
  for (const CacheCase& k_cache : caches) {
    for (const CacheCase& v_cache : caches) {
      for (const bool before_quant : {false, true}) {
        Case c = SmallCase(Operator::kQkvRmsNormRopeCache, dtype, layout);
        c.k_cache = k_cache;
        c.v_cache = v_cache;
        c.dense_kv = before_quant;
        for (c.data = DataKind::kUniform; c.data <= DataKind::kTies;
             c.data = static_cast<DataKind>(static_cast<int>(c.data) + 1)) {
          ExpectSameBits(c);
        }
      }
    }
  }
}

struct Dequantisation {
  bool is_int32 = true;
  bool token_scale = false;
  std::optional<DType> bias;
};

std::vector<Dequantisation> AllDequantisations() {
  std::vector<Dequantisation> all = {{false, false, std::nullopt}};
  for (const bool token_scale : {false, true}) {
    all.push_back({true, token_scale, std::nullopt});
    for (const DType bias : {DType::kFloat32, DType::kFloat16, DType::kBFloat16, DType::kInt32}) {
      all.push_back({true, token_scale, bias});
    }
  }
  return all;
}

TEST_P(TypesAndOptions, DequantRopeQuantKvcache) {
  const auto [dtype, layout] = GetParam();
  for (const Dequantisation& dequantisation : AllDequantisations()) {
    for (int options = 0; options < 8; ++options) {
      Case c = SmallCase(Operator::kDequantRopeQuantKvcache, dtype, layout);
      if (dequantisation.is_int32) c.x_dtype = DType::kInt32;
      c.token_scale = dequantisation.token_scale;
      c.bias = dequantisation.bias;
      c.k_cache.has_offset = (options & 1) != 0;
      c.v_cache.has_offset = (options & 2) != 0;
      c.dense_kv = (options & 4) != 0;
      c.seed = static_cast<uint64_t>(options) + 1;
      for (const DataKind data : kData) {
        c.data = data;
        ExpectSameBits(c);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Operator, TypesAndOptions,
                         ::testing::Combine(::testing::ValuesIn(kSixteenBit),
                                            ::testing::ValuesIn(kLayouts)),
                         NameOf);

// Some wrong roundings show in one value of ten thousand: enough values to meet them.
class ManyValues : public ::testing::TestWithParam<const char*> {};

TEST_P(ManyValues, SameBits) {
  for (const char* data : {"uniform", "heavy_tailed"}) {
    ExpectSameBits(
        CaseOf(std::string("tokens=1500 heads=6/2 head_dim=128 data=") + data + " " + GetParam()));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Operator, ManyValues,
    ::testing::Values("op=qnr dtype=bf16 k_cache=int8 v_cache=int8+offset before_quant=1",
                      "op=qnr dtype=fp16 k_cache=int8+offset v_cache=int8 before_quant=1",
                      "op=qnr dtype=bf16 k_cache=16bit v_cache=16bit",
                      "op=qnr dtype=fp16 k_cache=16bit v_cache=16bit",
                      "op=drq dtype=bf16 x=16bit layout=paged kv_output=1",
                      "op=drq dtype=fp16 x=16bit layout=paged kv_output=1",
                      "op=drq dtype=bf16 layout=paged token_scale=1 bias=fp32 kv_output=1",
                      "op=drq dtype=fp16 layout=paged token_scale=1 bias=bf16 kv_output=1"));

// Slots of every pattern, type and rule, in every layout.
class Slots : public ::testing::TestWithParam<DTypeAndLayout> {};

TEST_P(Slots, EveryPattern) {
  const auto [dtype, layout] = GetParam();
  for (const Operator op : {Operator::kQkvRmsNormRopeCache, Operator::kDequantRopeQuantKvcache}) {
    for (const DType slot_dtype : {DType::kInt32, DType::kInt64}) {
      for (const SlotMode mode : {SlotMode::kSlotPerToken, SlotMode::kStartPerSequence}) {
        for (const SlotPattern pattern :
             {SlotPattern::kSequential, SlotPattern::kShuffled, SlotPattern::kPadded,
              SlotPattern::kRepeated, SlotPattern::kSkipped}) {
          Case c = SmallCase(op, dtype, layout);
          c.tokens = TokenCount(5, 9);
          c.slot_dtype = slot_dtype;
          c.slot_mode = mode;
          c.slots = pattern;
          c.strict = pattern != SlotPattern::kRepeated;
          if (cases::Validate(c).ok()) ExpectSameBits(c);
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Operator, Slots,
                         ::testing::Combine(::testing::ValuesIn(kSixteenBit),
                                            ::testing::ValuesIn(kLayouts)),
                         NameOf);

// A token that names the slot of a later one must not reach the cache, whichever thread runs it.
TEST(RepeatedSlots, LastTokenWinsAtEveryThreadCount) {
  for (const uint64_t seed : {1U, 2U, 3U}) {
    Case c = SmallCase(Operator::kQkvRmsNormRopeCache, DType::kBFloat16, Layout::kPaNz);
    c.tokens = TokenCount(301);
    c.slots = SlotPattern::kRepeated;
    c.strict = false;
    c.seed = seed;
    ExpectSameBits(c, TargetsPathsAndThreads());
  }
}

// Runs a case that must be refused with a sentence that names `argument`.
void ExpectRefusal(const cases::Problem& problem, const std::string& argument) {
  const std::string line = cases::PrintCase(problem.description());
  const Result<Plan> plan = problem.MakePlan();
  ASSERT_TRUE(plan.ok()) << plan.status().message() << "\n  case: " << line;
  const Status status = plan->Run(problem.tensors(), problem.tokens());
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << line;
  EXPECT_NE(status.message().find(argument), std::string::npos) << status.message();
  const Status untouched = problem.CompareUntouched();
  EXPECT_TRUE(untouched.ok()) << untouched.message() << "\n  case: " << line;
}

constexpr const char* kStrictLines[] = {
    "op=qnr dtype=bf16 heads=2/1 tokens=40 k_cache=int8+offset v_cache=int8 before_quant=1",
    "op=drq dtype=fp16 heads=2/1 tokens=40 layout=paged kv_output=1",
};

TEST(Strictness, RefusesRepeatedSlotsAndWritesNothing) {
  for (const char* line : kStrictLines) {
    const auto problem = MakeProblem(CaseOf(std::string(line) + " slots=repeated"));
    ASSERT_NE(problem, nullptr);
    ExpectRefusal(*problem, "slots");
  }
}

TEST(Strictness, RefusesAZeroScaleAndWritesNothing) {
  for (const char* line : kStrictLines) {
    const auto problem = MakeProblem(CaseOf(line));
    ASSERT_NE(problem, nullptr);
    for (const cases::NamedView& input : problem->Inputs()) {
      if (input.id != cases::TensorId::kKScale && input.id != cases::TensorId::kVScale) continue;
      float& last = static_cast<float*>(input.view.data)[input.view.shape.ElementCount() - 1];
      const float before = last;
      last = -0.0F;
      ExpectRefusal(*problem, std::string(input.name));
      last = before;
    }
  }
}

// Zero scales in lenient mode: the division follows IEEE.
TEST(Strictness, LenientZeroScalesFollowIeee) {
  for (const char* line : kStrictLines) {
    Case c = CaseOf(line);
    c.strict = false;
    const auto problem = MakeProblem(c);
    ASSERT_NE(problem, nullptr);
    for (const cases::NamedView& input : problem->Inputs()) {
      if (input.id != cases::TensorId::kKScale && input.id != cases::TensorId::kVScale) continue;
      for (int64_t i = 0; i < input.view.shape.ElementCount(); i += 3) {
        static_cast<float*>(input.view.data)[i] = i % 2 == 0 ? 0.0F : -0.0F;
      }
    }
    problem->ResetOutputs();
    reference::RunExact(problem->ReferenceProblem());
    for (const Variant& variant : TargetsAndPaths()) EXPECT_TRUE(SameBits(*problem, variant));
  }
}

TEST(NoTokens, IsASuccessfulNoOp) {
  for (const char* line :
       {"op=qnr dtype=bf16 heads=4/2 tokens=0", "op=qnr dtype=fp16 heads=4/2 tokens=0x5",
        "op=drq dtype=fp16 heads=4/2 tokens=3x0", "op=drq dtype=bf16 heads=4/2 tokens=0 x=16bit"}) {
    ExpectSameBits(CaseOf(line));
  }
}

// The hot combinations must not fall back to the general path unnoticed.
TEST(FusedKernels, CoverTheHotCombinations) {
  for (const char* line :
       {"op=qnr dtype=bf16 heads=32/8 k_cache=int8 v_cache=int8",
        "op=qnr dtype=fp16 heads=32/8 k_cache=int8+offset v_cache=16bit before_quant=1",
        "op=qnr dtype=bf16 heads=32/8 k_cache=16bit v_cache=16bit head_dim=80",
        "op=drq dtype=bf16 heads=32/8 token_scale=1 bias=fp32 kv_output=1",
        "op=drq dtype=fp16 heads=32/8 x=16bit k_cache=int8+offset v_cache=int8"}) {
    Case c = CaseOf(line);
    for (const std::string& target : AvailableTargets()) {
      c.target = target;
      c.path = Path::kFused;
      const auto problem = MakeProblem(c);
      ASSERT_NE(problem, nullptr);
      const Result<Plan> plan = problem->MakePlan();
      ASSERT_TRUE(plan.ok()) << plan.status().message() << "\n  case: " << cases::PrintCase(c);
      EXPECT_TRUE(plan->is_fused());
      c.path = Path::kGeneral;
      const Result<Plan> general = problem->MakePlan({true, Path::kGeneral, target});
      ASSERT_TRUE(general.ok());
      EXPECT_FALSE(general->is_fused());
    }
  }
}

}  // namespace
}  // namespace qkvfuse::testing
