// `qkvfuse run`: one case, its outputs' checksums and its time.
#include <fmt/core.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "case_line.h"
#include "command.h"
#include "support/checksum.h"
#include "support/table.h"
#include "support/timing.h"

namespace qkvfuse::cli {
namespace {

struct RunCommandOptions {
  std::vector<std::string> words;
  bool json = false;
};

struct OutputChecksum {
  std::string name;
  std::string dtype;
  int64_t elements;
  std::string checksum;
};

OutputChecksum ChecksumOf(const cases::NamedView& output) {
  const TensorView& view = output.view;
  return {std::string(output.name), Name(view.dtype), view.shape.ElementCount(),
          ChecksumText(Checksum(view))};
}

struct RunReport {
  std::string line;
  std::string target;
  std::vector<OutputChecksum> outputs;
  double seconds = 0;
  int64_t tokens = 0;
  int64_t bytes = 0;
  [[nodiscard]] double microseconds() const { return seconds * 1e6; }
  [[nodiscard]] double gigabytes_per_second() const {
    return static_cast<double>(bytes) / seconds * 1e-9;
  }
};

RunReport RunCase(const RunCommandOptions& options) {
  const std::unique_ptr<cases::Problem> problem = MakeProblem(options.words);
  const Plan plan = MakePlanOrThrow(*problem);
  const TokenCount tokens = problem->tokens();
  std::vector<unsigned char> scratch(plan.WorkspaceBytes(tokens));
  const Workspace workspace{scratch.data(), scratch.size()};
  const auto run = [&] {
    return plan.Run(problem->tensors(), tokens, workspace, problem->run_options());
  };
  RunReport report;
  report.line = cases::PrintCase(problem->description());
  report.target = plan.target();
  report.tokens = tokens.total();
  report.bytes = plan.TrafficOf(tokens).total();
  if (const Status status = run(); !status.ok()) throw UsageError(status.message());
  // Before the timed runs: outputs that lie on x make a second run a different problem.
  for (const cases::NamedView& output : problem->Outputs()) {
    report.outputs.push_back(ChecksumOf(output));
  }
  report.seconds = MeasureTimes({[&] { (void)run(); }})[0].median;
  return report;
}

void PrintText(const RunReport& report) {
  fmt::print("case    {}\ntarget  {}\n\n", report.line, report.target);
  Table table({{"output", Table::Align::kLeft},
               {"type", Table::Align::kLeft},
               {"elements"},
               {"checksum", Table::Align::kLeft}});
  for (const OutputChecksum& output : report.outputs) {
    table.AddRow({output.name, output.dtype, fmt::format("{}", output.elements), output.checksum});
  }
  fmt::print("{}\n", table.Render());
  fmt::print("time    {:.2f} us per run", report.microseconds());
  if (report.tokens > 0) {
    fmt::print(", {:.3f} us per token", report.microseconds() / static_cast<double>(report.tokens));
  }
  fmt::print("\nbytes   {} per run, {:.2f} GB/s\n", report.bytes, report.gigabytes_per_second());
}

void PrintJson(const RunReport& report) {
  nlohmann::ordered_json json;
  json["case"] = report.line;
  json["target"] = report.target;
  json["tokens"] = report.tokens;
  for (const OutputChecksum& output : report.outputs) {
    json["outputs"].push_back({{"name", output.name},
                               {"dtype", output.dtype},
                               {"elements", output.elements},
                               {"checksum", output.checksum}});
  }
  json["us_per_run"] = report.microseconds();
  json["bytes"] = report.bytes;
  json["gb_per_s"] = report.gigabytes_per_second();
  fmt::print("{}\n", json.dump(2));
}

}  // namespace

void AddRun(CLI::App& app, ExitCode& exit_code) {
  CLI::App* command =
      app.add_subcommand("run", "One case: checksums of the outputs, time, bytes moved");
  command->footer(
      "Examples:\n"
      "  qkvfuse run op=qnr heads=32/8/8 head_dim=128 tokens=64\n"
      "  qkvfuse run \"op=drq x=int32 heads=8/1/1 tokens=2x16 layout=contiguous slot_mode=start\"\n"
      "  qkvfuse run --json op=qnr heads=8/1/1 tokens=16 target=scalar path=general\n"
      "The checksums (FNV-1a, 64 bits) are the same on every machine, target, path and number of\n"
      "threads.");
  const auto options = std::make_shared<RunCommandOptions>();
  AddCaseLine(*command, options->words)->required();
  command->add_flag("--json", options->json, "Print one JSON object");
  command->callback([options, &exit_code] {
    const RunReport report = RunCase(*options);
    options->json ? PrintJson(report) : PrintText(report);
    exit_code = kOk;
  });
}

}  // namespace qkvfuse::cli
