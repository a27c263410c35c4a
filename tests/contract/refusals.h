// Refusals of the C++ door as rows of a table: what is broken, the code, words of the sentence, and
// that no output byte has changed.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <type_traits>
#include <vector>

#include "tests/support/same_bits.h"
#include "tests/support/sentences.h"

namespace qkvfuse::testing {

using Qnr = QkvRmsNormRopeCacheSpec;
using Drq = DequantRopeQuantKvcacheSpec;
using Fused = FusedQkvSpec;

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

inline constexpr auto kInvalid = StatusCode::kInvalidArgument;
inline constexpr auto kNull = StatusCode::kNullArgument;

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
  } else if constexpr (std::is_same_v<Spec, Drq>) {
    return problem.DrqSpec();
  } else {
    return problem.FusedSpec();
  }
}

/// The plan of the problem's operator for a Spec that may be broken.
template <typename Spec>
Result<Plan> MakePlanOf(const cases::Problem& problem, const Call<Spec>& call) {
  if constexpr (std::is_same_v<Spec, Fused>) {
    if (problem.description().fused.measures) return MakeMeasurePlan(call.spec, call.options);
  }
  return MakePlan(call.spec, call.options);
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
  const Result<Plan> plan = MakePlanOf(problem, call);
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
  ExpectRecordedSentence(refusal.name, status.message());
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

}  // namespace qkvfuse::testing
