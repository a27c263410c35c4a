// Checksums of the outputs of case files, one line a case: the same on every processor, so a list
// that one wrote holds for all.
// Usage: checksums CASES...                       prints the list, by the best SIMD target
//        checksums --expect LIST PREFIX CASES...  compares with a list each SIMD target of the
//                                                 machine whose name begins with PREFIX
#include <fmt/format.h>

#include <fstream>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "cases/problem.h"
#include "support/checksum.h"

namespace qkvfuse::testing {
namespace {

// Longer prefills repeat what the shorter ones do, and emulators are slow.
constexpr int64_t kMaxTokens = 256;

template <typename T>
T ValueOrThrow(Result<T> result) {
  if (!result.ok()) throw std::runtime_error(result.status().message());
  return std::move(*result);
}

std::vector<cases::Case> ReadFiles(const std::vector<std::string>& paths) {
  std::vector<cases::Case> all;
  for (const std::string& path : paths) {
    for (const cases::Case& c : ValueOrThrow(cases::ReadCases(path))) {
      if (c.tokens.total() <= kMaxTokens) all.push_back(c);
    }
  }
  return all;
}

// "q_out=0123456789abcdef k_cache=..."
std::string ChecksumsOf(cases::Problem& problem, const std::string& target) {
  PlanOptions options;
  options.strict = problem.description().strict;
  options.target = target;
  const Plan plan = ValueOrThrow(problem.MakePlan(options));
  problem.ResetLibraryOutputs();
  const Status status = plan.Run(problem.tensors(), problem.tokens(), problem.run_options());
  if (!status.ok()) throw std::runtime_error(status.message());
  std::string checksums;
  for (const cases::NamedView& output : problem.Outputs()) {
    const std::string text = cli::ChecksumText(cli::Checksum(output.view));
    checksums += fmt::format("{}{}={}", checksums.empty() ? "" : " ", output.name, text);
  }
  return checksums;
}

// Case line -> checksums. A line of the list is "checksums | case line".
std::map<std::string, std::string> ReadList(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw std::runtime_error("cannot read " + path);
  std::map<std::string, std::string> list;
  constexpr std::string_view kSeparator = " | ";
  for (std::string line; std::getline(file, line);) {
    const size_t at = line.find(kSeparator);
    if (at != std::string::npos) list[line.substr(at + kSeparator.size())] = line.substr(0, at);
  }
  return list;
}

void Print(const std::vector<cases::Case>& all) {
  for (const cases::Case& c : all) {
    const auto problem = ValueOrThrow(cases::Problem::Make(c));
    fmt::print("{} | {}\n", ChecksumsOf(*problem, ""), cases::PrintCase(c));
  }
}

std::vector<std::string> TargetsNamed(const std::string& prefix) {
  std::vector<std::string> targets;
  for (const std::string& target : AvailableTargets()) {
    if (target.starts_with(prefix)) targets.push_back(target);
  }
  return targets;
}

// The number of cases and targets that differ.
int Compare(const std::vector<cases::Case>& all, const std::vector<std::string>& targets,
            std::map<std::string, std::string> list) {
  int compared = 0;
  int differing = 0;
  for (const cases::Case& c : all) {
    const auto problem = ValueOrThrow(cases::Problem::Make(c));
    const std::string line = cases::PrintCase(c);
    const std::string expected = list.contains(line) ? list.at(line) : "not in the list";
    for (const std::string& target : targets) {
      const std::string found = ChecksumsOf(*problem, target);
      ++compared;
      if (found == expected) continue;
      ++differing;
      fmt::print("{}\n  {}: {}\n  expected: {}\n", line, target, found, expected);
    }
    list.erase(line);
  }
  for (const auto& [line, expected] : list) {
    ++differing;
    fmt::print("{}\n  in the list only\n", line);
  }
  fmt::print("{} cases on {}: {} compared, {} differ\n", all.size(), fmt::join(targets, ", "),
             compared, differing);
  return compared == 0 ? 1 : differing;
}

int Main(std::vector<std::string> words) {
  if (words.size() >= 3 && words[0] == "--expect") {
    const std::map<std::string, std::string> list = ReadList(words[1]);
    const std::vector<std::string> targets = TargetsNamed(words[2]);
    words.erase(words.begin(), words.begin() + 3);
    return Compare(ReadFiles(words), targets, list) == 0 ? 0 : 1;
  }
  Print(ReadFiles(words));
  return 0;
}

}  // namespace
}  // namespace qkvfuse::testing

int main(int argc, char** argv) {
  try {
    return qkvfuse::testing::Main({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    fmt::print(stderr, "checksums: {}\n", error.what());
    return 2;
  }
}
