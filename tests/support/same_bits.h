// Runs a case through the library and holds every byte against reference/exact.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "cases/case.h"
#include "cases/problem.h"

namespace qkvfuse::testing {

/// One way of running a case.
struct Variant {
  std::string target;
  Path path = Path::kAuto;
  int threads = 1;
};

/// Every SIMD target of this machine, through both paths.
[[nodiscard]] std::vector<Variant> TargetsAndPaths();

/// The same, each with 1, 2, 3 and 7 threads.
[[nodiscard]] std::vector<Variant> TargetsPathsAndThreads();

/// The case made real; fails the current test and returns null when it cannot be.
[[nodiscard]] std::unique_ptr<cases::Problem> MakeProblem(const cases::Case& c);

/// The case with its reference outputs computed.
[[nodiscard]] std::unique_ptr<cases::Problem> MakeSolvedProblem(const cases::Case& c);

/// Runs a solved problem one way. A failure gives the line of the case that reproduces it.
[[nodiscard]] ::testing::AssertionResult SameBits(cases::Problem& problem, const Variant& variant);

/// Runs the case in every given way.
void ExpectSameBits(const cases::Case& c, const std::vector<Variant>& variants);

/// Runs the case on every target through both paths, with a thread count that changes from call to
/// call.
void ExpectSameBits(const cases::Case& c);

/// Parses a line that the test wrote; a refusal fails the test.
[[nodiscard]] cases::Case CaseOf(const std::string& line);

}  // namespace qkvfuse::testing
