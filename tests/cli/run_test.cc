// `run`: checksums that depend on the case and on nothing else.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "program.h"
#include "qkvfuse/runtime.hpp"

namespace qkvfuse::cli {
namespace {

constexpr const char* kLines[] = {
    "op=qnr dtype=bf16 heads=8/2/2 head_dim=128 tokens=33 k_cache=int8+offset v_cache=bf16",
    "op=qnr dtype=fp16 heads=4/1/1 head_dim=48 tokens=7 layout=paged data=special",
    "op=drq x=int32 dtype=bf16 heads=8/1/1 head_dim=64 tokens=19 layout=paged bias=fp32",
};

nlohmann::json OutputsOf(const std::string& line) {
  const nlohmann::json run = RunForJson("run --json " + line);
  return run.is_null() ? run : run.at("outputs");
}

class RunTest : public testing::TestWithParam<const char*> {};

TEST_P(RunTest, ChecksumsAreTheSameOnEveryTargetPathAndThreadCount) {
  const std::string line = GetParam();
  const nlohmann::json expected = OutputsOf(line);
  ASSERT_GE(expected.size(), 3u);
  for (const std::string& target : AvailableTargets()) {
    for (const char* path : {"auto", "general"}) {
      for (const char* threads : {"threads=1", "threads=3 force_split=1"}) {
        const std::string variant = " target=" + target + " path=" + path + " " + threads;
        EXPECT_EQ(OutputsOf(line + variant), expected) << variant;
      }
    }
  }
}

TEST_P(RunTest, ChecksumsDependOnTheData) {
  const nlohmann::json first = OutputsOf(std::string(GetParam()) + " seed=1");
  const nlohmann::json second = OutputsOf(std::string(GetParam()) + " seed=2");
  ASSERT_EQ(first.size(), second.size());
  for (size_t i = 0; i < first.size(); ++i) {
    EXPECT_EQ(first[i].at("name"), second[i].at("name"));
    EXPECT_NE(first[i].at("checksum"), second[i].at("checksum")) << first[i].at("name");
  }
}

TEST_P(RunTest, StridesDoNotChangeTheDenseOutput) {
  const std::string line = GetParam();
  EXPECT_EQ(OutputsOf(line + " strides=q_out:pitch")[0], OutputsOf(line)[0]);
}

INSTANTIATE_TEST_SUITE_P(All, RunTest, testing::ValuesIn(kLines));

TEST(Run, ReportsTimeAndBytes) {
  const nlohmann::json run = RunForJson(std::string("run --json ") + kLines[0]);
  EXPECT_GT(run.at("us_per_run").get<double>(), 0);
  EXPECT_GT(run.at("bytes").get<int64_t>(), 33 * 12 * 128 * 2);
  EXPECT_NEAR(run.at("gb_per_s").get<double>(),
              run.at("bytes").get<double>() / run.at("us_per_run").get<double>() * 1e-3, 1e-6);
}

TEST(Run, TextAgreesWithJson) {
  const ProgramResult text = RunProgram(std::string("run \"") + kLines[0] + "\"");
  EXPECT_EQ(text.exit_code, 0);
  EXPECT_EQ(text.err, "");
  for (const nlohmann::json& output : OutputsOf(kLines[0])) {
    EXPECT_THAT(text.out, testing::HasSubstr(output.at("checksum").get<std::string>()));
  }
  EXPECT_THAT(text.out, testing::HasSubstr("us per token"));
}

}  // namespace
}  // namespace qkvfuse::cli
