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

TEST(Explain, TellsThePlanOfAModel) {
  const std::string path = WriteTestFile(
      "config.json", R"({"model_type": "glm4", "num_hidden_layers": 40, "hidden_size": 4096,
    "num_attention_heads": 32, "num_key_value_heads": 2, "head_dim": 128, "attention_bias": true,
    "max_position_embeddings": 32768, "partial_rotary_factor": 0.5, "torch_dtype": "bfloat16"})");
  const ProgramResult text = RunProgram("explain --config " + path + " --cache fp8_e4m3+head");
  EXPECT_EQ(text.exit_code, 0) << text.err;
  EXPECT_THAT(text.out, HasSubstr("model: glm4, 40 layers\n  rotary table 0: 32768 rows of 64"));
  EXPECT_THAT(text.out,
              HasSubstr("q: 32 heads of 128, bf16 -> bias -> rope (interleaved, first 64) "
                        "-> q_out bf16"));
  EXPECT_THAT(text.out, HasSubstr("v: 2 heads of 128, bf16 -> bias -> v_cache fp8_e4m3"));
  for (const char* const layout : {"paged", "heads_first", "pa_nz", "x_split", "transposed"}) {
    EXPECT_EQ(RunProgram("explain --tokens 64 --config " + path + " --layout " + layout).exit_code,
              0);
  }
  EXPECT_EQ(RunForJson("explain --json --cache int8+dynamic --config " + path).at("tokens"), 1);
}

TEST(Explain, RefusesWhatIsNoModel) {
  const std::string path = WriteTestFile("no_config.json", R"({"model_type": "bert"})");
  EXPECT_THAT(RunProgram("explain --config " + path).err, HasSubstr("model_type"));
  EXPECT_THAT(RunProgram("explain").err, HasSubstr("needs a case line or --config"));
  EXPECT_THAT(RunProgram("explain --cache int8").err, HasSubstr("--config"));
  EXPECT_THAT(RunProgram("explain op=qnr --config " + path).err, HasSubstr("excludes"));
}

}  // namespace
}  // namespace qkvfuse::cli
