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
  const std::string id = row.value("id", "row without an id");
  if (row.contains("fault_kind")) {
    return {id, [] {
              return Outcome::Skipped(
                  "fault cases give tensors by formulas that verify does not evaluate");
            }};
  }
  if (!row.contains("expect")) {
    throw UsageError(fmt::format("{}: is neither a row with an expectation nor a fault case", id));
  }
  const bool is_numeric = row.at("expect").contains("rtol_atol");
  return is_numeric ? VerifyTableRow(UpstreamRow(row)) : VerifyCheckRow(UpstreamRow(row));
}

// A row that lacks a member is a failure of its own; the others still run.
Verification Guarded(Verification verification) {
  return {verification.title, [run = std::move(verification.run)] {
            try {
              return run();
            } catch (const std::exception& error) {
              return Outcome::Failed(error.what());
            }
          }};
}

}  // namespace

std::vector<Verification> VerificationsOfTable(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw UsageError(fmt::format("{}: cannot be read", path));
  std::vector<Verification> verifications;
  int line_number = 0;
  for (std::string line; std::getline(file, line);) {
    ++line_number;
    if (line.empty()) continue;
    try {
      verifications.push_back(Guarded(MakeVerification(nlohmann::json::parse(line))));
    } catch (const nlohmann::json::exception& error) {
      throw UsageError(fmt::format("{}:{}: {}", path, line_number, error.what()));
    }
  }
  return verifications;
}

}  // namespace qkvfuse::cli
