// Bit comparison of a case over targets, paths and threads.
#include "tests/support/same_bits.h"

#include <array>
#include <memory>
#include <thread>

#include "qkvfuse/qkvfuse.hpp"
#include "reference/exact.h"

namespace qkvfuse::testing {
namespace {

constexpr std::array kThreadCounts = {1, 2, 3, 7};

#if defined(QKVFUSE_TEST_STD_THREADS)
// Sanitizers need threads that they can see into: a part of the work each.
void RunOnStdThreads(void* /*user*/, int64_t items, ParallelForBody body, void* context) {
  std::vector<std::thread> threads;
  for (int64_t item = 1; item < items; ++item) threads.emplace_back(body, context, item);
  body(context, 0);
  for (std::thread& thread : threads) thread.join();
}

constexpr int kStdThreads = 4;
const bool has_std_threads = [] {
  SetParallelFor(&RunOnStdThreads, nullptr, kStdThreads);
  return true;
}();
#endif

cases::Case WithVariant(cases::Case c, const Variant& variant) {
  c.target = variant.target;
  c.path = variant.path;
  c.threads = variant.threads;
  c.force_split = variant.threads > 1;
  return c;
}

}  // namespace

std::vector<Variant> TargetsAndPaths() {
  std::vector<Variant> variants;
  for (const std::string& target : AvailableTargets()) {
    for (const Path path : {Path::kAuto, Path::kGeneral}) variants.push_back({target, path, 1});
  }
  return variants;
}

std::vector<Variant> TargetsPathsAndThreads() {
  std::vector<Variant> variants;
  for (Variant variant : TargetsAndPaths()) {
    for (const int threads : kThreadCounts) {
      variant.threads = threads;
      variants.push_back(variant);
    }
  }
  return variants;
}

std::unique_ptr<cases::Problem> MakeProblem(const cases::Case& c) {
  auto problem = cases::Problem::Make(c);
  if (problem.ok()) return std::move(*problem);
  ADD_FAILURE() << problem.status().message() << "\n  case: " << cases::PrintCase(c);
  return nullptr;
}

std::unique_ptr<cases::Problem> MakeSolvedProblem(const cases::Case& c) {
  std::unique_ptr<cases::Problem> problem = MakeProblem(c);
  if (problem == nullptr) return nullptr;
  problem->RunReference();
  // The reference must have written something, or equality would mean nothing.
  const bool has_tokens = c.tokens.total() > 0;
  EXPECT_EQ(problem->Compare().ok(), !has_tokens) << cases::PrintCase(c);
  return problem;
}

::testing::AssertionResult SameBits(cases::Problem& problem, const Variant& variant) {
  const cases::Case c = WithVariant(problem.description(), variant);
  const auto failure = [&](const std::string& message) {
    return ::testing::AssertionFailure() << message << "\n  case: " << cases::PrintCase(c);
  };
  problem.ResetLibraryOutputs();
  const Result<Plan> plan = problem.MakePlan({c.strict, c.path, c.target});
  if (!plan.ok()) return failure("MakePlan: " + plan.status().message());
  if (plan->target() != c.target) return failure(std::string("target is ") + plan->target());
  const Status status = plan->Run(problem.tensors(), problem.tokens(), {c.threads, c.force_split});
  if (!status.ok()) return failure("Run: " + status.message());
  const Status comparison = problem.Compare();
  if (!comparison.ok()) return failure(comparison.message());
  return ::testing::AssertionSuccess();
}

void ExpectSameBits(const cases::Case& c, const std::vector<Variant>& variants) {
  const std::unique_ptr<cases::Problem> problem = MakeSolvedProblem(c);
  if (problem == nullptr) return;
  for (const Variant& variant : variants) EXPECT_TRUE(SameBits(*problem, variant));
}

void ExpectSameBits(const cases::Case& c) {
  static size_t calls = 0;
  std::vector<Variant> variants = TargetsAndPaths();
  for (Variant& variant : variants) {
    variant.threads = kThreadCounts[calls++ % kThreadCounts.size()];
  }
  ++calls;  // an even number of variants would tie paths to thread counts
  ExpectSameBits(c, variants);
}

cases::Case CaseOf(const std::string& line) {
  Result<cases::Case> c = cases::ParseCase(line);
  if (c.ok()) return *c;
  ADD_FAILURE() << c.status().message() << "\n  line: " << line;
  return {};
}

}  // namespace qkvfuse::testing
