// The program qkvfuse: picks the subcommand and turns what went wrong into an exit code.
#include <fmt/core.h>

#include <exception>

#include "command.h"
#include "qkvfuse/runtime.hpp"

namespace qkvfuse::cli {
namespace {

constexpr AddCommand kCommands[] = {AddDemo, AddBench, AddRun, AddVerify, AddExplain, AddInfo};

constexpr const char* kFooter =
    "Examples:\n"
    "  qkvfuse demo                          both operators on the shapes of three real models\n"
    "  qkvfuse run op=qnr heads=32/8/8 head_dim=128 tokens=64\n"
    "  qkvfuse explain op=qnr heads=32/8/8 head_dim=128 tokens=64\n"
    "  qkvfuse verify cases/smoke.txt\n"
    "\n"
    "Exit codes: 0 ok, 1 a check failed, 2 wrong usage.";

int Main(int argc, char** argv) {
  CLI::App app{
      "qkvfuse: everything between the QKV projection and attention in one pass - dequantise, "
      "split, RMSNorm, RoPE, quantise and scatter into the KV cache.",
      "qkvfuse"};
  app.set_version_flag("--version", fmt::format("qkvfuse {}", Version()));
  app.footer(kFooter);
  // None is refused below: the parser's own refusal would hide a misspelt name.
  app.require_subcommand(0, 1);
  ExitCode exit_code = kOk;
  for (const AddCommand add : kCommands) add(app, exit_code);
  try {
    app.parse(argc, argv);
    if (app.get_subcommands().empty()) throw CLI::RequiredError("A subcommand");
  } catch (const CLI::ParseError& error) {
    // Help and version come as "errors" with exit code 0; all others are wrong usage.
    return app.exit(error) == 0 ? kOk : kUsage;
  }
  return exit_code;
}

}  // namespace
}  // namespace qkvfuse::cli

int main(int argc, char** argv) {
  try {
    return qkvfuse::cli::Main(argc, argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "qkvfuse: {}\n", error.what());
    return qkvfuse::cli::kUsage;
  }
}
