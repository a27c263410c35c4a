// Case lines against the exact reference.
#include <fmt/core.h>

#include "command.h"
#include "qkvfuse/runtime.hpp"
#include "tables/verification.h"

namespace qkvfuse::cli {
namespace {

Outcome VerifyCase(const cases::Case& c) {
  const auto problem = cases::Problem::Make(c);
  if (!problem.ok()) return Outcome::Failed(problem.status().message());
  return CompareWithExact(**problem, OptionsOf(c));
}

// A case on every target and through both paths; what the case itself asks for gives way.
std::vector<cases::Case> Everywhere(const cases::Case& c) {
  std::vector<cases::Case> variants;
  for (const std::string& target : AvailableTargets()) {
    for (const Path path : {Path::kAuto, Path::kGeneral}) {
      variants.push_back(c);
      variants.back().target = target;
      variants.back().path = path;
    }
  }
  return variants;
}

}  // namespace

PlanOptions OptionsOf(const cases::Case& c) {
  PlanOptions options;
  options.strict = c.strict;
  options.path = c.path;
  options.target = c.target;
  return options;
}

Outcome CompareWithExact(cases::Problem& problem, const PlanOptions& options) {
  const Result<Plan> plan = problem.MakePlan(options);
  if (!plan.ok()) return Outcome::Failed("refused: " + plan.status().message());
  const Status status = plan->Run(problem.tensors(), problem.tokens(), problem.run_options());
  if (!status.ok()) return Outcome::Failed("refused: " + status.message());
  problem.RunReference();
  const Status same = problem.Compare();
  return same.ok() ? Outcome::Passed() : Outcome::Failed(same.message());
}

std::vector<Verification> VerificationsOfCases(const std::string& path, bool everywhere) {
  const Result<std::vector<cases::Case>> read = cases::ReadCases(path);
  if (!read.ok()) throw UsageError(read.status().message());
  std::vector<Verification> verifications;
  for (const cases::Case& c : *read) {
    for (const cases::Case& variant : everywhere ? Everywhere(c) : std::vector{c}) {
      verifications.push_back(
          {cases::PrintCase(variant), [variant] { return VerifyCase(variant); }});
    }
  }
  return verifications;
}

}  // namespace qkvfuse::cli
