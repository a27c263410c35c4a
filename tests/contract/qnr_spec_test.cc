// Every refusal of MakePlan for QkvRmsNormRopeCache.
#include <limits>
#include <memory>
#include <string>

#include "tests/contract/refusals.h"

namespace qkvfuse::testing {
namespace {

constexpr char kQnrLine[] =
    "op=qnr dtype=bf16 heads=4/2/2 head_dim=64 tokens=8 k_cache=int8+offset v_cache=int8 "
    "layout=pa_nz block_size=32 before_quant=1";

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
          {"too many k heads",
           kPhase,
           kInvalid,
           {"heads", "65536"},
           [](C& c) {
             c.spec.heads = {1, 65537, 65537};
           }},
          {"negative channel chunk",
           kPhase,
           kInvalid,
           {"k_cache", "-32"},
           [](C& c) { c.spec.k_cache.layout.channel_chunk = -32; }},
          {"negative row chunk",
           kPhase,
           kInvalid,
           {"v_cache", "-8"},
           [](C& c) { c.spec.v_cache.layout.row_chunk = -8; }},
          {"other rows",
           kPhase,
           kInvalid,
           {"v_cache", "k_cache"},
           [](C& c) {
             c.spec.v_cache.layout.block_size = 16;
             c.spec.v_cache.layout.row_chunk = 0;
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
          {"slot mode",
           kPhase,
           kInvalid,
           {"slots", "mode is 7", "kSlotPerToken"},
           [](C& c) { c.spec.slots.mode = static_cast<SlotMode>(7); }},
          {"layout without a name",
           kPhase,
           kInvalid,
           {"k_cache", "row chunk of its unnamed layout"},
           [](C& c) {
             c.spec.k_cache.layout.name = nullptr;
             c.spec.k_cache.layout.row_chunk = 7;
           }},
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
          {"path",
           kPhase,
           kInvalid,
           {"path", "9", "kGeneral"},
           [](C& c) { c.options.path = static_cast<Path>(9); }},
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

TEST(Contract, NamesOfLayoutsNeedNotOutliveMakePlan) {
  const auto problem = MakeProblem(CaseOf(kQnrLine));
  ASSERT_NE(problem, nullptr);
  Qnr spec = problem->QnrSpec();
  auto name =
      std::make_unique<std::string>("a layout of a program's own, long enough for the heap");
  spec.k_cache.layout.name = name->c_str();
  spec.v_cache.layout.name = nullptr;
  const Result<Plan> plan = MakePlan(spec);
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  const std::string expected = *name;
  name->assign(name->size(), '?');
  name.reset();
  EXPECT_NE(plan->Describe(TokenCount(8)).find(expected), std::string::npos);
  EXPECT_NE(plan->Describe(TokenCount(8)).find("v_cache: unnamed"), std::string::npos);
}

// The last number that each limit allows, and the first that it does not.
TEST(Contract, QnrLimits) {
  struct Limit {
    const char* name;
    int64_t last;
    int step;  // to the first that is refused
    std::function<void(Qnr&, int64_t)> set;
  };
  const auto two_blocks_apart = [](Qnr& spec, int64_t stride) {
    // Channel 0 of head 0 is the first element of a block, whose others follow it.
    spec.k_cache.layout.blocks = spec.v_cache.layout.blocks = 2;
    spec.k_cache.layout.block_stride = stride;
  };
  constexpr int64_t kBlock = 2 * 64 * 32;  // int8 elements
  constexpr int64_t kExtent = int64_t{1} << 60;
  const Limit limits[] = {
      {"extent", kExtent - (kBlock - 1), 1, two_blocks_apart},
      {"extent backwards", -kExtent, -1, two_blocks_apart},
      {"q heads", 1 << 16, 1, [](Qnr& spec, int64_t n) { spec.heads.q = n; }},
      {"q heads, least", 1, -1, [](Qnr& spec, int64_t n) { spec.heads.q = n; }},
      {"head_dim", 1024, 2,
       [](Qnr& spec, int64_t n) {
         spec.head_dim = n;
         spec.k_cache.layout = spec.v_cache.layout = PagedNhd(1, 32, 2, n);
       }},
      {"head_dim, least", 2, -2,
       [](Qnr& spec, int64_t n) {
         spec.head_dim = n;
         spec.k_cache.layout = spec.v_cache.layout = PagedNhd(1, 32, 2, n);
       }},
      {"blocks", 1, -1,
       [](Qnr& spec, int64_t n) { spec.k_cache.layout.blocks = spec.v_cache.layout.blocks = n; }},
      {"block_size", 1, -1,
       [](Qnr& spec, int64_t n) {
         spec.k_cache.layout.block_size = spec.v_cache.layout.block_size = n;
       }},
      {"elements of a gamma", 64, -1,
       [](Qnr& spec, int64_t n) { spec.q_gamma_shape = StridedShape::Contiguous({n}); }},
      {"rank of a gamma", kMaxRank, 1,
       [](Qnr& spec, int64_t n) {
         spec.q_gamma_shape = StridedShape::Contiguous({1, 1, 1, 1, 1, 1, 1, 64});
         spec.q_gamma_shape.rank = static_cast<int>(n);
       }},
  };
  const auto problem = MakeProblem(CaseOf(kQnrLine));
  ASSERT_NE(problem, nullptr);
  for (const Limit& limit : limits) {
    Qnr spec = problem->QnrSpec();
    limit.set(spec, limit.last);
    const Result<Plan> plan = MakePlan(spec);
    EXPECT_TRUE(plan.ok()) << limit.name << ": " << plan.status().message();
    limit.set(spec, limit.last + limit.step);
    EXPECT_FALSE(MakePlan(spec).ok()) << limit.name;
  }
  const Result<Plan> plan = problem->MakePlan();
  constexpr int64_t kMost = int64_t{1} << 32;
  for (const TokenCount tokens : {TokenCount(kMost), TokenCount(kMost / 2, 2)}) {
    EXPECT_TRUE(plan->CheckExtents(tokens).ok()) << plan->CheckExtents(tokens).message();
  }
  for (const TokenCount tokens : {TokenCount(kMost + 1), TokenCount(kMost / 2 + 1, 2)}) {
    EXPECT_FALSE(plan->CheckExtents(tokens).ok());
  }
}

}  // namespace
}  // namespace qkvfuse::testing
