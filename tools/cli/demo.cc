// `qkvfuse demo`: both operators on the shapes of real models, every output element checked, and a
// drawing of a PA_NZ cache.
#include <fmt/core.h>

#include <chrono>
#include <fstream>
#include <memory>
#include <stdexcept>
#include <vector>

#include "command.h"
#include "demo/activations.h"
#include "demo/check.h"
#include "demo/pa_nz_picture.h"
#include "demo/report.h"
#include "demo/scenario.h"
#include "qkvfuse/qkvfuse.hpp"
#include "support/system.h"

namespace qkvfuse::cli {
namespace {

constexpr uint64_t kSeed = 2024;

struct DemoOptions {
  std::string svg = "demo-pa_nz.svg";
  int threads = 0;
  bool quick = false;
  bool json = false;
};

DemoRow RunScenario(const Scenario& scenario, int threads, ProgressBar& progress) {
  progress.SetLabel(fmt::format("{} {}, {} {}", scenario.model, scenario.batch,
                                scenario.operator_name, scenario.cache));
  const auto problem = cases::Problem::Make(scenario.description);
  if (!problem.ok()) throw std::runtime_error(problem.status().message());
  cases::Problem& call = **problem;
  const bool is_recorded = scenario.description.data == cases::DataKind::kGemma3;
  if (!is_recorded) FillLikeAModel(call, kSeed, threads);
  CalibrateScales(call);
  const Result<Plan> plan = call.MakePlan();
  if (!plan.ok()) throw std::runtime_error(plan.status().message());
  DemoRow row{scenario, {}, {}, plan->target()};
  row.findings = CheckScenario(call, *plan, threads, progress);
  row.speed = MeasureSpeed(call, *plan, threads);
  return row;
}

std::vector<DemoRow> RunScenarios(const DemoOptions& options) {
  const std::vector<Scenario> scenarios = Scenarios(options.quick);
  int64_t steps = 0;
  for (const Scenario& scenario : scenarios) steps += CheckSteps(scenario.description);
  ProgressBar progress(steps);
  std::vector<DemoRow> rows;
  for (const Scenario& scenario : scenarios) {
    rows.push_back(RunScenario(scenario, options.threads, progress));
  }
  return rows;
}

void PrintHeader(int threads) {
  fmt::print("qkvfuse {} on {}, {} {}\n", Version(), CpuModel(), threads,
             threads == 1 ? "thread" : "threads");
  fmt::print(
      "bf16 activations with heavy tails and outlier channels, RoPE theta 1e6, head_dim 128, pages "
      "of 128 tokens; recorded ones of Gemma 3 270M, head_dim 256\n\n");
  std::fflush(stdout);
}

void WriteSvg(const std::string& path) {
  const std::string drawing = DrawPaNz(MakePaNzPicture());
  std::ofstream file(path, std::ios::binary);
  file << drawing;
  file.close();
  if (!file) throw UsageError(fmt::format("--svg: {} cannot be written", path));
}

ExitCode Demo(const DemoOptions& options) {
  const auto start = std::chrono::steady_clock::now();
  // First, because a path that cannot be written should not cost a minute.
  WriteSvg(options.svg);
  if (!options.json) PrintHeader(options.threads);
  DemoReport report;
  report.svg = options.svg;
  report.threads = options.threads;
  report.rows = RunScenarios(options);
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  fmt::print("{}", options.json ? report.Json() : report.Text());
  return report.CountBad() == 0 ? kOk : kCheckFailed;
}

}  // namespace

void AddDemo(CLI::App& app, ExitCode& exit_code) {
  CLI::App* command = app.add_subcommand(
      "demo", "Both operators on the shapes of real models, checked, timed and drawn");
  command->footer(
      "Examples:\n"
      "  qkvfuse demo                        about a minute on two cores\n"
      "  qkvfuse demo --quick --svg /tmp/cache.svg\n"
      "  qkvfuse demo --json > demo.json");
  const auto options = std::make_shared<DemoOptions>();
  options->threads = DefaultThreads();
  command->add_option("--svg", options->svg, "File to draw the PA_NZ cache into")
      ->capture_default_str();
  command->add_option("--threads", options->threads, "Threads of the runs, copies and checks")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  command->add_flag("--quick", options->quick, "One model, short batches: seconds");
  command->add_flag("--json", options->json, "Print one JSON object instead of the table");
  command->callback([options, &exit_code] { exit_code = Demo(*options); });
}

}  // namespace qkvfuse::cli
