// The interval test against reference/precise: every output of the library passes it, and outputs
// of a sloppier evaluation do not.
#include "reference/accuracy.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>

#include "cases/fill.h"
#include "qkvfuse/qkvfuse.hpp"
#include "reference/precise.h"
#include "tests/support/same_bits.h"

namespace qkvfuse::testing {
namespace {

class Accuracy : public ::testing::TestWithParam<const char*> {};

// Inputs within the domain of the test: no overflow, no subnormal products.
constexpr const char* kLines[] = {
    "op=qnr dtype=bf16 heads=4/2 head_dim=128 tokens=60 k_cache=int8 v_cache=int8+offset "
    "before_quant=1",
    "op=qnr dtype=fp16 heads=4/2 head_dim=128 tokens=60 k_cache=int8+offset v_cache=16bit "
    "before_quant=1",
    "op=qnr dtype=bf16 heads=4/2 head_dim=80 tokens=60 k_cache=16bit v_cache=16bit "
    "data=heavy_tailed",
    "op=qnr dtype=fp16 heads=2/1 head_dim=512 tokens=40 layout=paged data=heavy_tailed",
    "op=qnr dtype=fp16 heads=2/1 head_dim=18 tokens=60 layout=paged k_cache=int8 v_cache=int8 "
    "epsilon=0.01",
    "op=drq dtype=fp16 x=16bit heads=4/2 head_dim=128 tokens=60 layout=paged kv_output=1",
    "op=drq dtype=bf16 x=16bit heads=4/2 head_dim=64 tokens=4x15 layout=contiguous kv_output=1 "
    "data=heavy_tailed",
    "op=drq dtype=fp16 heads=4/2 head_dim=128 tokens=60 layout=paged kv_output=1",
    "op=drq dtype=bf16 heads=4/2 head_dim=128 tokens=60 layout=paged bias=fp32 token_scale=1 "
    "kv_output=1",
    "op=drq dtype=fp16 heads=4/2 head_dim=64 tokens=60 layout=paged bias=fp16 kv_output=1 "
    "k_cache=int8+offset v_cache=int8+offset data=heavy_tailed",
    "op=drq dtype=bf16 heads=4/2 head_dim=96 tokens=60 layout=pa_nz bias=bf16 token_scale=1",
    "op=drq dtype=fp16 heads=4/2 head_dim=46 tokens=60 layout=paged bias=int32 token_scale=1 "
    "kv_output=1",
};

TEST_P(Accuracy, EveryOutputIsWithinItsInterval) {
  for (const uint64_t seed : {1U, 2U, 3U}) {
    cases::Case c = CaseOf(GetParam());
    c.seed = seed;
    const auto problem = MakeProblem(c);
    ASSERT_NE(problem, nullptr);
    const Result<Plan> plan = problem->MakePlan();
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    ASSERT_TRUE(plan->Run(problem->tensors(), problem->tokens()).ok());
    const reference::AccuracyReport report = reference::CheckAccuracy(problem->LibraryProblem());
    EXPECT_GT(report.elements, 0);
    EXPECT_EQ(report.outside, 0) << report.first_outside << "\n  case: " << cases::PrintCase(c);
  }
}

INSTANTIATE_TEST_SUITE_P(Lines, Accuracy, ::testing::ValuesIn(kLines));

// The reciprocal root of one head, and the same with 12 significant bits.
struct ReciprocalRoot {
  double exact = 0;
  double twelve_bits = 0;
};

ReciprocalRoot RootOf(const reference::Problem& p, int64_t token, int64_t head) {
  double sum = 0;
  for (int64_t d = 0; d < p.head_dim; ++d) {
    const auto& st = p.x.shape.strides;
    const int64_t offset = token * st[1] + head * st[2] + d * st[3];
    uint16_t bits = 0;
    std::memcpy(&bits, static_cast<const char*>(p.x.data) + 2 * offset, sizeof(bits));
    // bfloat16 is the upper half of a float.
    const uint32_t wide = static_cast<uint32_t>(bits) << 16;
    float x = 0;
    std::memcpy(&x, &wide, sizeof(x));
    sum += static_cast<double>(x) * static_cast<double>(x);
  }
  const double mean = sum / static_cast<double>(p.head_dim);
  const double exact = 1 / std::sqrt(mean + static_cast<double>(static_cast<float>(p.epsilon)));
  int exponent = 0;
  const double mantissa = std::frexp(exact, &exponent);
  return {exact, std::ldexp(std::nearbyint(mantissa * 4096) / 4096, exponent)};
}

// Writes the outputs of an evaluation that is exact but for its reciprocal roots.
void WriteSloppyOutputs(const reference::Problem& p) {
  for (int64_t token = 0; token < p.tokens(); ++token) {
    const std::vector<reference::PreciseValue> row = reference::EvaluatePrecise(p, token);
    for (int64_t i = 0; i < p.q_heads * p.head_dim; ++i) {
      const ReciprocalRoot root = RootOf(p, token, i / p.head_dim);
      const double y = row[static_cast<size_t>(i)].y * root.twelve_bits / root.exact;
      const int64_t position = token * p.q_heads * p.head_dim + i;
      cases::StoreElement(p.q_out, cases::OffsetOf(p.q_out.shape, position), y);
    }
  }
}

TEST(AccuracyTestItself, CatchesAReciprocalRootOfTwelveBits) {
  const auto problem = MakeProblem(
      CaseOf("op=qnr dtype=bf16 heads=4/2 head_dim=128 tokens=60 k_cache=int8 v_cache=int8"));
  ASSERT_NE(problem, nullptr);
  const Result<Plan> plan = problem->MakePlan();
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  ASSERT_TRUE(plan->Run(problem->tensors(), problem->tokens()).ok());
  const reference::Problem outputs = problem->LibraryProblem();
  ASSERT_EQ(reference::CheckAccuracy(outputs).outside, 0);
  WriteSloppyOutputs(outputs);
  const reference::AccuracyReport report = reference::CheckAccuracy(outputs);
  // A root off by up to 2^-13 moves about one in 60 of the values across a rounding boundary.
  EXPECT_GT(report.outside, 100) << "of " << report.elements;
  EXPECT_LT(report.worst_ulp, 1) << "a test of one ulp would have passed these outputs";
}

// The next number of a 16-bit output, or the next code, is nearly always outside.
TEST(AccuracyTestItself, CatchesNeighbours) {
  const auto problem = MakeProblem(
      CaseOf("op=drq dtype=bf16 heads=4/2 head_dim=64 tokens=16 layout=paged kv_output=1"));
  ASSERT_NE(problem, nullptr);
  const Result<Plan> plan = problem->MakePlan();
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  ASSERT_TRUE(plan->Run(problem->tensors(), problem->tokens()).ok());
  int64_t elements = 0;
  for (const cases::NamedView& output : problem->Outputs()) {
    if (output.id == cases::TensorId::kKCache || output.id == cases::TensorId::kVCache) continue;
    for (int64_t i = 0; i < output.view.shape.ElementCount(); ++i, ++elements) {
      static_cast<uint16_t*>(output.view.data)[i] ^= 1;
    }
  }
  const reference::AccuracyReport report = reference::CheckAccuracy(problem->LibraryProblem());
  EXPECT_GT(report.outside, elements * 99 / 100);
  EXPECT_FALSE(report.first_outside.empty());
}

}  // namespace
}  // namespace qkvfuse::testing
