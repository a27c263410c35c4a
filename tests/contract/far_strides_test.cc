// Strides that no address is made from may be any number, and those that reach beyond 2^60 bytes
// are refused without overflow on the way (which UndefinedBehaviorSanitizer sees).
#include <cstdint>
#include <limits>
#include <vector>

#include "tests/contract/refusals.h"

namespace qkvfuse::testing {
namespace {

constexpr int64_t kFar = std::numeric_limits<int64_t>::max();

/// Runs the case with a Spec that `change` has changed, and compares with the exact reference.
template <typename Spec, typename Change>
void ExpectNothingChanges(const char* line, Change&& change) {
  const auto problem = MakeSolvedProblem(CaseOf(line));
  ASSERT_NE(problem, nullptr);
  for (const Variant& variant : TargetsAndPaths()) {
    Spec spec = SpecOf<Spec>(*problem);
    change(spec);
    problem->ResetLibraryOutputs();
    const Result<Plan> plan = MakePlan(spec, {true, variant.path, variant.target});
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    const Status status = plan->Run(problem->tensors(), problem->tokens());
    ASSERT_TRUE(status.ok()) << status.message();
    const Status same = problem->Compare();
    EXPECT_TRUE(same.ok()) << same.message();
  }
}

TEST(FarStrides, OfAxesOfOneElement) {
  ExpectNothingChanges<Qnr>(
      "op=qnr dtype=bf16 heads=1/1/1 head_dim=128 tokens=1 layout=paged before_quant=1 "
      "k_cache=bf16",
      [](Qnr& spec) {
        for (auto* strides : {&spec.q_out_strides, &spec.q_before_quant_strides,
                              &spec.k_out_strides, &spec.v_out_strides, &spec.cos_strides}) {
          *strides = TokenStrides{kFar, kFar, kFar, 1};
        }
        spec.qkv_strides = TokenStrides{kFar, -kFar, 128, 1};
        spec.k_cache.layout.head_stride = kFar;
        spec.v_cache.layout.head_stride = -kFar;
        spec.slots.stride = kFar;
      });
}

// 16 MiB of q: large enough to be stored past the caches.
TEST(FarStrides, OfTheOnlyHeadOfALargeOutput) {
  const auto problem = MakeProblem(
      CaseOf("op=qnr dtype=fp16 heads=1/1/1 head_dim=128 tokens=65536 layout=paged slots=skipped"));
  ASSERT_NE(problem, nullptr);
  const cases::NamedView q_out = problem->Outputs().front();
  ASSERT_EQ(q_out.id, cases::TensorId::kQOut);
  const auto rows_with = [&](int64_t head_stride) {
    Qnr spec = problem->QnrSpec();
    spec.q_out_strides = TokenStrides{TokenStrides::kFollows, 128, head_stride, 1};
    problem->ResetLibraryOutputs();
    const Result<Plan> plan = MakePlan(spec);
    EXPECT_TRUE(plan.ok() && plan->Run(problem->tensors(), problem->tokens()).ok());
    const auto* const rows = static_cast<const uint16_t*>(q_out.view.data);
    return std::vector<uint16_t>(rows, rows + q_out.view.shape.ElementCount());
  };
  EXPECT_EQ(rows_with(128), rows_with(kFar));
}

TEST(FarStrides, OfChunksThatALayoutDoesNotHave) {
  for (const char* line :
       {"op=qnr dtype=fp16 heads=2/1/1 head_dim=46 tokens=3 layout=paged k_cache=fp16",
        "op=qnr dtype=fp16 heads=2/1/1 head_dim=128 tokens=3 layout=paged k_cache=fp16"}) {
    ExpectNothingChanges<Qnr>(line, [](Qnr& spec) {
      spec.k_cache.layout.channel_chunk_stride = kFar;
      spec.v_cache.layout.channel_chunk_stride = -kFar;
      spec.k_cache.layout.row_chunk_stride = kFar;
    });
  }
}

TEST(FarStrides, OfParametersWithoutElements) {
  constexpr char kLine[] =
      "op=drq x=int32 dtype=fp16 heads=1/1/1 head_dim=64 tokens=0 layout=contiguous token_scale=1";
  const auto problem = MakeProblem(CaseOf(kLine));
  ASSERT_NE(problem, nullptr);
  constexpr int64_t kLarge = int64_t{1} << 40;
  for (const bool is_wide : {false, true}) {
    Drq spec = problem->DrqSpec();
    StridedShape& shape = spec.token_scale_shape;
    shape.rank = is_wide ? 3 : 1;
    shape.dims = {0, kLarge, kLarge};
    shape.strides = {is_wide ? 1 : kFar, kLarge, 1};
    const Result<Plan> plan = MakePlan(spec);
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    EXPECT_TRUE(plan->Run(problem->tensors(), TokenCount(0)).ok());
    const Status status = plan->Run(problem->tensors(), TokenCount(1));
    EXPECT_EQ(status.message().rfind("token_scale: ", 0), 0U) << status.message();
  }
}

TEST(FarStrides, OfHeadsAreRefused) {
  const auto problem = MakeProblem(CaseOf("op=qnr heads=1/1/1 head_dim=128 tokens=1"));
  ASSERT_NE(problem, nullptr);
  for (const int64_t head : {kFar / 2, kFar, -kFar, std::numeric_limits<int64_t>::min()}) {
    Qnr spec = problem->QnrSpec();
    spec.qkv_strides = TokenStrides{TokenStrides::kFollows, 384, head, 1};
    const Result<Plan> plan = MakePlan(spec);
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    const Status status = plan->Run(problem->tensors(), problem->tokens());
    EXPECT_EQ(status.code(), kInvalid);
    EXPECT_EQ(status.message(), "x: its sizes and strides span more than 2^60 bytes");
  }
}

}  // namespace
}  // namespace qkvfuse::testing
