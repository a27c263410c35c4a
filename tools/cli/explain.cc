// `qkvfuse explain`: what the library would do for a case, and why.
#include <fmt/core.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "case_line.h"
#include "command.h"

namespace qkvfuse::cli {
namespace {

struct ExplainOptions {
  std::vector<std::string> words;
  bool json = false;
};

ExitCode Explain(const ExplainOptions& options) {
  const std::unique_ptr<cases::Problem> problem = MakeProblem(options.words);
  const Plan plan = MakePlanOrThrow(*problem);
  const TokenCount tokens = problem->tokens();
  const Plan::Traffic traffic = plan.TrafficOf(tokens);
  const std::string line = cases::PrintCase(problem->description());
  if (!options.json) {
    fmt::print("case: {}\n{}", line, plan.Describe(tokens));
    return kOk;
  }
  nlohmann::ordered_json json;
  json["case"] = line;
  json["target"] = plan.target();
  json["fused"] = plan.is_fused();
  json["tokens"] = tokens.total();
  json["read_bytes"] = traffic.read_bytes;
  json["write_bytes"] = traffic.write_bytes;
  json["workspace_bytes"] = plan.WorkspaceBytes(tokens);
  json["description"] = plan.Describe(tokens);
  fmt::print("{}\n", json.dump(2));
  return kOk;
}

}  // namespace

void AddExplain(CLI::App& app, ExitCode& exit_code) {
  CLI::App* command = app.add_subcommand(
      "explain", "The plan of a case: kernels, layout, work split, bytes, and why");
  command->footer(
      "Examples:\n"
      "  qkvfuse explain op=qnr heads=32/8/8 head_dim=128 tokens=64\n"
      "  qkvfuse explain \"op=drq x=int32 heads=64/8/8 tokens=1x2048 layout=paged path=general\"\n"
      "  qkvfuse explain --json op=qnr heads=8/1/1 tokens=16");
  const auto options = std::make_shared<ExplainOptions>();
  AddCaseLine(*command, options->words);
  command->add_flag("--json", options->json, "Print one JSON object");
  command->callback([options, &exit_code] { exit_code = Explain(*options); });
}

}  // namespace qkvfuse::cli
