// `qkvfuse explain`: what the library would do for a case, or for a model's layers, and why.
#include <fmt/core.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "case_line.h"
#include "command.h"
#include "model_case.h"

namespace qkvfuse::cli {
namespace {

struct ExplainOptions {
  std::vector<std::string> words;
  ModelOptions model;
  bool json = false;
};

// What is explained: its name on the first line, the rest of what is known of it, and its plan.
struct Subject {
  std::string kind;  // case, model
  std::string text;
  Plan plan;
  TokenCount tokens;
};

Subject SubjectOf(const ExplainOptions& options) {
  if (!options.model.config.empty()) {
    ModelPlan model = MakeModelPlan(options.model);
    return {"model", std::move(model.text), std::move(model.plan), options.model.tokens};
  }
  if (options.words.empty()) throw UsageError("explain: needs a case line or --config");
  const std::unique_ptr<cases::Problem> problem = MakeProblem(options.words);
  return {"case", cases::PrintCase(problem->description()), MakePlanOrThrow(*problem),
          problem->tokens()};
}

ExitCode Explain(const ExplainOptions& options) {
  const Subject subject = SubjectOf(options);
  const Plan& plan = subject.plan;
  const TokenCount tokens = subject.tokens;
  const Plan::Traffic traffic = plan.TrafficOf(tokens);
  if (!options.json) {
    fmt::print("{}: {}\n{}", subject.kind, subject.text, plan.Describe(tokens));
    return kOk;
  }
  nlohmann::ordered_json json;
  json[subject.kind] = subject.text;
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
      "  qkvfuse explain --json op=qnr heads=8/1/1 tokens=16\n"
      "  qkvfuse explain --config Qwen3-8B/config.json --cache int8+head --layout x_split");
  const auto options = std::make_shared<ExplainOptions>();
  CLI::Option* const words = AddCaseLine(*command, options->words);
  AddModelOptions(*command, options->model, words);
  command->add_flag("--json", options->json, "Print one JSON object");
  command->callback([options, &exit_code] { exit_code = Explain(*options); });
}

}  // namespace qkvfuse::cli
