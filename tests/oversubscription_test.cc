// Inside a parallel region of the caller, a Run stays on the thread that called it: engines that
// run layers or requests side by side keep the number of threads that they chose.
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <vector>

#include "qkvfuse/qkvfuse.hpp"
#include "tests/support/same_bits.h"

#if defined(_OPENMP) && defined(__linux__)
#include <omp.h>

namespace qkvfuse::testing {
namespace {

constexpr int kCallers = 2;
constexpr int kAskedFor = 4;

int64_t ThreadsOfProcess() {
  const std::filesystem::directory_iterator tasks("/proc/self/task");
  return std::distance(begin(tasks), end(tasks));
}

std::unique_ptr<cases::Problem> LargeProblem() {
  return MakeProblem(CaseOf("op=qnr dtype=bf16 heads=32/8 head_dim=128 tokens=64"));
}

Status RunOnFour(cases::Problem& problem, const Plan& plan) {
  RunOptions options;
  options.threads = kAskedFor;
  options.force_split = true;
  return plan.Run(problem.tensors(), problem.tokens(), options);
}

TEST(Oversubscription, NoThreadIsAddedInARegionOfTheCaller) {
  // An emulator has a thread of its own beside this one.
  const int64_t others = ThreadsOfProcess() - 1;
  // Without this a nested region would have one thread, whoever opens it.
  omp_set_max_active_levels(2);
  std::vector<std::unique_ptr<cases::Problem>> problems;
  for (int i = 0; i < kCallers; ++i) problems.push_back(LargeProblem());
  const Result<Plan> plan = problems[0]->MakePlan();
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  bool all_ok = true;
#pragma omp parallel for num_threads(kCallers) reduction(&& : all_ok)
  for (int i = 0; i < kCallers; ++i) {
    all_ok = all_ok && RunOnFour(*problems[static_cast<size_t>(i)], *plan).ok();
  }
  EXPECT_TRUE(all_ok);
  EXPECT_EQ(ThreadsOfProcess() - others, kCallers);
  // Outside of a region the same call does add threads, and this test sees them.
  EXPECT_TRUE(RunOnFour(*problems[0], *plan).ok());
  EXPECT_EQ(ThreadsOfProcess() - others, kAskedFor);
}

}  // namespace
}  // namespace qkvfuse::testing

#endif
