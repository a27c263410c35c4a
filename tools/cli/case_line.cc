// From words to a call and its plan.
#include "case_line.h"

#include <fmt/ranges.h>

#include <utility>

namespace qkvfuse::cli {

CLI::Option* AddCaseLine(CLI::App& command, std::vector<std::string>& words) {
  return command.add_option(
      "case", words, "A case line: op=qnr|drq|fused heads=q/kv head_dim=D tokens=T key=value...");
}

std::unique_ptr<cases::Problem> MakeProblem(const std::vector<std::string>& words) {
  const Result<cases::Case> parsed = cases::ParseCase(fmt::format("{}", fmt::join(words, " ")));
  if (!parsed.ok()) throw UsageError(parsed.status().message());
  Result<std::unique_ptr<cases::Problem>> problem = cases::Problem::Make(*parsed);
  if (!problem.ok()) throw UsageError(problem.status().message());
  return std::move(*problem);
}

Plan MakePlanOrThrow(const cases::Problem& problem) {
  const Result<Plan> plan = problem.MakePlan();
  if (!plan.ok()) throw UsageError(plan.status().message());
  return *plan;
}

}  // namespace qkvfuse::cli
