// `qkvfuse bench`: fused calls against their baselines and the machine's limit.
#include <fmt/core.h>

#include <fstream>
#include <memory>
#include <regex>
#include <utility>
#include <vector>

#include "bench/grid.h"
#include "bench/machine.h"
#include "bench/row.h"
#include "bench_output/plot.h"
#include "bench_output/report.h"
#include "command.h"
#include "support/progress.h"

namespace qkvfuse::cli {
namespace {

struct BenchOptions {
  std::string filter;
  std::string plot;
  std::string save;
  double seconds = bench::Budget{}.seconds;
  int threads = 0;  // 0: those of the rows
  bool full = false;
  bool list = false;
  bool json = false;
  bool markdown = false;
};

// With --threads every row of one thread gets that number, and its name says so.
std::vector<bench::Row> WithThreads(std::vector<bench::Row> rows, int threads) {
  if (threads == 0) return rows;
  std::erase_if(rows, [](const bench::Row& row) { return row.c.threads != 1; });
  for (bench::Row& row : rows) {
    row.c.threads = threads;
    row.name = row.name.substr(0, row.name.rfind('/')) + fmt::format("/{}t", threads);
  }
  return rows;
}

std::vector<bench::Row> RowsOf(const BenchOptions& options) {
  std::vector<bench::Row> rows =
      WithThreads(options.full ? bench::FullGrid() : bench::DefaultRows(), options.threads);
  if (options.filter.empty()) return rows;
  std::vector<bench::Row> found;
  try {
    found = bench::Filter(rows, options.filter);
  } catch (const std::regex_error&) {
    throw UsageError(fmt::format("--filter: {} is no regular expression", options.filter));
  }
  if (found.empty()) {
    throw UsageError(fmt::format("--filter: {} matches no row{}; --list shows them", options.filter,
                                 options.full ? "" : " of the default subset (--full has more)"));
  }
  return found;
}

std::vector<bench::RowResult> Measure(const std::vector<bench::Row>& rows, double seconds) {
  bench::Budget budget;
  budget.seconds = seconds;
  bench::RowRunner runner(budget);
  ProgressBar progress(static_cast<int64_t>(rows.size()));
  std::vector<bench::RowResult> results;
  for (const bench::Row& row : rows) {
    progress.SetLabel(row.name);
    results.push_back(runner.Run(row));
    progress.Advance();
  }
  return results;
}

// Before anything is measured, because a path that cannot be written should not cost minutes.
void CheckFiles(const BenchOptions& options) {
  if (!options.plot.empty()) RequireGnuplot();
  for (const auto& [option, path] : {std::pair{"--plot", options.plot}, {"--save", options.save}}) {
    if (path.empty() || std::ofstream(path)) continue;
    throw UsageError(fmt::format("{}: {} cannot be written", option, path));
  }
}

ExitCode Bench(const BenchOptions& options) {
  const std::vector<bench::Row> rows = RowsOf(options);
  if (options.list) {
    for (const bench::Row& row : rows) fmt::print("{}\n", row.name);
    return kOk;
  }
  CheckFiles(options);
  BenchReport report;
  report.seconds_per_row = options.seconds;
  report.load_average = bench::LoadAverage();
  report.rows = Measure(rows, options.seconds);
  fmt::print("{}", options.json       ? report.Json()
                   : options.markdown ? report.Markdown()
                                      : report.Text());
  if (!options.save.empty()) std::ofstream(options.save) << report.Json();
  if (!options.plot.empty()) DrawPlot(report.rows, options.plot);
  return kOk;
}

}  // namespace

void AddBench(CLI::App& app, ExitCode& exit_code) {
  CLI::App* command = app.add_subcommand(
      "bench", "Times against the machine's limit, a conversion floor and the unfused passes");
  command->footer(
      "Examples:\n"
      "  qkvfuse bench                       the default subset, about a minute\n"
      "  qkvfuse bench --filter 'qnr/32x8x128/bf16/int8/pa_nz/.*/2t' --plot bench.svg\n"
      "  qkvfuse bench --full --filter 'drq/64x8x128' --seconds 0.5 --json > drq.json\n"
      "A row is called operator/heads/type/cache/layout/tokens/regime/threads; those of the "
      "general\n"
      "operator fused/model/heads/... Hot rows work on the same buffers, cold ones on buffers of\n"
      "four times the last-level cache, in turn.");
  const auto options = std::make_shared<BenchOptions>();
  command->add_option("--filter", options->filter, "Only rows in whose name REGEX finds a match")
      ->option_text("REGEX");
  command->add_flag("--full", options->full, "The full grid, about half an hour");
  command->add_flag("--list", options->list, "Print the rows' names and measure nothing");
  command->add_option("--threads", options->threads, "Threads in place of those of the rows")
      ->check(CLI::Range(1, 1024));
  command->add_option("--seconds", options->seconds, "Time for the rounds of a row")
      ->check(CLI::Range(0.001, 3600.0))
      ->capture_default_str();
  CLI::Option* json = command->add_flag("--json", options->json, "Print one JSON object");
  command->add_flag("--markdown", options->markdown, "Print a Markdown table")->excludes(json);
  command->add_option("--save", options->save, "Also write the JSON object into FILE")
      ->option_text("FILE.json");
  command->add_option("--plot", options->plot, "Draw the longest series of T into FILE (gnuplot)")
      ->option_text("FILE.svg");
  command->callback([options, &exit_code] { exit_code = Bench(*options); });
}

}  // namespace qkvfuse::cli
