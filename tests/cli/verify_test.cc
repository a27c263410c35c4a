// `verify`: passes what is right, and reports a wrong expectation as failed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "program.h"

namespace qkvfuse::cli {
namespace {

using testing::EndsWith;
using testing::HasSubstr;
using testing::StartsWith;

// A numeric row: 2 x 8 tokens, fp16, an int8 K cache and a 16-bit V cache.
nlohmann::json NumericRow() {
  return nlohmann::json::parse(R"({
    "id": "numeric", "op": "qkv_rms_norm_rope_cache",
    "dtypes": {"qkv": "float16", "kCache": "int8", "vCache": "float16"},
    "shapes": {"qkv": [16, 512], "kCache": [2, 4, 32, 32], "vCache": [2, 8, 32, 16],
               "kScale": [1, 128], "vScale": null, "kOffset": null, "vOffset": null,
               "out": {"qOut": [16, 256], "kCache": [2, 4, 32, 32], "vCache": [2, 8, 32, 16]}},
    "attrs": {"qkv_size": [2, 8, 4, 128], "head_nums": [2, 1, 1], "epsilon": 1e-6,
              "cache_mode": "PA_NZ", "is_output_qkv": true},
    "ranges": {"qkv": [-1, 1], "qGamma": [-1, 1], "kGamma": [-1, 1], "cos": [-1, 1],
               "sin": [-1, 1], "kScale": [0.5, 2.0], "vScale": null},
    "expect": {"status": "success",
               "rtol_atol": {"qOut": [0.001, 0.001], "kCache": [1.0, 1.0],
                             "vCache": [0.001, 0.001], "kOutBeforeQuant": [0.001, 0.001]}}})");
}

// A row of the argument checks that is accepted.
nlohmann::json ArgumentRow() {
  return nlohmann::json::parse(R"({
    "id": "arguments", "op": "qkv_rms_norm_rope_cache",
    "dtypes": {"qkv": "float16", "qGamma": "float16", "kGamma": "float16", "cos": "float16",
               "sin": "float16", "index": "int64", "qOut": "float16", "kCache": "int8",
               "vCache": "int8", "kScale": "float32", "vScale": "float32"},
    "shapes": {"qkv": [8, 2304], "qGamma": [128], "kGamma": [128], "cos": [8, 128],
               "sin": [8, 128], "index": [8], "qOut": [8, 2048], "kCache": [4, 4, 128, 32],
               "vCache": [4, 4, 128, 32], "kScale": [1, 128], "vScale": [1, 128],
               "kOffset": null, "vOffset": null},
    "attrs": {"qkv_size": [4, 2, 18, 128], "head_nums": [16, 1, 1], "epsilon": 1e-6,
              "cache_mode": "PA_NZ", "is_output_qkv": true},
    "ranges": null, "expect": {"layer": "tiling", "status": "success"}})");
}

ProgramResult VerifyRows(const std::vector<nlohmann::json>& rows) {
  std::string text;
  for (const nlohmann::json& row : rows) text += row.dump() + "\n";
  return RunProgram("verify '" + WriteTestFile("rows.jsonl", text) + "'");
}

TEST(VerifyCases, PassesAndCounts) {
  const std::string file = WriteTestFile("cases.txt",
                                         "# two cases\n"
                                         "op=qnr heads=4/2/2 head_dim=64 tokens=5\n"
                                         "op=drq x=int32 heads=4/1/1 head_dim=32 tokens=3x2\n");
  const ProgramResult result = RunProgram("verify '" + file + "'");
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.out, "2 passed, 0 failed\n");
  EXPECT_EQ(result.err, "");
}

TEST(VerifyCases, SmokeCasesPassEverywhere) {
  const ProgramResult result =
      RunProgram("verify --everywhere '" QKVFUSE_CASES_DIRECTORY "/smoke.txt'");
  EXPECT_EQ(result.exit_code, 0) << result.out;
  EXPECT_THAT(result.out, EndsWith(" passed, 0 failed\n"));
  EXPECT_THAT(result.out, testing::Not(StartsWith("0 passed")));
}

TEST(VerifyCases, ARefusedCaseFailsAndItsLineIsPrinted) {
  const std::string line = "op=qnr heads=4/2/2 head_dim=64 tokens=5 slots=repeated strict=1";
  const std::string file = WriteTestFile("cases.txt", line + "\n");
  const ProgramResult result = RunProgram("verify '" + file + "'");
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.out, StartsWith("FAILED   op=qnr "));
  EXPECT_THAT(result.out, HasSubstr("slots=repeated"));
  EXPECT_THAT(result.out, EndsWith("0 passed, 1 failed\n"));
}

TEST(VerifyCases, JsonHasTheFailures) {
  const std::string file = WriteTestFile(
      "cases.txt", "op=qnr heads=1/1/1 tokens=2\nop=qnr heads=1/1/1 tokens=9 slots=repeated\n");
  const nlohmann::json json = RunForJson("verify --json '" + file + "'");
  EXPECT_EQ(json.at("passed"), 1);
  EXPECT_EQ(json.at("failed"), 1);
  ASSERT_EQ(json.at("failures").size(), 1u);
  EXPECT_THAT(json.at("failures")[0].at("case").get<std::string>(), HasSubstr("slots=repeated"));
}

TEST(VerifyCases, ALineThatIsNoCaseIsWrongUsage) {
  const std::string file = WriteTestFile("cases.txt", "op=qnr tokens=2\nop=qnr wings=2\n");
  const ProgramResult result = RunProgram("verify '" + file + "'");
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("wings"));
}

TEST(VerifyCases, NothingToVerifyIsWrongUsage) {
  const std::string file = WriteTestFile("cases.txt", "op=qnr heads=1/1/1 tokens=2\n");
  EXPECT_EQ(RunProgram("verify --filter wings '" + file + "'").exit_code, 2);
  EXPECT_EQ(RunProgram("verify --filter heads=1 '" + file + "'").exit_code, 0);
}

TEST(VerifyTable, NumericAndArgumentRowsPass) {
  const ProgramResult result = VerifyRows({NumericRow(), ArgumentRow()});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.out, "2 passed, 0 failed\n");
}

TEST(VerifyTable, AToleranceThatIsTooTightFails) {
  for (const char* output : {"qOut", "kOutBeforeQuant"}) {
    nlohmann::json row = NumericRow();
    row["expect"]["rtol_atol"][output] = {0.0, 0.0};
    const ProgramResult result = VerifyRows({row, ArgumentRow()});
    EXPECT_EQ(result.exit_code, 1) << output;
    EXPECT_THAT(result.out, HasSubstr("FAILED   numeric (op=qnr "));
    EXPECT_THAT(result.out, HasSubstr("outside the tolerance"));
    EXPECT_THAT(result.out, EndsWith("1 passed, 1 failed\n"));
  }
}

TEST(VerifyTable, AWrongOutputShapeFails) {
  nlohmann::json row = NumericRow();
  row["shapes"]["out"]["qOut"] = {16, 128};
  EXPECT_THAT(VerifyRows({row}).out, HasSubstr("qOut: 4096 elements, the row expects 2048"));
}

TEST(VerifyTable, AnExpectedRefusalOfAGoodRowFails) {
  nlohmann::json row = ArgumentRow();
  row["expect"]["status"] = "tiling_failed";
  const ProgramResult result = VerifyRows({row});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.out, HasSubstr("accepted, where the row expects a refusal"));
}

TEST(VerifyTable, RefusedRowsPassWithTheirCodeOnly) {
  nlohmann::json wrong_shape = ArgumentRow();
  wrong_shape["shapes"]["cos"] = {8, 64};
  EXPECT_THAT(VerifyRows({wrong_shape}).out, HasSubstr("refused: cos"));
  wrong_shape["expect"]["status"] = "tiling_failed";
  nlohmann::json missing = ArgumentRow();
  missing["shapes"]["sin"] = nullptr;
  missing["expect"]["status"] = "tiling_failed";
  EXPECT_EQ(VerifyRows({wrong_shape, missing}).out, "2 passed, 0 failed\n");
}

TEST(VerifyTable, FaultCasesAreSkippedAndSayWhy) {
  const nlohmann::json fault = {{"id", "C01"}, {"fault_kind", "overflow"}};
  const ProgramResult both = VerifyRows({fault, ArgumentRow()});
  EXPECT_EQ(both.exit_code, 0);
  EXPECT_THAT(both.out, HasSubstr("skipped  1 rows: fault cases"));
  EXPECT_THAT(both.out, EndsWith("1 passed, 0 failed, 1 skipped\n"));
  EXPECT_EQ(VerifyRows({fault}).exit_code, 1) << "nothing was verified";
}

TEST(VerifyTable, ARowThatLacksSomethingFailsAlone) {
  nlohmann::json row = NumericRow();
  row["attrs"].erase("qkv_size");
  const ProgramResult result = VerifyRows({row, ArgumentRow()});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.out, HasSubstr("qkv_size"));
  EXPECT_THAT(result.out, EndsWith("1 passed, 1 failed\n"));
}

TEST(VerifyTable, ABrokenLineIsWrongUsage) {
  const std::string file = WriteTestFile("rows.jsonl", ArgumentRow().dump() + "\n{\"id\": \n");
  const ProgramResult result = RunProgram("verify '" + file + "'");
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("rows.jsonl:2:"));
}

}  // namespace
}  // namespace qkvfuse::cli
