// Every refusal of the C++ door: code, the name in the sentence, and not one output byte changed.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "tests/support/same_bits.h"

namespace qkvfuse::testing {
namespace {

using Qnr = QkvRmsNormRopeCacheSpec;
using Drq = DequantRopeQuantKvcacheSpec;

constexpr char kQnrLine[] =
    "op=qnr dtype=bf16 heads=4/2/2 head_dim=64 tokens=8 k_cache=int8+offset v_cache=int8 "
    "layout=pa_nz block_size=32 before_quant=1";
constexpr char kDrqLine[] =
    "op=drq x=int32 dtype=fp16 heads=4/2/2 head_dim=64 tokens=2x4 layout=contiguous "
    "block_size=32 kv_output=1 token_scale=1 bias=fp32";

/// A call that is right but for what a row changes.
template <typename Spec>
struct Call {
  Spec spec;
  Tensors tensors;
  TokenCount tokens{0};
  PlanOptions options;
  std::vector<char> memory;
  Workspace workspace;
};

enum class Phase { kMakePlan, kCheck };

template <typename Spec>
struct Refusal {
  const char* name;
  Phase phase;
  StatusCode code;
  std::vector<std::string> words;  // that the sentence has
  std::function<void(Call<Spec>&)> break_it;
};

template <typename Spec>
Spec SpecOf(const cases::Problem& problem) {
  if constexpr (std::is_same_v<Spec, Qnr>) {
    return problem.QnrSpec();
  } else {
    return problem.DrqSpec();
  }
}

/// Makes the plan and, when that is accepted, runs it.
template <typename Spec>
void ExpectRefused(cases::Problem& problem, const Refusal<Spec>& refusal) {
  SCOPED_TRACE(refusal.name);
  Call<Spec> call{SpecOf<Spec>(problem), problem.tensors(), problem.tokens(), {}, {}, {}};
  call.memory.resize(1 << 20);
  call.workspace = {call.memory.data(), call.memory.size()};
  refusal.break_it(call);
  problem.ResetLibraryOutputs();
  const Result<Plan> plan = MakePlan(call.spec, call.options);
  Status status = plan.ok() ? Status() : plan.status();
  if (refusal.phase == Phase::kCheck) {
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    status = plan->Run(call.tensors, call.tokens, call.workspace);
  }
  EXPECT_EQ(status.code(), refusal.code) << status.message();
  for (const std::string& word : refusal.words) {
    EXPECT_NE(status.message().find(word), std::string::npos)
        << "no '" << word << "' in: " << status.message();
  }
  const Status untouched = problem.CompareUntouched();
  EXPECT_TRUE(untouched.ok()) << untouched.message();
}

template <typename Spec>
void ExpectAllRefused(const char* line, const std::vector<Refusal<Spec>>& refusals) {
  const auto problem = MakeProblem(CaseOf(line));
  ASSERT_NE(problem, nullptr);
  for (const Refusal<Spec>& refusal : refusals) ExpectRefused(*problem, refusal);
  // The unbroken call is accepted, so each row is refused for what it breaks.
  const Result<Plan> plan = problem->MakePlan();
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  EXPECT_TRUE(plan->Run(problem->tensors(), problem->tokens()).ok());
}

constexpr auto kInvalid = StatusCode::kInvalidArgument;
constexpr auto kNull = StatusCode::kNullArgument;

TEST(Contract, QnrSpec) {
  constexpr auto kPhase = Phase::kMakePlan;
  using C = Call<Qnr>;
  const double kNan = std::numeric_limits<double>::quiet_NaN();
  const double kInf = std::numeric_limits<double>::infinity();
  ExpectAllRefused<Qnr>(
      kQnrLine,
      {
          {"dtype",
           kPhase,
           kInvalid,
           {"dtype", "fp32"},
           [](C& c) { c.spec.dtype = DType::kFloat32; }},
          {"no q heads", kPhase, kInvalid, {"heads"}, [](C& c) { c.spec.heads.q = 0; }},
          {"negative heads", kPhase, kInvalid, {"heads"}, [](C& c) { c.spec.heads.k = -1; }},
          {"k is not v", kPhase, kInvalid, {"heads", "equal"}, [](C& c) { c.spec.heads.v = 1; }},
          {"too many heads",
           kPhase,
           kInvalid,
           {"heads"},
           [](C& c) { c.spec.heads.q = int64_t{1} << 50; }},
          {"odd head_dim",
           kPhase,
           kInvalid,
           {"head_dim", "63"},
           [](C& c) { c.spec.head_dim = 63; }},
          {"head_dim 0", kPhase, kInvalid, {"head_dim"}, [](C& c) { c.spec.head_dim = 0; }},
          {"head_dim 1026",
           kPhase,
           kInvalid,
           {"head_dim", "1024"},
           [](C& c) { c.spec.head_dim = 1026; }},
          {"PA_NZ chunk",
           kPhase,
           kInvalid,
           {"k_cache", "multiple of 32"},
           [](C& c) { c.spec.head_dim = 48; }},
          {"epsilon below 0", kPhase, kInvalid, {"epsilon"}, [](C& c) { c.spec.epsilon = -1e-6; }},
          {"epsilon NaN", kPhase, kInvalid, {"epsilon"}, [=](C& c) { c.spec.epsilon = kNan; }},
          {"epsilon infinite", kPhase, kInvalid, {"epsilon"}, [=](C& c) { c.spec.epsilon = kInf; }},
          {"epsilon 0 as float",
           kPhase,
           kInvalid,
           {"epsilon"},
           [](C& c) { c.spec.epsilon = 1e-50; }},
          {"epsilon infinite as float",
           kPhase,
           kInvalid,
           {"epsilon"},
           [](C& c) { c.spec.epsilon = 1e50; }},
          {"k_cache type",
           kPhase,
           kInvalid,
           {"k_cache", "fp16"},
           [](C& c) { c.spec.k_cache.dtype = DType::kFloat16; }},
          {"v_cache type",
           kPhase,
           kInvalid,
           {"v_cache", "int32"},
           [](C& c) { c.spec.v_cache.dtype = DType::kInt32; }},
          {"offset without int8",
           kPhase,
           kInvalid,
           {"v_offset"},
           [](C& c) {
             c.spec.v_cache.dtype = c.spec.dtype;
             c.spec.v_cache.has_offset = true;
           }},
          {"no blocks",
           kPhase,
           kInvalid,
           {"k_cache", "blocks"},
           [](C& c) { c.spec.k_cache.layout.blocks = 0; }},
          {"no rows",
           kPhase,
           kInvalid,
           {"v_cache", "block_size"},
           [](C& c) { c.spec.v_cache.layout.block_size = 0; }},
          {"other blocks",
           kPhase,
           kInvalid,
           {"v_cache", "k_cache"},
           [](C& c) { c.spec.v_cache.layout.blocks += 1; }},
          {"slots beyond 2^63",
           kPhase,
           kInvalid,
           {"k_cache", "2^63"},
           [](C& c) { c.spec.k_cache.layout.blocks = int64_t{1} << 60; }},
          {"extent",
           kPhase,
           kInvalid,
           {"k_cache", "2^60"},
           [](C& c) { c.spec.k_cache.layout.block_stride = int64_t{1} << 61; }},
          {"cache overlaps itself",
           kPhase,
           kInvalid,
           {"v_cache", "overlap"},
           [](C& c) { c.spec.v_cache.layout.row_stride = 16; }},
          {"cache rows at stride 0",
           kPhase,
           kInvalid,
           {"k_cache", "overlap"},
           [](C& c) { c.spec.k_cache.layout.row_stride = 0; }},
          {"row chunk",
           kPhase,
           kInvalid,
           {"k_cache", "row chunk"},
           [](C& c) { c.spec.k_cache.layout.row_chunk = 7; }},
          {"slot type",
           kPhase,
           kInvalid,
           {"slots", "int8"},
           [](C& c) { c.spec.slots.dtype = DType::kInt8; }},
          {"short scale",
           kPhase,
           kInvalid,
           {"k_scale", "128"},
           [](C& c) {
             c.spec.k_cache.scale_shape = StridedShape::Contiguous({2, 32});
           }},
          {"negative size",
           kPhase,
           kInvalid,
           {"v_scale", "-2"},
           [](C& c) {
             c.spec.v_cache.scale_shape = StridedShape::Contiguous({-2, -64});
           }},
          {"short gamma",
           kPhase,
           kInvalid,
           {"q_gamma", "64"},
           [](C& c) { c.spec.q_gamma_shape = StridedShape::Contiguous({63}); }},
          {"target",
           kPhase,
           kInvalid,
           {"target", "mmx", "scalar"},
           [](C& c) { c.options.target = "mmx"; }},
          {"no fused kernel",
           kPhase,
           kInvalid,
           {"path", "q_out has channel stride 2"},
           [](C& c) {
             c.options.path = Path::kFused;
             c.spec.q_out_strides = TokenStrides{TokenStrides::kFollows, 512, 128, 2};
           }},
      });
}

TEST(Contract, QnrData) {
  constexpr auto kPhase = Phase::kCheck;
  using C = Call<Qnr>;
  static int64_t slots[8];
  const auto with_slots = [](C& c, std::initializer_list<int64_t> values) {
    std::copy(values.begin(), values.end(), slots);
    c.tensors.slots = slots;
  };
  const auto offset = [](const void* pointer, int64_t bytes) {
    return static_cast<const char*>(pointer) + bytes;
  };
  const auto output_offset = [](void* pointer, int64_t bytes) {
    return static_cast<char*>(pointer) + bytes;
  };
  static std::vector<float> zero_scale(128, 1.0f);
  zero_scale[77] = 0.0f;
  ExpectAllRefused<Qnr>(
      kQnrLine,
      {
          {"negative tokens",
           kPhase,
           kInvalid,
           {"tokens"},
           [](C& c) { c.tokens = TokenCount(-1); }},
          {"too many tokens",
           kPhase,
           kInvalid,
           {"tokens"},
           [](C& c) { c.tokens = TokenCount(int64_t{1} << 40, int64_t{1} << 40); }},
          {"null qkv", kPhase, kNull, {"x"}, [](C& c) { c.tensors.x = nullptr; }},
          {"null q_gamma", kPhase, kNull, {"q_gamma"}, [](C& c) { c.tensors.q_gamma = nullptr; }},
          {"null k_gamma", kPhase, kNull, {"k_gamma"}, [](C& c) { c.tensors.k_gamma = nullptr; }},
          {"null cos", kPhase, kNull, {"cos"}, [](C& c) { c.tensors.cos = nullptr; }},
          {"null sin", kPhase, kNull, {"sin"}, [](C& c) { c.tensors.sin = nullptr; }},
          {"null index", kPhase, kNull, {"slots"}, [](C& c) { c.tensors.slots = nullptr; }},
          {"null k_scale", kPhase, kNull, {"k_scale"}, [](C& c) { c.tensors.k_scale = nullptr; }},
          {"null v_scale", kPhase, kNull, {"v_scale"}, [](C& c) { c.tensors.v_scale = nullptr; }},
          {"null k_offset",
           kPhase,
           kNull,
           {"k_offset"},
           [](C& c) { c.tensors.k_offset = nullptr; }},
          {"null q_out", kPhase, kNull, {"q_out"}, [](C& c) { c.tensors.q_out = nullptr; }},
          {"null q_before_quant",
           kPhase,
           kNull,
           {"q_before_quant"},
           [](C& c) { c.tensors.q_before_quant = nullptr; }},
          {"null k_out", kPhase, kNull, {"k_out"}, [](C& c) { c.tensors.k_out = nullptr; }},
          {"null v_out", kPhase, kNull, {"v_out"}, [](C& c) { c.tensors.v_out = nullptr; }},
          {"null k_cache", kPhase, kNull, {"k_cache"}, [](C& c) { c.tensors.k_cache = nullptr; }},
          {"null v_cache", kPhase, kNull, {"v_cache"}, [](C& c) { c.tensors.v_cache = nullptr; }},
          {"misaligned qkv",
           kPhase,
           kInvalid,
           {"x", "multiple of the element size"},
           [=](C& c) { c.tensors.x = offset(c.tensors.x, 1); }},
          {"misaligned index",
           kPhase,
           kInvalid,
           {"slots"},
           [=](C& c) { c.tensors.slots = offset(c.tensors.slots, 4); }},
          {"misaligned scale",
           kPhase,
           kInvalid,
           {"v_scale"},
           [=](C& c) { c.tensors.v_scale = offset(c.tensors.v_scale, 2); }},
          {"misaligned q_out",
           kPhase,
           kInvalid,
           {"q_out"},
           [=](C& c) { c.tensors.q_out = output_offset(c.tensors.q_out, 1); }},
          {"null workspace",
           kPhase,
           kNull,
           {"workspace"},
           [](C& c) { c.workspace.data = nullptr; }},
          {"small workspace",
           kPhase,
           kInvalid,
           {"workspace", "10"},
           [](C& c) { c.workspace.bytes = 10; }},
          {"slot too large",
           kPhase,
           kInvalid,
           {"slots", "element 3", "1000000"},
           [=](C& c) {
             with_slots(c, {0, 1, 2, 1000000, 4, 5, 6, 7});
           }},
          {"slot at the capacity",
           kPhase,
           kInvalid,
           {"slots", "element 7"},
           [=](C& c) {
             with_slots(c, {0, 1, 2, 3, 4, 5, 6, c.spec.k_cache.layout.slots()});
           }},
          {"slot below -1",
           kPhase,
           kInvalid,
           {"slots", "-2", "strict"},
           [=](C& c) {
             with_slots(c, {0, 1, -2, 3, 4, 5, 6, 7});
           }},
          {"repeated slot",
           kPhase,
           kInvalid,
           {"slots", "elements 1 and 6", "strict"},
           [=](C& c) {
             with_slots(c, {0, 9, 2, 3, 4, 5, 9, 7});
           }},
          {"zero scale",
           kPhase,
           kInvalid,
           {"k_scale", "element 77", "strict"},
           [](C& c) { c.tensors.k_scale = zero_scale.data(); }},
          {"k_cache on v_cache",
           kPhase,
           kInvalid,
           {"k_cache", "v_cache", "overlap"},
           [](C& c) { c.tensors.v_cache = c.tensors.k_cache; }},
          {"q_out on cos",
           kPhase,
           kInvalid,
           {"q_out", "cos"},
           [](C& c) { c.tensors.cos = c.tensors.q_out; }},
          {"q_out on q_before_quant",
           kPhase,
           kInvalid,
           {"q_out"},
           [](C& c) { c.tensors.q_before_quant = c.tensors.q_out; }},
          {"k_out one element into v_out",
           kPhase,
           kInvalid,
           {"k_out", "v_out"},
           [=](C& c) { c.tensors.k_out = output_offset(c.tensors.v_out, 2); }},
          {"packed q_out on the first rows of qkv",
           kPhase,
           kInvalid,
           {"q_out", "x"},
           [](C& c) { c.tensors.q_out = const_cast<void*>(c.tensors.x); }},
          {"q_out overlaps itself",
           kPhase,
           kInvalid,
           {"q_out", "overlap"},
           [](C& c) {
             c.spec.q_out_strides = TokenStrides{TokenStrides::kFollows, 64, 64, 1};
           }},
          {"q_out at stride 0",
           kPhase,
           kInvalid,
           {"q_out", "overlap"},
           [](C& c) {
             c.spec.q_out_strides = TokenStrides{TokenStrides::kFollows, 0, 64, 1};
           }},
          {"qkv extent",
           kPhase,
           kInvalid,
           {"x", "2^60"},
           [](C& c) {
             c.spec.qkv_strides = TokenStrides{TokenStrides::kFollows, INT64_MAX / 2, 64, 1};
           }},
      });
}

TEST(Contract, DrqSpec) {
  constexpr auto kPhase = Phase::kMakePlan;
  using C = Call<Drq>;
  ExpectAllRefused<Drq>(
      kDrqLine,
      {
          {"dtype", kPhase, kInvalid, {"dtype"}, [](C& c) { c.spec.dtype = DType::kInt8; }},
          {"x type",
           kPhase,
           kInvalid,
           {"x", "bf16", "fp16"},
           [](C& c) { c.spec.x_dtype = DType::kBFloat16; }},
          {"fp32 x",
           kPhase,
           kInvalid,
           {"x", "fp32"},
           [](C& c) { c.spec.x_dtype = DType::kFloat32; }},
          {"token scale without int32",
           kPhase,
           kInvalid,
           {"token_scale"},
           [](C& c) { c.spec.x_dtype = DType::kFloat16; }},
          {"bias without int32",
           kPhase,
           kInvalid,
           {"bias"},
           [](C& c) {
             c.spec.x_dtype = DType::kFloat16;
             c.spec.has_token_scale = false;
           }},
          {"bias type",
           kPhase,
           kInvalid,
           {"bias", "int64"},
           [](C& c) { c.spec.bias = DType::kInt64; }},
          {"16-bit cache",
           kPhase,
           kInvalid,
           {"v_cache", "int8"},
           [](C& c) { c.spec.v_cache.dtype = DType::kFloat16; }},
          {"short weight_scale",
           kPhase,
           kInvalid,
           {"weight_scale", "512"},
           [](C& c) { c.spec.weight_scale_shape = StridedShape::Contiguous({511}); }},
          {"short bias",
           kPhase,
           kInvalid,
           {"bias", "512"},
           [](C& c) {
             c.spec.bias_shape = StridedShape::Contiguous({8, 63});
           }},
          {"slot type",
           kPhase,
           kInvalid,
           {"slots"},
           [](C& c) { c.spec.slots.dtype = DType::kFloat32; }},
      });
}

TEST(Contract, DrqData) {
  constexpr auto kPhase = Phase::kCheck;
  using C = Call<Drq>;
  static int32_t starts[2];
  const auto with_starts = [](C& c, int32_t a, int32_t b) {
    starts[0] = a;
    starts[1] = b;
    c.spec.slots.dtype = DType::kInt32;
    c.tensors.slots = starts;
  };
  ExpectAllRefused<Drq>(
      kDrqLine,
      {
          {"null x", kPhase, kNull, {"x"}, [](C& c) { c.tensors.x = nullptr; }},
          {"null weight_scale",
           kPhase,
           kNull,
           {"weight_scale"},
           [](C& c) { c.tensors.weight_scale = nullptr; }},
          {"null token scale",
           kPhase,
           kNull,
           {"token_scale"},
           [](C& c) { c.tensors.token_scale = nullptr; }},
          {"null bias", kPhase, kNull, {"bias"}, [](C& c) { c.tensors.bias = nullptr; }},
          {"null scale_k", kPhase, kNull, {"k_scale"}, [](C& c) { c.tensors.k_scale = nullptr; }},
          {"negative start",
           kPhase,
           kInvalid,
           {"slots", "element 1", "-1"},
           [=](C& c) { with_starts(c, 0, -1); }},
          {"start too late",
           kPhase,
           kInvalid,
           {"slots", "element 0", "29"},
           [=](C& c) { with_starts(c, 29, 0); }},
          {"more sequences than the cache",
           kPhase,
           kInvalid,
           {"k_cache", "batch"},
           [](C& c) { c.tokens = TokenCount(int64_t{1} << 20, 1); }},
          {"longer sequences than the cache",
           kPhase,
           kInvalid,
           {"k_cache", "33"},
           [](C& c) { c.tokens = TokenCount(1, 33); }},
          {"short token scale",
           kPhase,
           kInvalid,
           {"token_scale", "8"},
           [](C& c) { c.spec.token_scale_shape = StridedShape::Contiguous({7}); }},
      });
}

TEST(Contract, LenientAcceptsWhatStrictRefuses) {
  const auto problem = MakeProblem(CaseOf(kQnrLine));
  ASSERT_NE(problem, nullptr);
  PlanOptions lenient;
  lenient.strict = false;
  const Result<Plan> plan = problem->MakePlan(lenient);
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  Tensors tensors = problem->tensors();
  const std::vector<int64_t> slots = {5, 5, -7, 5, -1, -1, 2, 3};
  const std::vector<float> scale(128, 0.0f);
  tensors.slots = slots.data();
  tensors.k_scale = scale.data();
  EXPECT_TRUE(plan->Run(tensors, problem->tokens()).ok());
}

TEST(Contract, ZeroTokensNeedNothing) {
  const auto problem = MakeProblem(CaseOf(kQnrLine));
  ASSERT_NE(problem, nullptr);
  const Result<Plan> plan = problem->MakePlan();
  ASSERT_TRUE(plan.ok());
  EXPECT_TRUE(plan->Run(Tensors{}, TokenCount(0), Workspace{}).ok());
  EXPECT_TRUE(plan->Run(Tensors{}, TokenCount(0, 5)).ok());
  EXPECT_EQ(plan->WorkspaceBytes(TokenCount(0)), 0u);
}

}  // namespace
}  // namespace qkvfuse::testing
