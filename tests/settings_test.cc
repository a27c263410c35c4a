// Settings that come from environment variables where the options leave them open.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <utility>

#include "tests/support/same_bits.h"

namespace qkvfuse::testing {
namespace {

constexpr char kLine[] = "op=qnr dtype=bf16 heads=32/8 head_dim=128 tokens=64";

/// Sets a variable, or unsets it with nullptr, while it lives.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) {
    if (const char* const text = std::getenv(name)) saved_ = text;
    Set(value);
  }
  ~Variable() { Set(saved_ ? saved_->c_str() : nullptr); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  void Set(const char* value) {
    value == nullptr ? unsetenv(name_) : setenv(name_, value, /*overwrite=*/1);
  }
  const char* name_;
  std::optional<std::string> saved_;
};

Result<Plan> PlanWith(const PlanOptions& options) {
  return MakePlan(MakeProblem(CaseOf(kLine))->QnrSpec(), options);
}

/// "fused" or "general", or the sentence of a refusal.
std::string PathWith(Path path) {
  const Result<Plan> plan = PlanWith({true, path, ""});
  if (!plan.ok()) return plan.status().message();
  return plan->is_fused() ? "fused" : "general";
}

/// The plan's target, or the sentence of a refusal.
std::string TargetWith(const std::string& target) {
  const Result<Plan> plan = PlanWith({true, Path::kAuto, target});
  return plan.ok() ? plan->target() : plan.status().message();
}

TEST(Settings, PathOfTheEnvironment) {
  for (const char* value : {static_cast<const char*>(nullptr), "", "auto", "fused"}) {
    const Variable path("QKVFUSE_PATH", value);
    EXPECT_EQ(PathWith(Path::kAuto), "fused");
    EXPECT_EQ(PathWith(Path::kGeneral), "general");
  }
  {
    const Variable path("QKVFUSE_PATH", "general");
    EXPECT_EQ(PathWith(Path::kAuto), "general");
    EXPECT_EQ(PathWith(Path::kFused), "fused");
  }
  const Variable path("QKVFUSE_PATH", "fast");
  EXPECT_EQ(PathWith(Path::kFused), "fused");
  EXPECT_EQ(PathWith(Path::kAuto), "QKVFUSE_PATH: is fast, must be auto, general or fused");
}

TEST(Settings, FusedOfTheEnvironmentRefusesTheGeneralPath) {
  const Variable path("QKVFUSE_PATH", "fused");
  const auto problem =
      MakeProblem(CaseOf("op=qnr dtype=bf16 heads=4/2 head_dim=72 tokens=2 layout=paged"));
  EXPECT_EQ(MakePlan(problem->QnrSpec()).status().message(),
            "path: is fused, but the q heads need the general path: head_dim 72 is not a multiple "
            "of 16");
}

TEST(Settings, TargetOfTheEnvironment) {
  const std::string best = AvailableTargets().front();
  for (const char* value : {static_cast<const char*>(nullptr), ""}) {
    const Variable target("QKVFUSE_TARGET", value);
    EXPECT_EQ(TargetWith(""), best);
    EXPECT_EQ(TargetWith("scalar"), "scalar");
  }
  {
    const Variable target("QKVFUSE_TARGET", "scalar");
    EXPECT_EQ(TargetWith(""), "scalar");
    EXPECT_EQ(TargetWith(best), best);
  }
  const Variable target("QKVFUSE_TARGET", "mmx");
  std::string names;
  for (const std::string& name : AvailableTargets()) names += (names.empty() ? "" : ", ") + name;
  EXPECT_EQ(TargetWith(""), "target: is mmx, must be one of " + names);
}

void RunInTurn(void*, int64_t items, ParallelForBody body, void* context) {
  for (int64_t i = 0; i < items; ++i) body(context, i);
}

TEST(Settings, ThreadsOfTheHook) {
  for (const auto& [offered, parts] : {std::pair{-1, 1}, {0, 1}, {1, 1}, {2, 2}, {3, 3}}) {
    SetParallelFor(&RunInTurn, nullptr, offered);
    const std::string text = PlanWith({})->Describe(TokenCount(1000));
    SetParallelFor(nullptr, nullptr, 0);
    EXPECT_NE(text.find("work: " + std::to_string(parts) + " part"), std::string::npos) << text;
  }
}

#ifdef _OPENMP
// The variable is read once, so each value needs a process of its own.
[[noreturn]] void DescribeWith(const char* threads) {
  const Variable variable("QKVFUSE_NUM_THREADS", threads);
  std::fputs(PlanWith({})->Describe(TokenCount(1000)).c_str(), stderr);
  std::exit(0);
}

TEST(Settings, ThreadsOfTheEnvironment) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  const auto good = ::testing::ExitedWithCode(0);
  EXPECT_EXIT(DescribeWith("1"), good, "work: 1 part of the tokens");
  EXPECT_EXIT(DescribeWith("3"), good, "work: 3 parts of the tokens");
  EXPECT_EXIT(DescribeWith("5"), good, "work: 5 parts of the tokens");
}
#endif

}  // namespace
}  // namespace qkvfuse::testing
