// `info` and `explain`.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "program.h"
#include "qkvfuse/runtime.hpp"

namespace qkvfuse::cli {
namespace {

using testing::Contains;
using testing::HasSubstr;

TEST(Info, TellsTargetsAndTheChosenOne) {
  const nlohmann::json info = RunForJson("info --json");
  EXPECT_EQ(info.at("version"), Version());
  EXPECT_EQ(info.at("targets"), nlohmann::json(AvailableTargets()));
  EXPECT_THAT(AvailableTargets(), Contains(info.at("target").get<std::string>()));
  EXPECT_GE(info.at("threads").get<int>(), 1);
}

TEST(Info, FollowsTheEnvironment) {
  const nlohmann::json info =
      RunForJson("info --json", "QKVFUSE_TARGET=scalar QKVFUSE_NUM_THREADS=3");
  EXPECT_EQ(info.at("target"), "scalar");
  if (info.at("thread_library") != "none") {
    EXPECT_EQ(info.at("threads"), 3);
  }
}

TEST(Info, TextNamesTheCompilerAndEveryTarget) {
  const ProgramResult result = RunProgram("info");
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.out, HasSubstr("\ncompiler  "));
  for (const std::string& target : AvailableTargets()) EXPECT_THAT(result.out, HasSubstr(target));
}

TEST(Explain, CountsEachInputAndOutputOnce) {
  const nlohmann::json explained = RunForJson(
      "explain --json op=qnr dtype=bf16 heads=32/8/8 head_dim=128 tokens=64 k_cache=int8 "
      "v_cache=int8");
  // Per token 48 heads, a row of cos and of sin, and a slot; per call two gammas and two tables of
  // 8*128 scales. Written: 32 heads of bf16 and 16 of int8.
  EXPECT_EQ(explained.at("read_bytes"),
            64 * (48 * 128 * 2 + 2 * 128 * 2 + 8) + 2 * 128 * 2 + 2 * 8 * 128 * 4);
  EXPECT_EQ(explained.at("write_bytes"), 64 * (32 * 128 * 2 + 16 * 128));
  EXPECT_EQ(explained.at("tokens"), 64);
  EXPECT_NE(explained.at("description"), "");
}

TEST(Explain, SaysWhichPathIsTaken) {
  const std::string line = "op=qnr heads=8/1/1 head_dim=128 tokens=16";
  EXPECT_EQ(RunForJson("explain --json " + line).at("fused"), true);
  EXPECT_EQ(RunForJson("explain --json " + line + " path=general").at("fused"), false);
  const ProgramResult text = RunProgram("explain '" + line + "'");
  EXPECT_EQ(text.exit_code, 0);
  EXPECT_THAT(text.out, HasSubstr("PA_NZ"));
}

}  // namespace
}  // namespace qkvfuse::cli
