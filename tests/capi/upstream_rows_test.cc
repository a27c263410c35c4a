// Every row of the shared case tables that applies to the aclnn door. Skips, visibly, when the
// tables are not there.
#include "upstream_rows.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace qkvfuse::capi_test {
namespace {

using Json = nlohmann::json;

constexpr const char* kChecks = "upstream_checks.jsonl";
constexpr const char* kTable = "upstream_table_qkv.jsonl";

std::vector<Json> RowsOfLayer(const std::string& layer) {
  std::vector<Json> rows;
  for (Json& row : ReadRows(kChecks)) {
    if (row["expect"]["layer"] == layer) rows.push_back(std::move(row));
  }
  return rows;
}

// The parameter that upstream's first failing check is about; empty where it is about several.
std::string NamedParameter(const std::string& check) {
  const std::string first = check.substr(0, check.find(' '));
  if (first == "qkv_size" || check == "qkv_size<=0" || check == "D!=128") return "qkvSize";
  if (first == "head_nums") return "headNums";
  if (first == "v") return "vCache";
  if (check == "blockSize%32") return "kCache";
  return first == "N" ? "" : first;
}

bool LacksRequiredTensor(const Json& row) {
  for (const auto& [name, type] : row["dtypes"].items()) {
    const bool is_optional =
        name.find("Scale") != std::string::npos || name.find("Offset") != std::string::npos;
    if (type.is_null() && !is_optional) return true;
  }
  return false;
}

void ExpectRefused(const Json& row) {
  const auto call = CallOf(row);
  EXPECT_EQ(call->PhaseOne(),
            LacksRequiredTensor(row) ? ACLNN_ERR_PARAM_NULLPTR : ACLNN_ERR_PARAM_INVALID);
  EXPECT_EQ(call->executor, nullptr);
  EXPECT_EQ(call->workspace_size, 0u);
  EXPECT_NE(
      std::string(aclGetRecentErrMsg()).find(NamedParameter(row["expect"]["first_failed_check"])),
      std::string::npos)
      << aclGetRecentErrMsg();
}

// Runs the row and compares every output element, and every cache element that must not change.
void ExpectGolden(const Json& row, uint64_t seed) {
  const auto call = CallOf(row);
  FillCall(row, seed, *call);
  ASSERT_EQ(call->Run(), ACLNN_SUCCESS) << aclGetRecentErrMsg();
  const Comparison found = CompareWithGolden(*call, TolerancesOf(row));
  EXPECT_GT(found.elements, 0);
  EXPECT_EQ(found.outside, 0) << "of " << found.elements << "; " << found.first_outside;
  EXPECT_EQ(found.disturbed, 0);
  // Beyond the row's own tolerance: only a rounding tie may give another code.
  EXPECT_LE(found.differing * 10000, found.codes);
}

TEST(UpstreamChecks, TilingRowsHaveTheirOutcome) {
  const std::vector<Json> rows = RowsOfLayer("tiling");
  if (rows.empty()) GTEST_SKIP() << kChecks << " is not there";
  EXPECT_EQ(rows.size(), 57u);
  for (const Json& row : rows) {
    SCOPED_TRACE(row["id"].get<std::string>());
    if (row["expect"]["status"] != "success") {
      ExpectRefused(row);
      continue;
    }
    const auto call = CallOf(row);
    EXPECT_EQ(call->PhaseOne(), ACLNN_SUCCESS) << aclGetRecentErrMsg();
    EXPECT_NE(call->executor, nullptr);
  }
}

// Upstream leaves these open; ours: an int8 cache needs a scale, everything else is accepted.
TEST(UpstreamChecks, ApiRowsFollowTheContract) {
  const std::vector<Json> rows = RowsOfLayer("op_api");
  if (rows.empty()) GTEST_SKIP() << kChecks << " is not there";
  for (const Json& row : rows) {
    SCOPED_TRACE(row["id"].get<std::string>());
    const bool has_scale = row["optional_present"]["kScale"];
    EXPECT_EQ(CallOf(row)->PhaseOne(), has_scale ? ACLNN_SUCCESS : ACLNN_ERR_PARAM_INVALID);
  }
}

TEST(UpstreamChecks, KernelAndAcceptedDequantRowsRunAndMatchFloat64) {
  std::vector<Json> rows = RowsOfLayer("kernel");
  if (rows.empty()) GTEST_SKIP() << kChecks << " is not there";
  for (Json& row : RowsOfLayer("tiling")) {
    if (row["op"] == "dequant_rope_quant_kvcache") rows.push_back(std::move(row));
  }
  EXPECT_EQ(rows.size(), 13u);
  for (size_t i = 0; i < rows.size(); ++i) {
    SCOPED_TRACE(rows[i]["id"].get<std::string>());
    ExpectGolden(rows[i], i);
  }
}

TEST(UpstreamTable, AllRowsMatchFloat64WithinTheirTolerances) {
  const std::vector<Json> rows = ReadRows(kTable);
  if (rows.empty()) GTEST_SKIP() << kTable << " is not there";
  EXPECT_EQ(rows.size(), 240u);
  for (size_t i = 0; i < rows.size(); ++i) {
    SCOPED_TRACE(rows[i]["id"].get<std::string>());
    ExpectGolden(rows[i], i);
  }
}

}  // namespace
}  // namespace qkvfuse::capi_test
