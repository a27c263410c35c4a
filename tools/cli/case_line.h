// The case line that run and explain take from the command line.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cases/problem.h"
#include "command.h"

namespace qkvfuse::cli {

/// Adds the positional words of a case line, quoted or not. A shell splits an unquoted line, so the
/// words are joined again.
CLI::Option* AddCaseLine(CLI::App& command, std::vector<std::string>& words);

/// The call that the words describe. Throws UsageError with the sentence of the refusal.
[[nodiscard]] std::unique_ptr<cases::Problem> MakeProblem(const std::vector<std::string>& words);

/// Its plan. Throws UsageError with the library's sentence.
[[nodiscard]] Plan MakePlanOrThrow(const cases::Problem& problem);

}  // namespace qkvfuse::cli
