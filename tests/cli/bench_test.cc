// `bench`: rows and their figures, the drawing, and that the baselines do the work they stand for.
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "bench/check.h"
#include "bench/grid.h"
#include "bench/measure.h"
#include "bench_output/plot.h"
#include "program.h"

namespace qkvfuse::cli {
namespace {

using testing::AllOf;
using testing::Each;
using testing::Gt;
using testing::HasSubstr;
using testing::StartsWith;

constexpr char kOneRow[] = "--seconds 0.002 --filter 'qnr/8x1x128/bf16/int8/pa_nz/T64/hot/1t' ";

std::vector<std::string> Lines(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

std::vector<std::string> NamesOf(const std::vector<bench::Row>& rows) {
  std::vector<std::string> names;
  for (const bench::Row& row : rows) names.push_back(row.name);
  return names;
}

TEST(BenchGrid, NamesAreDistinctAndTheDefaultIsASubset) {
  const std::vector<std::string> full = NamesOf(bench::FullGrid());
  const std::set<std::string> distinct(full.begin(), full.end());
  EXPECT_EQ(distinct.size(), full.size());
  const std::vector<std::string> some = NamesOf(bench::DefaultRows());
  EXPECT_THAT(some, testing::SizeIs(AllOf(Gt(100u), testing::Lt(400u))));
  for (const std::string& name : some) EXPECT_TRUE(distinct.contains(name)) << name;
}

TEST(BenchGrid, CasesAreWhatTheNamesSay) {
  for (const bench::Row& row : bench::FullGrid()) {
    EXPECT_THAT(row.name, HasSubstr(fmt::format("/T{}/", row.tokens())));
    EXPECT_THAT(row.name, StartsWith(row.c.is_qnr() ? "qnr/" : "drq/"));
    EXPECT_THAT(row.name, HasSubstr(fmt::format("x{}/", row.c.head_dim)));
    EXPECT_THAT(row.name, testing::EndsWith(fmt::format("/{}t", row.c.threads)));
    EXPECT_EQ(row.name.find("/cold/") != std::string::npos, row.regime == bench::Regime::kCold);
  }
}

// One row of each operator, type, cache and layout, at a decode step and at a prompt.
class BaselineTest : public testing::TestWithParam<std::string> {};

TEST_P(BaselineTest, AgreesWithTheFusedCall) {
  const std::vector<bench::Row> rows = bench::Filter(bench::FullGrid(), GetParam() + "$");
  ASSERT_EQ(rows.size(), 1u);
  const Status status = bench::CheckBaselines(rows.front().c);
  EXPECT_TRUE(status.ok()) << status.message();
}

std::vector<std::string> BaselineRows() {
  std::vector<std::string> names =
      NamesOf(bench::Filter(bench::FullGrid(), "/8x1x128/.*/T(16|256)/hot/2t"));
  for (const char* other :
       {"qnr/16x8x256/bf16/16bit/pa_nz/T8/hot/1t", "drq/64x4x128/fp16/int8/paged/T1/hot/1t"}) {
    names.emplace_back(other);
  }
  return names;
}
INSTANTIATE_TEST_SUITE_P(All, BaselineTest, testing::ValuesIn(BaselineRows()));

TEST(BenchMeasure, RatiosAreTakenWithinRounds) {
  // The machine is ten times slower in every second round.
  const bench::Series slow = {2, 20, 2, 20, 2};
  const bench::Series fast = {1, 10, 1, 10, 1};
  const bench::Spread ratio = bench::RatioOf(slow, fast);
  EXPECT_EQ(ratio.median, 2);
  EXPECT_EQ(ratio.p10, 2);
  EXPECT_EQ(ratio.p90, 2);
  const bench::Spread times = bench::SpreadOf({5, 1, 4, 2, 3, 6, 7, 8, 9, 10, 11});
  EXPECT_EQ(times.median, 6);
  EXPECT_EQ(times.p10, 2);
  EXPECT_EQ(times.p90, 10);
}

TEST(BenchMeasure, ContendersTakeTurns) {
  std::string calls;
  const bench::Budget one_call_a_round{0, 0, 3};
  const std::vector<bench::Series> series =
      bench::Alternate({[&] { calls += 'a'; }, [&] { calls += 'b'; }}, one_call_a_round);
  ASSERT_EQ(series.size(), 2u);
  EXPECT_THAT(series, Each(testing::SizeIs(3)));
  EXPECT_THAT(calls, testing::EndsWith("ababab"));
}

TEST(Bench, ListsNamesAndMeasuresNothing) {
  const ProgramResult some = RunProgram("bench --list");
  EXPECT_EQ(some.exit_code, 0);
  EXPECT_EQ(Lines(some.out), NamesOf(bench::DefaultRows()));
  const ProgramResult filtered = RunProgram("bench --full --list --filter 'drq/.*/T8/cold/2t'");
  EXPECT_THAT(Lines(filtered.out),
              AllOf(Each(StartsWith("drq/")), testing::Not(testing::IsEmpty())));
}

TEST(Bench, JsonHasMachineRowsAndRatios) {
  const nlohmann::json bench = RunForJson(std::string("bench --full --json ") + kOneRow);
  ASSERT_FALSE(bench.is_null());
  for (const char* key : {"version", "commit", "build", "cpu", "processors", "target",
                          "thread_library", "last_level_cache_bytes"}) {
    EXPECT_TRUE(bench.contains(key)) << key;
  }
  ASSERT_EQ(bench.at("rows").size(), 1u);
  const nlohmann::json& row = bench.at("rows").at(0);
  EXPECT_EQ(row.at("name"), "qnr/8x1x128/bf16/int8/pa_nz/T64/hot/1t");
  EXPECT_EQ(row.at("tokens"), 64);
  EXPECT_EQ(row.at("threads"), 1);
  // Rows of x, cos, sin and slots, and two gammas and two scales; q_out and the codes.
  EXPECT_EQ(row.at("read_bytes"),
            64 * (10 * 128 * 2 + 2 * 128 * 2 + 8) + 2 * 128 * 2 + 2 * 128 * 4);
  EXPECT_EQ(row.at("write_bytes"), 64 * (8 * 128 * 2 + 2 * 128));
  for (const char* key : {"fused_us", "unfused_us", "convert_copy_us", "memcpy_us"}) {
    const nlohmann::json& spread = row.at(key);
    EXPECT_GT(spread.at("p10"), 0.0) << key;
    EXPECT_LE(spread.at("p10"), spread.at("median")) << key;
    EXPECT_LE(spread.at("median"), spread.at("p90")) << key;
  }
  for (const char* key : {"share_of_roof", "over_convert_copy", "unfused_over_fused"}) {
    EXPECT_GT(row.at(key).at("median"), 0.0) << key;
  }
  EXPECT_FALSE(row.contains("kernel_us"));
}

TEST(Bench, OneTokenTellsWhatACallCosts) {
  const nlohmann::json bench = RunForJson(
      "bench --full --json --seconds 0.002 --filter 'qnr/8x1x128/fp16/16bit/paged/T1/cold/1t'");
  ASSERT_FALSE(bench.is_null());
  const nlohmann::json& row = bench.at("rows").at(0);
  EXPECT_GT(row.at("kernel_us").at("median"), 0.0);
  EXPECT_GT(row.at("check_us").at("median"), 0.0);
  EXPECT_GT(row.at("sets"), 1) << "cold rows take turns on many buffers";
}

TEST(Bench, TextHasATableAndExplainsIt) {
  const std::string saved = TestFilePath("bench.json");
  const ProgramResult result =
      RunProgram(std::string("bench --full ") + kOneRow + "--save '" + saved + "'");
  EXPECT_EQ(nlohmann::json::parse(ReadFile(saved)).at("rows").size(), 1u);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.err, "") << "a progress bar belongs on a terminal";
  for (const char* word : {"T64/hot/1t", "GB/s", "roof", "x floor", "unfused", "commit"}) {
    EXPECT_THAT(result.out, HasSubstr(word));
  }
}

TEST(Bench, MarkdownIsATable) {
  const ProgramResult result =
      RunProgram(std::string("bench --full --markdown --threads 3 ") +
                 "--seconds 0.002 --filter 'drq/8x1x128/fp16/int8/contiguous/T8/hot'");
  EXPECT_EQ(result.exit_code, 0) << result.err;
  const std::vector<std::string> lines = Lines(result.out);
  ASSERT_EQ(lines.size(), 5u);
  EXPECT_THAT(lines[2], StartsWith("| row | us per token | spread |"));
  EXPECT_THAT(lines[3], StartsWith("|---|---:|"));
  EXPECT_THAT(lines[4], StartsWith("| drq/8x1x128/fp16/int8/contiguous/T8/hot/3t | "));
  for (size_t i = 2; i < lines.size(); ++i) {
    EXPECT_EQ(std::count(lines[i].begin(), lines[i].end(), '|'), 9) << lines[i];
  }
}

TEST(Bench, PlotWritesAnSvg) {
  const std::string svg = TestFilePath("bench.svg");
  const ProgramResult result = RunProgram(
      "bench --full --seconds 0.001 --filter 'qnr/8x1x128/bf16/int8/pa_nz/T(1|8|64)/hot/1t' "
      "--plot '" +
      svg + "'");
  if (result.err.find("there is no gnuplot") != std::string::npos) GTEST_SKIP() << result.err;
  EXPECT_EQ(result.exit_code, 0) << result.err;
  const std::string drawing = ReadFile(svg);
  EXPECT_THAT(drawing, HasSubstr("<svg"));
  EXPECT_THAT(drawing, HasSubstr("</svg>"));
  EXPECT_THAT(drawing, HasSubstr("GB/s"));
  EXPECT_THAT(drawing, HasSubstr("us per token"));
}

TEST(Bench, PlotWithoutGnuplotSaysWhatToInstall) {
  const ProgramResult result =
      RunProgram(std::string("bench --full --plot '") + TestFilePath("bench.svg") + "' " + kOneRow,
                 "PATH=/no/such/folder");
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("apt-get install gnuplot-nox"));
  EXPECT_EQ(result.out, "");
}

TEST(BenchPlot, ShowsTheLongestSeriesInOrderOfTokens) {
  std::vector<bench::RowResult> results;
  for (const char* pattern : {"qnr/64x8x128/fp16/int8/paged/T(8|64)/hot/1t",
                              "qnr/8x1x128/bf16/int8/pa_nz/T(1|8|64)/(hot|cold)/2t"}) {
    for (const bench::Row& row : bench::Filter(bench::FullGrid(), pattern)) {
      bench::RowResult& result = results.emplace_back();
      result.row = row;
      result.traffic = {1000, 1000};
      result.fused = result.unfused = result.convert_copy = result.roof = {1e-6, 1e-6, 1e-6};
    }
  }
  const std::string script = PlotScript(results, "it's.svg");
  EXPECT_THAT(script, HasSubstr("qnr/8x1x128/bf16/int8/pa_nz 2t"));
  EXPECT_THAT(script, HasSubstr("set output 'it''s.svg'"));
  const size_t hot = script.find("$hot << EOD");
  ASSERT_NE(hot, std::string::npos);
  EXPECT_THAT(script.substr(hot), StartsWith("$hot << EOD\n1 2.0000 2.0000 1.00000"));
  EXPECT_THAT(script, HasSubstr("$cold << EOD\n1 "));
}

}  // namespace
}  // namespace qkvfuse::cli
