// A JSONL table: each row goes to the check that understands it.
#include <fmt/core.h>

#include <fstream>

#include "command.h"
#include "tables/upstream_checks.h"
#include "tables/upstream_row.h"
#include "tables/upstream_table.h"
#include "tables/verification.h"

namespace qkvfuse::cli {
namespace {

// What a row of a table asks for, by the members that only such rows have.
Verification MakeVerification(const nlohmann::json& row) {
  if (row.contains("fault_kind")) {
    return {row.at("id"), [] {
              return Outcome::Skipped(
                  "fault cases give tensors by formulas that verify does not evaluate");
            }};
  }
  const bool is_numeric = row.at("expect").contains("rtol_atol");
  return is_numeric ? VerifyTableRow(UpstreamRow(row)) : VerifyCheckRow(UpstreamRow(row));
}

// A row that lacks a member is a failure of its own; the others still run.
Verification MakeGuarded(const nlohmann::json& row, const std::string& place) {
  try {
    Verification verification = MakeVerification(row);
    return {verification.title, [run = std::move(verification.run)] {
              try {
                return run();
              } catch (const std::exception& error) {
                return Outcome::Failed(error.what());
              }
            }};
  } catch (const nlohmann::json::exception& error) {
    return {place, [why = std::string(error.what())] { return Outcome::Failed(why); }};
  }
}

}  // namespace

std::vector<Verification> VerificationsOfTable(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw UsageError(fmt::format("{}: cannot be read", path));
  std::vector<Verification> verifications;
  int line_number = 0;
  for (std::string line; std::getline(file, line);) {
    const std::string place = fmt::format("{}:{}", path, ++line_number);
    if (line.empty()) continue;
    const nlohmann::json row = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!row.is_object()) throw UsageError(fmt::format("{}: is not a JSON object", place));
    verifications.push_back(MakeGuarded(row, place));
  }
  return verifications;
}

}  // namespace qkvfuse::cli
