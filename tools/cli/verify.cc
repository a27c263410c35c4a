// `qkvfuse verify`: files of cases and tables of rows against the references.
#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "command.h"
#include "support/parallel.h"
#include "support/progress.h"
#include "support/system.h"
#include "tables/verification.h"

namespace qkvfuse::cli {
namespace {

struct VerifyOptions {
  std::vector<std::string> files;
  std::string filter;
  int jobs = 0;
  bool everywhere = false;
  bool json = false;
};

std::vector<Verification> Collect(const VerifyOptions& options) {
  std::vector<Verification> all;
  for (const std::string& file : options.files) {
    constexpr std::string_view kTable = ".jsonl";
    const bool is_table = file.size() > kTable.size() &&
                          file.compare(file.size() - kTable.size(), kTable.size(), kTable) == 0;
    for (Verification& verification :
         is_table ? VerificationsOfTable(file) : VerificationsOfCases(file, options.everywhere)) {
      const bool is_wanted = verification.title.find(options.filter) != std::string::npos;
      if (is_wanted) all.push_back(std::move(verification));
    }
  }
  return all;
}

std::vector<Outcome> RunAll(const std::vector<Verification>& all, int jobs) {
  std::vector<Outcome> outcomes(all.size());
  ProgressBar progress(std::ssize(all));
  ParallelChunks(std::ssize(all), 1, jobs, [&](int64_t begin, int64_t) {
    const Verification& verification = all[static_cast<size_t>(begin)];
    progress.SetLabel(verification.title.substr(0, 40));
    outcomes[static_cast<size_t>(begin)] = verification.run();
    progress.Advance();
  });
  return outcomes;
}

int Count(const std::vector<Outcome>& outcomes, Outcome::Kind kind) {
  return static_cast<int>(
      std::count_if(outcomes.begin(), outcomes.end(),
                    [kind](const Outcome& outcome) { return outcome.kind == kind; }));
}

struct Summary {
  int passed;
  int failed;
  int skipped;
};

void PrintText(const std::vector<Verification>& all, const std::vector<Outcome>& outcomes,
               const Summary& summary) {
  std::map<std::string, int> skips;
  for (size_t i = 0; i < all.size(); ++i) {
    if (outcomes[i].kind == Outcome::Kind::kSkipped) ++skips[outcomes[i].message];
    if (outcomes[i].kind != Outcome::Kind::kFailed) continue;
    fmt::print("FAILED   {}\n         {}\n", all[i].title, outcomes[i].message);
  }
  for (const auto& [reason, count] : skips) fmt::print("skipped  {} rows: {}\n", count, reason);
  fmt::print("{} passed, {} failed", summary.passed, summary.failed);
  if (summary.skipped > 0) fmt::print(", {} skipped", summary.skipped);
  fmt::print("\n");
}

void PrintJson(const std::vector<Verification>& all, const std::vector<Outcome>& outcomes,
               const Summary& summary) {
  nlohmann::ordered_json json;
  json["passed"] = summary.passed;
  json["failed"] = summary.failed;
  json["skipped"] = summary.skipped;
  json["failures"] = nlohmann::ordered_json::array();
  for (size_t i = 0; i < all.size(); ++i) {
    if (outcomes[i].kind != Outcome::Kind::kFailed) continue;
    json["failures"].push_back({{"case", all[i].title}, {"message", outcomes[i].message}});
  }
  fmt::print("{}\n", json.dump(2));
}

ExitCode Verify(const VerifyOptions& options) {
  const std::vector<Verification> all = Collect(options);
  if (all.empty()) throw UsageError("verify: the files hold no case that the filter lets through");
  const int jobs = options.jobs > 0 ? options.jobs : HardwareThreads();
  const std::vector<Outcome> outcomes = RunAll(all, jobs);
  const Summary summary{Count(outcomes, Outcome::Kind::kPassed),
                        Count(outcomes, Outcome::Kind::kFailed),
                        Count(outcomes, Outcome::Kind::kSkipped)};
  options.json ? PrintJson(all, outcomes, summary) : PrintText(all, outcomes, summary);
  // A file of which nothing could be checked has not been verified.
  return summary.failed == 0 && summary.passed > 0 ? kOk : kCheckFailed;
}

}  // namespace

void AddVerify(CLI::App& app, ExitCode& exit_code) {
  CLI::App* command =
      app.add_subcommand("verify", "Files of cases or tables of rows against the references");
  command->footer(
      "Files:\n"
      "  *.txt    a case line each; every output byte has to equal the exact reference\n"
      "  *.jsonl  rows with an expectation: numeric rows also have to lie in the interval of the\n"
      "           double reference and in the row's tolerances; argument rows have to be accepted\n"
      "           or refused as they say; rows of fault cases are skipped\n"
      "Examples:\n"
      "  qkvfuse verify cases/smoke.txt\n"
      "  qkvfuse verify --everywhere cases/smoke.txt cases/edge.txt\n"
      "  qkvfuse verify --filter bf16 --json upstream_table_qkv.jsonl");
  const auto options = std::make_shared<VerifyOptions>();
  command->add_option("files", options->files, "Files of cases (.txt) or tables (.jsonl)")
      ->required()
      ->check(CLI::ExistingFile);
  command->add_option("--filter", options->filter, "Only cases and rows that contain this text");
  command->add_option("--jobs", options->jobs, "Cases at a time; 0: one for each processor")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  command->add_flag("--everywhere", options->everywhere,
                    "Each case on every SIMD target and both paths");
  command->add_flag("--json", options->json, "Print one JSON object");
  command->callback([options, &exit_code] { exit_code = Verify(*options); });
}

}  // namespace qkvfuse::cli
