// Every refusal of Check and Run for QkvRmsNormRopeCache, and what they accept all the same.
#include <algorithm>
#include <vector>

#include "tests/contract/refusals.h"

namespace qkvfuse::testing {
namespace {

constexpr char kQnrLine[] =
    "op=qnr dtype=bf16 heads=4/2/2 head_dim=64 tokens=8 k_cache=int8+offset v_cache=int8 "
    "layout=pa_nz block_size=32 before_quant=1";

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
          {"qkv extent, token stride",
           kPhase,
           kInvalid,
           {"x", "2^60"},
           [](C& c) {
             c.spec.qkv_strides = TokenStrides{TokenStrides::kFollows, INT64_MAX, 64, 1};
           }},
          {"qkv extent, head stride",
           kPhase,
           kInvalid,
           {"x", "2^60"},
           [](C& c) {
             c.spec.qkv_strides = TokenStrides{TokenStrides::kFollows, 64, INT64_MAX / 2, 1};
           }},
          {"slots extent",
           kPhase,
           kInvalid,
           {"slots", "2^60"},
           [](C& c) { c.spec.slots.stride = INT64_MAX / 4; }},
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

/// A call of up to two tokens, heads 2/1/1 of 64, whose spec a test changes.
struct SmallCall {
  QkvRmsNormRopeCacheSpec spec;
  std::vector<uint16_t> ones = std::vector<uint16_t>(2 * 4 * 64, 0x3C00);
  std::vector<uint16_t> q_out = std::vector<uint16_t>(2 * 2 * 64);
  std::vector<uint16_t> k_cache = std::vector<uint16_t>(2 * 64);
  std::vector<uint16_t> v_cache = std::vector<uint16_t>(2 * 64);
  std::vector<int64_t> slots = {0, 1};

  SmallCall() {
    spec.dtype = DType::kFloat16;
    spec.heads = {2, 1, 1};
    spec.head_dim = 64;
    spec.k_cache.dtype = spec.dtype;
    spec.k_cache.layout = PagedNhd(1, 2, 1, 64);
    spec.v_cache = spec.k_cache;
  }

  Status Run(TokenCount tokens) {
    const Result<Plan> plan = MakePlan(spec);
    if (!plan.ok()) return plan.status();
    Tensors tensors;
    tensors.x = tensors.q_gamma = tensors.k_gamma = tensors.cos = tensors.sin = ones.data();
    tensors.slots = slots.data();
    tensors.q_out = q_out.data();
    tensors.k_cache = k_cache.data();
    tensors.v_cache = v_cache.data();
    return plan->Run(tensors, tokens);
  }
};

// The stride of an axis of one element does not matter, however large it is.
TEST(Contract, OneTokenMayHaveAnyTokenStride) {
  SmallCall call;
  call.spec.qkv_strides = TokenStrides{INT64_MAX / 2, INT64_MAX / 2, 64, 1};
  call.spec.q_out_strides = TokenStrides{INT64_MAX, INT64_MAX, 64, 1};
  call.spec.slots.stride = INT64_MAX / 2;
  const Status one = call.Run(TokenCount(1));
  EXPECT_TRUE(one.ok()) << one.message();
  EXPECT_EQ(call.v_cache[63], 0x3C00);
  EXPECT_EQ(call.Run(TokenCount(2)).code(), kInvalid);
}

// One sequence, or sequences that follow each other, being fine says nothing of these.
TEST(Contract, StridesBetweenSequencesAreLookedAtInEveryCall) {
  SmallCall overlapping;
  overlapping.spec.q_out_strides = TokenStrides{64, 128, 64, 1};
  const Status one = overlapping.Run(TokenCount(1, 2));
  EXPECT_TRUE(one.ok()) << one.message();
  const std::vector<uint16_t> before = overlapping.q_out;
  const Status two = overlapping.Run(TokenCount(2, 1));
  EXPECT_EQ(two.code(), kInvalid);
  EXPECT_NE(two.message().find("q_out: its strides put two elements at one address"),
            std::string::npos)
      << two.message();
  EXPECT_EQ(overlapping.q_out, before);
  SmallCall far;
  far.spec.qkv_strides = TokenStrides{INT64_MAX / 2, 256, 64, 1};
  EXPECT_NE(far.Run(TokenCount(2, 1)).message().find("2^60"), std::string::npos);
}

TEST(Contract, WorkspaceMayNotLieInATensor) {
  const auto problem = MakeProblem(CaseOf(kQnrLine));
  ASSERT_NE(problem, nullptr);
  const Result<Plan> plan = problem->MakePlan();
  ASSERT_TRUE(plan.ok());
  const Workspace inside{problem->tensors().k_cache, plan->WorkspaceBytes(problem->tokens())};
  const Status status = plan->Run(problem->tensors(), problem->tokens(), inside);
  EXPECT_EQ(status.code(), kInvalid);
  EXPECT_NE(status.message().find("workspace: overlaps"), std::string::npos) << status.message();
  EXPECT_TRUE(problem->CompareUntouched().ok());
}

TEST(Contract, CountsThatCheckRefusesNeedNoWorkspace) {
  const auto problem = MakeProblem(CaseOf(kQnrLine));
  ASSERT_NE(problem, nullptr);
  const Result<Plan> plan = problem->MakePlan();
  ASSERT_TRUE(plan.ok());
  for (const TokenCount tokens : {TokenCount(1, INT64_MAX / 2), TokenCount(int64_t{1} << 40, 1),
                                  TokenCount(-3, 7), TokenCount(1, INT64_MIN)}) {
    EXPECT_EQ(plan->WorkspaceBytes(tokens), 0u);
    EXPECT_EQ(plan->TrafficOf(tokens).total(), 0);
    EXPECT_EQ(plan->CheckExtents(tokens).code(), kInvalid);
    EXPECT_NE(plan->Describe(tokens).find("\n  0 tokens:"), std::string::npos);
  }
}

TEST(Contract, MorePartsThanThreadsCanBe) {
  const auto problem = MakeSolvedProblem(CaseOf("op=qnr dtype=fp16 heads=1/1 tokens=3000"));
  ASSERT_NE(problem, nullptr);
  const Result<Plan> plan = problem->MakePlan();
  ASSERT_TRUE(plan.ok());
  RunOptions options;
  options.threads = 100000;
  options.force_split = true;
  ASSERT_TRUE(plan->Run(problem->tensors(), problem->tokens(), options).ok());
  const Status same = problem->Compare();
  EXPECT_TRUE(same.ok()) << same.message();
}

TEST(Contract, RanksOutsideOfTheirRange) {
  for (const int rank : {-1, 9, 1000}) {
    TensorView odd;
    odd.shape.rank = rank;
    QkvRmsNormRopeCacheArguments qnr;
    qnr.qkv = qnr.q_gamma = qnr.k_gamma = qnr.cos = qnr.sin = qnr.index = qnr.q_out = &odd;
    qnr.k_cache = qnr.v_cache = &odd;
    const std::vector<int64_t> sizes = {1, 1, 3, 128};
    const std::vector<int64_t> heads = {1, 1, 1};
    qnr.qkv_size = {sizes.data(), 4};
    qnr.head_nums = {heads.data(), 3};
    const auto bound = Bind(qnr, DoorRules{});
    ASSERT_FALSE(bound.ok());
    EXPECT_NE(bound.status().message().find("qkv: has"), std::string::npos);

    Qnr spec = MakeProblem(CaseOf(kQnrLine))->QnrSpec();
    spec.q_gamma_shape.rank = rank;
    const Result<Plan> plan = MakePlan(spec);
    ASSERT_FALSE(plan.ok());
    EXPECT_NE(plan.status().message().find("q_gamma: has"), std::string::npos);
  }
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

// Only a dense output may lie on an input, and only on its own part of qkv: here the cache has the
// very addresses of cos.
TEST(Contract, QnrCacheOnATableOfTheSameShape) {
  ExpectAllRefused<Qnr>(
      "op=qnr dtype=bf16 heads=2/1/1 head_dim=64 tokens=4 k_cache=16bit v_cache=16bit layout=paged "
      "block_size=4 blocks=1",
      {{"k_cache on cos", Phase::kCheck, kInvalid, {"k_cache", "overlaps cos"}, [](Call<Qnr>& c) {
          c.tensors.k_cache = const_cast<void*>(c.tensors.cos);
        }}});
}

}  // namespace
}  // namespace qkvfuse::testing
