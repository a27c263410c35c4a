// `demo --quick`: every row equals the reference, the figures are sane, the drawing is well formed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "demo/check.h"
#include "demo/pa_nz_picture.h"
#include "program.h"

namespace qkvfuse::cli {
namespace {

using testing::HasSubstr;

TEST(Demo, EveryRowEqualsTheReferenceAndIsAccurate) {
  const std::string svg = TestFilePath("cache.svg");
  const nlohmann::json demo = RunForJson("demo --quick --json --svg '" + svg + "'");
  ASSERT_FALSE(demo.is_null());
  ASSERT_EQ(demo.at("rows").size(), 10u);  // six of one model, four recorded
  for (const nlohmann::json& row : demo.at("rows")) {
    EXPECT_EQ(row.at("equal_to_reference"), true) << row;
    EXPECT_EQ(row.at("outside_accuracy_bound"), 0) << row;
    // Rounding to bf16 alone costs half a unit, and some element comes close to that.
    EXPECT_GT(row.at("q_error_ulp"), 0.45) << row;
    EXPECT_LT(row.at("q_error_ulp"), 0.51) << row;
    EXPECT_GT(row.at("us_per_token"), 0.0);
    EXPECT_GT(row.at("share_of_memcpy"), 0.0);
    if (!row.contains("k_snr_db")) continue;
    EXPECT_LT(row.at("cache_error_steps"), 0.51) << row;
    // Scales from amax leave 20 to 50 dB for distributions with heavy tails.
    EXPECT_THAT(row.at("k_snr_db").get<double>(), testing::AllOf(testing::Gt(20), testing::Lt(50)));
    EXPECT_THAT(row.at("v_snr_db").get<double>(), testing::AllOf(testing::Gt(20), testing::Lt(50)));
  }
}

TEST(Demo, FindsBitsAndValuesThatAreWrong) {
  const Result<cases::Case> parsed = cases::ParseCase(
      "op=qnr dtype=bf16 heads=4/2/2 head_dim=128 tokens=8 k_cache=int8 v_cache=int8");
  ASSERT_TRUE(parsed.ok());
  const auto problem = cases::Problem::Make(*parsed);
  ASSERT_TRUE(problem.ok());
  ProgressBar progress(CheckSteps(*parsed));
  const Result<Plan> right = (*problem)->MakePlan();
  ASSERT_TRUE(right.ok());
  EXPECT_TRUE(CheckScenario(**problem, *right, 1, progress).is_good());

  QkvRmsNormRopeCacheSpec other_formula = (*problem)->QnrSpec();
  other_formula.epsilon = 0.5;
  const Result<Plan> wrong = MakePlan(other_formula);
  ASSERT_TRUE(wrong.ok());
  const Findings findings = CheckScenario(**problem, *wrong, 1, progress);
  EXPECT_NE(findings.difference, "");
  EXPECT_GT(findings.inaccurate, 0);
  EXPECT_GT(findings.q_error, 1);
}

TEST(Demo, TextHasATableAndAVerdict) {
  const std::string svg = TestFilePath("cache.svg");
  const ProgramResult result = RunProgram("demo --quick --svg '" + svg + "'");
  EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
  EXPECT_EQ(result.err, "") << "a progress bar belongs on a terminal";
  EXPECT_THAT(result.out, HasSubstr("10 of 10 runs equal the exact reference"));
  EXPECT_THAT(result.out, HasSubstr(svg));
  for (const char* column : {"us per", "GB/s", "memcpy", "q error", "cache error", "SNR"}) {
    EXPECT_THAT(result.out, HasSubstr(column));
  }
}

TEST(Demo, DrawingIsWellFormedXml) {
  const std::string drawing = DrawPaNz(MakePaNzPicture());
  const std::string path = WriteTestFile("cache.svg", drawing);
  const std::string command = std::string(QKVFUSE_PYTHON) +
                              " -c 'import sys, xml.dom.minidom as d; d.parse(sys.argv[1])' '" +
                              path + "'";
  EXPECT_EQ(std::system(command.c_str()), 0);
  EXPECT_THAT(drawing, HasSubstr("((2*16 + 5)*32 + 13)*32 + 8 = 38312"));
}

TEST(Picture, EveryTokenOwnsOneRowOfEveryChunk) {
  const PaNzPicture picture = MakePaNzPicture();
  std::vector<int64_t> pieces(picture.tokens.size());
  for (const int owner : picture.owner) {
    if (owner >= 0) ++pieces.at(static_cast<size_t>(owner));
  }
  EXPECT_THAT(pieces, testing::Each(picture.chunks()));
}

}  // namespace
}  // namespace qkvfuse::cli
