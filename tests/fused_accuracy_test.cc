// The general operator against reference/fused_precise: every output of the library lies in its
// interval, and outputs of slightly other arithmetic do not.
#include <gtest/gtest.h>

#include <cstring>

#include "reference/exact.h"
#include "reference/fused_precise.h"
#include "tests/support/random_case.h"
#include "tests/support/same_bits.h"

namespace qkvfuse::testing {
namespace {

/// Whether a case is in the domain: nothing overflows, and every slot is named once.
bool IsInDomain(const cases::Case& c) {
  const bool is_plain =
      c.data == cases::DataKind::kUniform || c.data == cases::DataKind::kHeavyTailed;
  return is_plain && c.slots != cases::SlotPattern::kRepeated && !c.in_place.any();
}

TEST(FusedAccuracy, EveryOutputIsWithinItsInterval) {
  const auto all = cases::ReadCases(QKVFUSE_CASES_DIRECTORY "/fused.txt");
  ASSERT_TRUE(all.ok()) << all.status().message();
  int64_t elements = 0;
  for (const cases::Case& c : *all) {
    if (!IsInDomain(c)) continue;
    const auto problem = MakeProblem(c);
    ASSERT_NE(problem, nullptr);
    const Result<Plan> plan = problem->MakePlan();
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    ASSERT_TRUE(plan->Run(problem->tensors(), problem->tokens()).ok());
    const auto report = reference::CheckFusedAccuracy(problem->FusedLibraryProblem());
    EXPECT_EQ(report.outside, 0) << report.first_outside << "\n  case: " << cases::PrintCase(c);
    elements += report.elements;
  }
  EXPECT_GT(elements, 1000000);
}

TEST(FusedAccuracy, RandomCases) {
  int checked = 0;
  for (uint64_t seed = 0; checked < 300; ++seed) {
    const cases::Case c = RandomFusedCase(100000 + seed);
    if (!IsInDomain(c) || c.tokens.total() == 0) continue;
    const auto problem = MakeProblem(c);
    ASSERT_NE(problem, nullptr);
    const Result<Plan> plan = problem->MakePlan();
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    ASSERT_TRUE(plan->Run(problem->tensors(), problem->tokens()).ok());
    const auto report = reference::CheckFusedAccuracy(problem->FusedLibraryProblem());
    EXPECT_EQ(report.outside, 0) << report.first_outside << "\n  case: " << cases::PrintCase(c);
    checked += report.elements > 0 ? 1 : 0;
  }
}

/// A call that computes something else than the case says.
struct Other {
  const char* what;
  void (*change)(reference::FusedProblem& p);
};

TEST(FusedAccuracy, OtherArithmeticIsNot) {
  constexpr Other kOthers[] = {
      {"no norm", [](reference::FusedProblem& p) { p.parts[0].has_norm = false; }},
      {"norm after", [](reference::FusedProblem& p) { p.norm_after_rope = true; }},
      {"per head", [](reference::FusedProblem& p) { p.parts[1].is_full_width = false; }},
      {"plain gamma", [](reference::FusedProblem& p) { p.parts[1].gamma_is_one_plus = false; }},
      {"halves", [](reference::FusedProblem& p) { p.rope.is_interleaved = false; }},
      {"first channels", [](reference::FusedProblem& p) { p.rope.first_channel = 0; }},
      {"other sections", [](reference::FusedProblem& p) { p.rope.section[1] ^= 1; }},
      {"multiplied",
       [](reference::FusedProblem& p) { p.parts[1].cache.rule = reference::CodeRule::kMultiply; }},
      {"no bias", [](reference::FusedProblem& p) { p.bias.data = nullptr; }},
      {"another epsilon", [](reference::FusedProblem& p) { p.epsilon *= 1.01; }}};
  for (const Other& other : kOthers) {
    SCOPED_TRACE(other.what);
    const auto problem = MakeProblem(
        CaseOf("op=fused dtype=bf16 heads=4/2 head_dim=64 tokens=9 k_cache=int8 v_cache=fp8_e4m3 "
               "layout=paged q_norm=full k_norm=full gamma=one_plus rope=interleaved rotary_dim=32 "
               "rotates_last=1 table=joined sections=interleaved bias=fp32 epsilon=0.5 "
               "q_out=fp32"));
    ASSERT_NE(problem, nullptr);
    reference::FusedProblem changed = problem->FusedLibraryProblem();
    other.change(changed);
    reference::RunExact(changed);
    const auto report = reference::CheckFusedAccuracy(problem->FusedLibraryProblem());
    EXPECT_GT(report.outside, 0);
    // Without the change the same way of writing is right.
    reference::RunExact(problem->FusedLibraryProblem());
    EXPECT_EQ(reference::CheckFusedAccuracy(problem->FusedLibraryProblem()).outside, 0);
  }
}

}  // namespace
}  // namespace qkvfuse::testing
