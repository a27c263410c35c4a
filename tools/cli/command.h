// The subcommands of the command line and the exit codes they share. A subcommand adds itself to
// the parser; main knows nothing else about it.
#pragma once

#include <CLI/CLI.hpp>
#include <stdexcept>
#include <string>

namespace qkvfuse::cli {

enum ExitCode : int { kOk = 0, kCheckFailed = 1, kUsage = 2 };

/// What the caller of the program has to change; main prints the sentence and exits with kUsage.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Adds a subcommand; when it is the one that was asked for, it runs and leaves its exit code.
using AddCommand = void (*)(CLI::App& app, ExitCode& exit_code);

void AddInfo(CLI::App& app, ExitCode& exit_code);
void AddExplain(CLI::App& app, ExitCode& exit_code);
void AddRun(CLI::App& app, ExitCode& exit_code);
void AddVerify(CLI::App& app, ExitCode& exit_code);
void AddDemo(CLI::App& app, ExitCode& exit_code);
void AddBench(CLI::App& app, ExitCode& exit_code);

}  // namespace qkvfuse::cli
