// `bench`: rows and their figures, the drawing, and that the baselines do the work they stand for.
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "bench/check.h"
#include "bench/grid.h"
#include "bench/measure.h"
#include "bench/subject.h"
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
    EXPECT_THAT(row.name, StartsWith(row.c.is_qnr()     ? "qnr/"
                                     : row.c.is_fused() ? "fused/"
                                                        : "drq/"));
    EXPECT_THAT(row.name, HasSubstr(fmt::format("x{}/", row.c.head_dim)));
    EXPECT_THAT(row.name, testing::EndsWith(fmt::format("/{}t", row.c.threads)));
    EXPECT_EQ(row.name.find("/cold/") != std::string::npos, row.regime == bench::Regime::kCold);
  }
}

TEST(BenchGrid, FusedRowsAreModelsAndADefaultHasEachOnce) {
  const std::vector<bench::Row> all = bench::Filter(bench::FullGrid(), "^fused/");
  EXPECT_THAT(NamesOf(all), testing::Contains("fused/gemma3/16x8x256/bf16/16bit/paged/T64/hot/2t"));
  for (const bench::Row& row : all) {
    EXPECT_EQ(row.regime, bench::Regime::kHot) << row.name;
    EXPECT_THAT(row.tokens(), testing::AnyOf(1, 64, 2048)) << row.name;
  }
  const size_t models = bench::Filter(all, "/T64/hot/1t$").size();
  EXPECT_EQ(all.size(), 6 * models) << "three T on one and two threads";
  EXPECT_EQ(bench::Filter(bench::DefaultRows(), "^fused/.*/T64/hot/1t$").size(), models);
}

TEST(BenchGrid, FusedCasesHaveWhatTheModelsHave) {
  const auto case_of = [](const std::string& pattern) {
    const std::vector<bench::Row> rows =
        bench::Filter(bench::FullGrid(), "^fused/" + pattern + "/T64/hot/1t$");
    EXPECT_EQ(rows.size(), 1u) << pattern;
    return rows.empty() ? cases::Case{} : rows.front().c;
  };
  const cases::Case glm4 = case_of("glm4/.*");
  EXPECT_EQ(glm4.fused.rope, RopeSpec::Pairing::kInterleaved);
  EXPECT_EQ(glm4.rotary_dim(), 64);
  EXPECT_EQ(glm4.bias, DType::kBFloat16);
  EXPECT_EQ(case_of("phi4/.*").rotary_dim(), 96);
  EXPECT_EQ(case_of("olmo2/.*").fused.k_norm, NormSpec::Kind::kFullWidth);
  EXPECT_EQ(case_of("gemma3/.*").fused.gamma, NormSpec::Gamma::kOnePlus);
  EXPECT_EQ(case_of("llama3/.*").fused.q_norm, NormSpec::Kind::kNone);
  EXPECT_EQ(case_of("qwen2.5_vl/.*").fused.sections, RopeSpec::Sections::kConcatenated);
  EXPECT_EQ(case_of("qwen3_pages/.*").slot_mode, SlotMode::kPageTable);
  EXPECT_TRUE(case_of("qwen3/.*/int8_dynamic/.*").k_cache.is_dynamic());
  EXPECT_EQ(case_of("qwen3/.*/x_split").layout, cases::Layout::kXSplit);
  EXPECT_EQ(case_of("qwen3/.*/fp8/.*").k_cache.dtype, DType::kFloat8E4M3);
  EXPECT_EQ(case_of("qwen3/.*/fp32/.*").x_dtype, DType::kFloat32);
}

// One row of each operator, type, cache and layout, at a decode step and at a prompt, and every
// model of the general operator.
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
  for (const char* models : {"^fused/.*/T64/hot/2t", "^fused/qwen3.*/T1/hot/1t"}) {
    for (const bench::Row& row : bench::Filter(bench::FullGrid(), models)) {
      names.push_back(row.name);
    }
  }
  return names;
}
INSTANTIATE_TEST_SUITE_P(All, BaselineTest, testing::ValuesIn(BaselineRows()));

// The passes of the general operator, by what there is to do.
TEST(BenchComposition, HasThePassesThatTheModelNeeds) {
  const auto passes_of = [](const std::string& model) {
    const std::vector<bench::Row> rows =
        bench::Filter(bench::FullGrid(), "^fused/" + model + "/.*/T1/hot/1t$");
    EXPECT_FALSE(rows.empty()) << model;
    return rows.empty() ? "" : bench::MakeSubject(rows.front().c, 0)->DescribePasses();
  };
  EXPECT_EQ(passes_of("qwen3"), "norm (baseline), rope (fused), caches (fused)");
  EXPECT_EQ(passes_of("olmo2"), "norm (general path), rope (fused), caches (fused)");
  EXPECT_EQ(passes_of("llama3"), "rope (fused), caches (fused)");
  EXPECT_EQ(passes_of("glm4"), "bias (general path), rope (general path), caches (fused)");
}

TEST(BenchComposition, RefusesWhatItWouldNotDoInPasses) {
  const Result<cases::Case> c = cases::ParseCase(
      "op=fused dtype=bf16 heads=4/2 head_dim=64 tokens=2 k_cache=int8 v_cache=int8 layout=paged "
      "kv_output=1");
  ASSERT_TRUE(c.ok()) << c.status().message();
  EXPECT_THROW((void)bench::MakeSubject(*c, 0), std::logic_error);
}

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

TEST(Bench, FusedRowsHaveNoFloorButTheGeneralPath) {
  const std::string filter =
      "bench --full --seconds 0.002 --filter 'fused/(llama3|phi4)/.*/T1/.*/1t' ";
  const nlohmann::json bench = RunForJson(filter + "--json");
  ASSERT_FALSE(bench.is_null());
  ASSERT_EQ(bench.at("rows").size(), 2u);
  const nlohmann::json& llama = bench.at("rows").at(0);
  EXPECT_EQ(llama.at("unfused_passes"), "rope (fused), caches (fused)");
  EXPECT_GT(llama.at("unfused_over_fused").at("median"), 0.0);
  EXPECT_GT(llama.at("general_us").at("median"), 0.0);
  EXPECT_GT(llama.at("general_over_fused").at("median"), 0.0);
  EXPECT_GT(llama.at("kernel_us").at("median"), 0.0);
  // The plan of Phi-4 is on the general path already: 96 of 128 channels are rotated.
  EXPECT_FALSE(bench.at("rows").at(1).contains("general_us"));
  for (const nlohmann::json& row : bench.at("rows")) {
    EXPECT_FALSE(row.contains("convert_copy_us"));
    EXPECT_FALSE(row.contains("over_convert_copy"));
  }
  const std::vector<std::string> lines = Lines(RunProgram(filter + "--markdown").out);
  ASSERT_EQ(lines.size(), 6u);
  EXPECT_THAT(lines[4], testing::MatchesRegex("\\| fused/llama3/.* % \\| - \\| .* \\| .* \\|"));
  EXPECT_THAT(lines[5], testing::EndsWith("| - |"));
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
  for (const char* word :
       {"T64/hot/1t", "GB/s", "roof", "x floor", "unfused", "general", "commit"}) {
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
    EXPECT_EQ(std::count(lines[i].begin(), lines[i].end(), '|'), 10) << lines[i];
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
      result.fused = result.unfused = result.roof = {1e-6, 1e-6, 1e-6};
      result.convert_copy = result.fused;
    }
  }
  const std::string script = PlotScript(results, "it's.svg");
  EXPECT_THAT(script, HasSubstr("qnr/8x1x128/bf16/int8/pa_nz 2t"));
  EXPECT_THAT(script, HasSubstr("set output 'it''s.svg'"));
  const size_t hot = script.find("$hot << EOD");
  ASSERT_NE(hot, std::string::npos);
  EXPECT_THAT(script.substr(hot), StartsWith("$hot << EOD\n1 2.0000 2.0000 1.00000"));
  EXPECT_THAT(script, HasSubstr("$cold << EOD\n1 "));
  EXPECT_THAT(script, HasSubstr("title 'conversion only'"));
}

TEST(BenchPlot, LeavesOutTheFloorThatFusedRowsLack) {
  std::vector<bench::RowResult> results;
  for (const bench::Row& row : bench::Filter(bench::FullGrid(), "^fused/llama3/.*/1t$")) {
    bench::RowResult& result = results.emplace_back();
    result.row = row;
    result.traffic = {1000, 1000};
    result.fused = result.unfused = result.roof = {1e-6, 1e-6, 1e-6};
  }
  const std::string script = PlotScript(results, "fused.svg");
  EXPECT_THAT(script, HasSubstr("$hot << EOD\n1 2.0000 2.0000 1.00000 1.00000 -\n"));
  EXPECT_THAT(script, HasSubstr("title 'unfused', $hot using 4"));
  EXPECT_THAT(script, testing::Not(HasSubstr("conversion only")));
}

}  // namespace
}  // namespace qkvfuse::cli
