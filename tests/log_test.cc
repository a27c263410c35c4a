// What a plan says about itself, and when: Describe word for word, the log sink, QKVFUSE_VERBOSE.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/same_bits.h"

namespace qkvfuse::testing {
namespace {

using ::testing::MatchesRegex;

/// Offers four threads and runs on one, so that the texts are those of every machine and compiler.
class ThreadsOfTheTest {
 public:
  ThreadsOfTheTest() { SetParallelFor(&RunAll, nullptr, 4); }
  ~ThreadsOfTheTest() { SetParallelFor(nullptr, nullptr, 0); }
  ThreadsOfTheTest(const ThreadsOfTheTest&) = delete;
  ThreadsOfTheTest& operator=(const ThreadsOfTheTest&) = delete;

 private:
  static void RunAll(void*, int64_t items, ParallelForBody body, void* context) {
    for (int64_t i = 0; i < items; ++i) body(context, i);
  }
};

struct Described {
  const char* line;
  const char* text;
};

// Bytes: each input is read once and each output written once.
constexpr Described kDescribed[] = {
    {"op=qnr dtype=bf16 heads=4/2 head_dim=128 tokens=64 target=scalar",
     R"(QkvRmsNormRopeCache, target scalar, strict
  q: 4 heads of 128, bf16 -> norm -> rope -> q_out bf16
     fused kernel k16Bit kNormRope kStore
  k: 2 heads of 128, bf16 -> norm -> rope -> k_cache int8
     fused kernel k16Bit kNormRope kInt8
  v: 2 heads of 128, bf16 -> v_cache int8
     fused kernel k16Bit kNone kInt8
  k_cache: PA_NZ, 2 blocks of 128 rows
  v_cache: PA_NZ, 2 blocks of 128 rows
  64 tokens: reads 166912 bytes, writes 98304, workspace 2240
  work: 2 parts of the tokens, hook
)"},
    {"op=qnr dtype=fp16 heads=4/2 head_dim=80 tokens=3 layout=paged k_cache=int8+offset "
     "v_cache=16bit before_quant=1 target=scalar strict=0",
     R"(QkvRmsNormRopeCache, target scalar, lenient
  q: 4 heads of 80, fp16 -> norm -> rope -> q_out fp16 -> q_before_quant fp16
     fused kernel k16Bit kNormRope kStoreTwice
  k: 2 heads of 80, fp16 -> norm -> rope -> k_out fp16 -> k_cache int8 with offset
     fused kernel k16Bit kNormRope kInt8OffsetStore
  v: 2 heads of 80, fp16 -> v_out fp16 -> v_cache fp16
     copy of bits
  k_cache: paged NHD, 2 blocks of 128 rows
  v_cache: paged NHD, 2 blocks of 128 rows
  3 tokens: reads 6424 bytes, writes 7200, workspace 896
  work: 1 part of the tokens, hook (no more is offered, or the work is too small to fork for)
)"},
    {"op=drq x=int32 dtype=bf16 heads=32/8 head_dim=128 tokens=4x16 layout=contiguous kv_output=1 "
     "token_scale=1 bias=fp32 target=scalar path=general",
     R"(DequantRopeQuantKvcache, target scalar, strict
  q: 32 heads of 128, int32 -> bias -> rope -> q_out bf16
     general path (asked for)
  k: 8 heads of 128, int32 -> bias -> rope -> k_out bf16 -> k_cache int8
     general path (asked for)
  v: 8 heads of 128, int32 -> bias -> v_out bf16 -> v_cache int8
     general path (asked for)
  k_cache: contiguous BSND, 5 blocks of 128 rows
  v_cache: contiguous BSND, 5 blocks of 128 rows
  64 tokens: reads 1663248 bytes, writes 917504, workspace 128
  work: 4 parts of the tokens, hook
)"},
    {"op=fused dtype=bf16 heads=4/2 head_dim=96 v_head_dim=64 tokens=4 layout=paged target=scalar "
     "k_cache=fp8_e4m3+dynamic v_cache=int8+multiply+head q_norm=full norm_order=after "
     "rotary_dim=32 rotates_last=1 rope=interleaved v_norm=head bias=fp32",
     R"(FusedQkv, target scalar, strict
  q: 4 heads of 96, bf16 -> bias -> rope (interleaved, last 32) -> full-width norm -> q_out bf16
     general path (a norm over the full width)
  k: 2 heads of 96, bf16 -> bias -> rope (interleaved, last 32) -> norm -> k_cache fp8_e4m3, dynamic
     general path (a norm after the rotation)
  v: 2 heads of 64, bf16 -> bias -> norm -> v_cache int8, multiplied
     general path (a norm without a rotation)
  k_cache: paged NHD, 2 blocks of 128 rows
  v_cache: paged NHD, 2 blocks of 128 rows
  4 tokens: reads 11688 bytes, writes 4384, workspace 768
  work: 1 part of the tokens, hook (no more is offered, or the work is too small to fork for)
)"},
    {"op=fused dtype=bf16 heads=4/2 head_dim=64 tokens=4 layout=paged target=scalar "
     "k_cache=16bit v_cache=int8 bias=fp32",
     R"(FusedQkv, target scalar, strict
  q: 4 heads of 64, bf16 -> bias -> norm -> rope -> q_out bf16
     general path (a bias on x of bf16)
  k: 2 heads of 64, bf16 -> bias -> norm -> rope -> k_cache bf16
     general path (a bias on x of bf16)
  v: 2 heads of 64, bf16 -> bias -> v_cache int8
     general path (a bias on x of bf16)
  k_cache: paged NHD, 2 blocks of 128 rows
  v_cache: paged NHD, 2 blocks of 128 rows
  4 tokens: reads 9248 bytes, writes 3584, workspace 256
  work: 1 part of the tokens, hook (no more is offered, or the work is too small to fork for)
)"},
    {"op=fused dtype=bf16 x=int32 heads=4/2 head_dim=64 tokens=4 layout=paged target=scalar "
     "k_cache=16bit v_cache=int8 q_norm=none",
     R"(FusedQkv, target scalar, strict
  q: 4 heads of 64, int32 -> rope -> q_out bf16
     fused kernel kInt32 kRope kStore
  k: 2 heads of 64, int32 -> norm -> rope -> k_cache bf16
     general path (no kernel for x of int32 with a norm and a rotation into these outputs)
  v: 2 heads of 64, int32 -> v_cache int8
     fused kernel kInt32 kNone kInt8
  k_cache: paged NHD, 2 blocks of 128 rows
  v_cache: paged NHD, 2 blocks of 128 rows
  4 tokens: reads 13088 bytes, writes 3584, workspace 256
  work: 1 part of the tokens, hook (no more is offered, or the work is too small to fork for)
)"},
    {"op=drq x=fp16 dtype=fp16 heads=8/2 head_dim=64 tokens=8x1 layout=contiguous "
     "strides=k_cache:channel target=scalar",
     R"(DequantRopeQuantKvcache, target scalar, strict
  q: 8 heads of 64, fp16 -> rope -> q_out fp16
     fused kernel k16Bit kRope kStore
  k: 2 heads of 64, fp16 -> rope -> k_cache int8
     general path (k_cache has channel stride 2)
  v: 2 heads of 64, fp16 -> v_cache int8
     fused kernel k16Bit kNone kInt8
  k_cache: strided, 9 blocks of 128 rows
  v_cache: contiguous BSND, 9 blocks of 128 rows
  8 tokens: reads 15392 bytes, writes 10240, workspace 128
  work: 1 part of the tokens, hook (no more is offered, or the work is too small to fork for)
)"},
};

TEST(Describe, SaysWhatWasChosen) {
  const ThreadsOfTheTest threads;
  for (const Described& row : kDescribed) {
    const auto problem = MakeProblem(CaseOf(row.line));
    const Result<Plan> plan = problem->MakePlan();
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    EXPECT_EQ(plan->Describe(problem->tokens()), row.text) << row.line;
  }
}

TEST(Describe, NoTokensMoveNothing) {
  const auto problem = MakeProblem(CaseOf(kDescribed[0].line));
  const Result<Plan> plan = problem->MakePlan();
  for (const TokenCount tokens : {TokenCount(0), TokenCount(-1), TokenCount(2, -3)}) {
    EXPECT_EQ(plan->TrafficOf(tokens).read_bytes, 0);
    EXPECT_EQ(plan->TrafficOf(tokens).write_bytes, 0);
    EXPECT_EQ(plan->WorkspaceBytes(tokens), 0u);
  }
}

// What is fp32 or int32 and contiguous needs no copy in the workspace.
TEST(Describe, WorkspaceHoldsWhatIsPacked) {
  const auto bytes = [](const std::string& bias) {
    const auto problem = MakeProblem(CaseOf(
        "op=drq x=int32 dtype=fp16 heads=2/1 head_dim=32 tokens=2 layout=paged bias=" + bias));
    return problem->MakePlan()->WorkspaceBytes(problem->tokens());
  };
  EXPECT_EQ(bytes("int32"), bytes("none"));
  EXPECT_EQ(bytes("fp32"), bytes("none"));
  EXPECT_EQ(bytes("fp16"), bytes("none") + 4 * 32 * sizeof(float));
  EXPECT_EQ(bytes("bf16"), bytes("fp16"));
}

std::vector<std::string> LinesOf(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

// Makes a plan and runs it, on two parts where there are threads.
Result<Plan> PlanAndRun() {
  const auto problem = MakeProblem(CaseOf(kDescribed[0].line));
  Result<Plan> plan = problem->MakePlan();
  EXPECT_TRUE(plan.ok() && plan->Run(problem->tensors(), problem->tokens()).ok());
  return plan;
}

TEST(Log, SinkReceivesPlansAndRuns) {
  const ThreadsOfTheTest threads;
  std::vector<std::string> lines;
  SetLogSink(
      [](void* user, const char* line) {
        static_cast<std::vector<std::string>*>(user)->push_back(line);
      },
      &lines);
  const Result<Plan> plan = PlanAndRun();
  SetLogSink(nullptr, nullptr);
  ASSERT_FALSE(lines.empty());
  const std::string run = lines.back();
  lines.pop_back();
  EXPECT_EQ(lines, LinesOf(plan->Describe(TokenCount(1))));
  EXPECT_THAT(run, MatchesRegex("QkvRmsNormRopeCache: 64 tokens in 2 parts, [0-9.e+]+ us"));
}

TEST(Log, NothingIsPrintedUnasked) {
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  EXPECT_TRUE(PlanAndRun().ok());
  EXPECT_EQ(::testing::internal::GetCapturedStdout(), "");
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
}

// The variable is read once, so each value needs a process of its own.
[[noreturn]] void RunWith(const char* verbose) {
  setenv("QKVFUSE_VERBOSE", verbose, /*overwrite=*/1);
  const ThreadsOfTheTest threads;
  std::exit(PlanAndRun().ok() ? 0 : 1);
}

TEST(Log, EnvironmentNamesWhatIsPrinted) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  const auto good = ::testing::ExitedWithCode(0);
  const std::string plan = "qkvfuse: QkvRmsNormRopeCache, target .*workspace [0-9]+\n.*hook.*";
  const std::string run = "qkvfuse: QkvRmsNormRopeCache: 64 tokens in 2 parts, .* us\n";
  EXPECT_EXIT(RunWith(""), good, MatchesRegex(""));
  EXPECT_EXIT(RunWith("run"), good, MatchesRegex(run));
  EXPECT_EXIT(RunWith("plan"), good, MatchesRegex(plan + "\n"));
  EXPECT_EXIT(RunWith("plan,run"), good, MatchesRegex(plan + "\n" + run));
}

}  // namespace
}  // namespace qkvfuse::testing
