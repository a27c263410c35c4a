// What verify does with a file: a list of checks, each with an outcome.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "cases/problem.h"

namespace qkvfuse::cli {

struct Outcome {
  enum class Kind { kPassed, kFailed, kSkipped };
  Kind kind = Kind::kPassed;
  std::string message;  // why it failed or was skipped

  static Outcome Passed() { return {}; }
  static Outcome Failed(std::string why) { return {Kind::kFailed, std::move(why)}; }
  static Outcome Skipped(std::string why) { return {Kind::kSkipped, std::move(why)}; }
};

struct Verification {
  std::string title;  // the case line, or the row's name and its case line
  std::function<Outcome()> run;
};

/// The cases of a text file; with `everywhere`, each on every SIMD target of this processor and on
/// both paths. Throws UsageError when the file cannot be read.
[[nodiscard]] std::vector<Verification> VerificationsOfCases(const std::string& path,
                                                             bool everywhere);

/// The rows of a JSONL table. Throws UsageError when the file is not one.
[[nodiscard]] std::vector<Verification> VerificationsOfTable(const std::string& path);

/// Runs the library and reference/exact; every output byte has to be equal.
[[nodiscard]] Outcome CompareWithExact(cases::Problem& problem, const PlanOptions& options);

/// The options that the problem's case asks for.
[[nodiscard]] PlanOptions OptionsOf(const cases::Case& c);

}  // namespace qkvfuse::cli
