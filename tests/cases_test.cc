// The text of cases, their data, and the case files that ship with the project.
#include <gtest/gtest.h>

#include <cstring>
#include <set>
#include <string>

#include "cases/fill.h"
#include "qkvfuse/qkvfuse.hpp"
#include "reference/exact.h"
#include "tests/support/random_case.h"
#include "tests/support/same_bits.h"

namespace qkvfuse::testing {
namespace {

using cases::Case;
using cases::ParseCase;
using cases::PrintCase;

TEST(CaseText, RoundTrips) {
  std::set<std::string> lines;
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    Case c = RandomCase(seed);
    c.threads = static_cast<int>(seed % 5);
    c.force_split = seed % 2 == 0;
    c.path = static_cast<Path>(seed % 3);
    if (seed % 3 == 0) c.target = "avx2";
    const std::string line = PrintCase(c);
    const Result<Case> parsed = ParseCase(line);
    ASSERT_TRUE(parsed.ok()) << parsed.status().message() << "\n  line: " << line;
    EXPECT_EQ(PrintCase(*parsed), line);
    lines.insert(line);
  }
  EXPECT_GT(lines.size(), 1990U);
}

TEST(CaseText, OfTheGeneralOperatorRoundTrips) {
  std::set<std::string> lines;
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    const std::string line = PrintCase(RandomFusedCase(seed));
    const Result<Case> parsed = ParseCase(line);
    ASSERT_TRUE(parsed.ok()) << parsed.status().message() << "\n  line: " << line;
    EXPECT_EQ(PrintCase(*parsed), line);
    lines.insert(line);
  }
  EXPECT_GT(lines.size(), 1990U);
}

TEST(CaseText, ReadsEveryKey) {
  const Result<Case> parsed = ParseCase(
      "op=drq dtype=fp16 x=int32 heads=16/4/4 head_dim=64 tokens=4x16 k_cache=int8+offset "
      "v_cache=int8 layout=contiguous block_size=32 blocks=9 slots=sequential slot_mode=start "
      "slot_dtype=int32 kv_output=1 token_scale=1 bias=bf16 strides=x:pitch,k_cache:offset "
      "data=heavy_tailed seed=42 threads=3 force_split=1 target=avx2 path=general strict=0");
  ASSERT_TRUE(parsed.ok()) << parsed.status().message();
  const Case& c = *parsed;
  EXPECT_EQ(c.op, cases::Operator::kDequantRopeQuantKvcache);
  EXPECT_EQ(c.dtype, DType::kFloat16);
  EXPECT_EQ(c.x_dtype, DType::kInt32);
  EXPECT_EQ(c.heads.q, 16);
  EXPECT_EQ(c.heads.k, 4);
  EXPECT_EQ(c.heads.v, 4);
  EXPECT_EQ(c.head_dim, 64);
  EXPECT_EQ(c.tokens.batch, 4);
  EXPECT_EQ(c.tokens.sequence, 16);
  EXPECT_TRUE(c.k_cache.has_offset);
  EXPECT_FALSE(c.v_cache.has_offset);
  EXPECT_EQ(c.layout, cases::Layout::kContiguous);
  EXPECT_EQ(c.block_size, 32);
  EXPECT_EQ(c.blocks, 9);
  EXPECT_EQ(c.slots, cases::SlotPattern::kSequential);
  EXPECT_EQ(c.slot_mode, SlotMode::kStartPerSequence);
  EXPECT_EQ(c.slot_dtype, DType::kInt32);
  EXPECT_TRUE(c.dense_kv);
  EXPECT_TRUE(c.token_scale);
  EXPECT_EQ(c.bias, DType::kBFloat16);
  EXPECT_EQ(c.stride(cases::TensorId::kX), cases::StridePattern::kPitch);
  EXPECT_EQ(c.stride(cases::TensorId::kKCache), cases::StridePattern::kOffset);
  EXPECT_EQ(c.stride(cases::TensorId::kVCache), cases::StridePattern::kPacked);
  EXPECT_EQ(c.data, cases::DataKind::kHeavyTailed);
  EXPECT_EQ(c.seed, 42U);
  EXPECT_EQ(c.threads, 3);
  EXPECT_TRUE(c.force_split);
  EXPECT_EQ(c.target, "avx2");
  EXPECT_EQ(c.path, Path::kGeneral);
  EXPECT_FALSE(c.strict);
}

TEST(CaseText, DefaultsFollowTheOperatorWhereverItStands) {
  const Result<Case> c = ParseCase("k_cache=16bit dtype=fp16 op=qnr");
  ASSERT_TRUE(c.ok()) << c.status().message();
  EXPECT_EQ(c->k_cache.dtype, DType::kFloat16);
  EXPECT_EQ(c->x_dtype, DType::kFloat16);
  EXPECT_EQ(c->slot_dtype, DType::kInt64);
  const Result<Case> drq = ParseCase("layout=contiguous op=drq");
  ASSERT_TRUE(drq.ok()) << drq.status().message();
  EXPECT_EQ(drq->x_dtype, DType::kInt32);
  EXPECT_EQ(drq->slot_dtype, DType::kInt32);
  EXPECT_EQ(drq->slot_mode, SlotMode::kStartPerSequence);
}

struct Refusal {
  const char* line;
  const char* part;  // of the sentence
};

constexpr Refusal kRefusals[] = {
    {"op=qnr colour=red", "unknown key \"colour\""},
    {"op=qnr tokens", "\"tokens\" is not key=value"},
    {"op=other", "op=other"},
    {"op=qnr dtype=int8", "dtype must be"},
    {"op=qnr heads=8", "heads=8"},
    {"op=qnr heads=8/0", "heads must be positive"},
    {"op=qnr head_dim=127", "head_dim must be even"},
    {"op=qnr head_dim=12.5", "head_dim=12.5"},
    {"op=qnr tokens=4x4x4", "tokens=4x4x4"},
    {"op=qnr x=int32", "x must be"},
    {"op=qnr kv_output=1", "unknown key \"kv_output\""},
    {"op=qnr k_cache=16bit+offset", "an offset needs an int8 cache"},
    {"op=qnr head_dim=80", "multiple of 32"},
    {"op=qnr strides=bias:pitch", "bias is not part"},
    {"op=qnr strides=q_out:broadcast", "q_out cannot be broadcast"},
    {"op=qnr strides=x:longer", "x cannot be longer"},
    {"op=qnr strides=x:wide", "strides=x:wide"},
    {"op=qnr interleaved=1 v_cache=16bit", "interleaved needs"},
    {"op=qnr in_place=k", "need before_quant or kv_output"},
    {"op=qnr in_place=w", "in_place=w"},
    {"op=drq x=16bit bias=fp32", "need x=int32"},
    {"op=drq in_place=q", "in_place needs an x of the dtype"},
    {"op=drq layout=contiguous slots=padded", "slot_mode=start needs"},
    {"op=drq layout=contiguous block_size=8 tokens=2x9", "block_size"},
    {"op=qnr blocks=1 block_size=4 tokens=5", "blocks"},
};

TEST(CaseText, RefusalsNameTheKey) {
  for (const Refusal& refusal : kRefusals) {
    const Result<Case> parsed = ParseCase(refusal.line);
    ASSERT_FALSE(parsed.ok()) << refusal.line;
    EXPECT_NE(parsed.status().message().find(refusal.part), std::string::npos)
        << refusal.line << " -> " << parsed.status().message();
  }
}

uint64_t ChecksumOfInputs(const cases::Problem& problem) {
  uint64_t checksum = 0;
  for (const cases::NamedView& input : problem.Inputs()) {
    const auto bytes = static_cast<size_t>(SizeOf(input.view.dtype));
    for (int64_t i = 0; i < input.view.shape.ElementCount(); ++i) {
      uint64_t element = 0;
      const int64_t offset = cases::OffsetOf(input.view.shape, i) * SizeOf(input.view.dtype);
      std::memcpy(&element, static_cast<const char*>(input.view.data) + offset, bytes);
      checksum = checksum * 0x9E3779B97F4A7C15U + element;
    }
  }
  return checksum;
}

// Data must not depend on the compiler, the standard library or how the tensors lie in memory.
TEST(CaseData, IsTheSameEverywhere) {
  constexpr uint64_t kQnrChecksum = 14013977920336711719U;
  constexpr uint64_t kDrqChecksum = 12132958340888558140U;
  const auto checksum = [](const char* line) {
    return ChecksumOfInputs(*MakeProblem(CaseOf(line)));
  };
  EXPECT_EQ(checksum("op=qnr dtype=bf16 data=heavy_tailed seed=5"), kQnrChecksum);
  EXPECT_EQ(checksum("op=qnr dtype=bf16 data=heavy_tailed seed=5 strides=x:mirrored,cos:pitch"),
            kQnrChecksum);
  EXPECT_EQ(checksum("op=drq dtype=fp16 data=special bias=fp32 token_scale=1"), kDrqChecksum);
  EXPECT_NE(checksum("op=qnr dtype=bf16 data=heavy_tailed seed=6"), kQnrChecksum);
}

// Comparison must see a single changed byte: in an element, in a gap, in a guard.
TEST(CaseComparison, SeesEveryByte) {
  const auto problem = MakeSolvedProblem(
      CaseOf("op=qnr dtype=bf16 heads=2/1 head_dim=32 tokens=4 strides=k_cache:pitch"));
  ASSERT_NE(problem, nullptr);
  const Result<Plan> plan = problem->MakePlan();
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  ASSERT_TRUE(plan->Run(problem->tensors(), problem->tokens()).ok());
  ASSERT_TRUE(problem->Compare().ok()) << problem->Compare().message();
  for (const cases::NamedView& output : problem->Outputs()) {
    auto* first = static_cast<unsigned char*>(output.view.data);
    const int64_t last = output.view.shape.ElementCount() - 1;
    const int64_t end = (cases::OffsetOf(output.view.shape, last) + 1) * SizeOf(output.view.dtype);
    for (const int64_t at : {int64_t{0}, end - 1, int64_t{-1}, end, end + 100}) {
      first[at] ^= 1;
      const Status status = problem->Compare();
      EXPECT_FALSE(status.ok()) << output.name << " byte " << at;
      EXPECT_NE(status.message().find(output.name), std::string::npos) << status.message();
      first[at] ^= 1;
    }
  }
  ASSERT_TRUE(problem->Compare().ok());
  static_cast<unsigned char*>(problem->Inputs()[0].view.data)[3] ^= 1;
  EXPECT_FALSE(problem->Compare().ok()) << "an input changed";
}

TEST(CaseFiles, RefuseABadLineByNumber) {
  const std::string path = ::testing::TempDir() + "qkvfuse_bad_case.txt";
  std::FILE* file = std::fopen(path.c_str(), "w");
  ASSERT_NE(file, nullptr);
  std::fputs("# comment\nop=qnr  # fine\n\nop=nothing\n", file);
  std::fclose(file);
  const auto read = cases::ReadCases(path);
  ASSERT_FALSE(read.ok());
  EXPECT_NE(read.status().message().find(":4: "), std::string::npos) << read.status().message();
  EXPECT_FALSE(cases::ReadCases(path + ".absent").ok());
}

class CaseFiles : public ::testing::TestWithParam<const char*> {};

TEST_P(CaseFiles, PassThroughTheLibrary) {
  const std::string path = std::string(QKVFUSE_CASES_DIRECTORY "/") + GetParam() + ".txt";
  const auto all = cases::ReadCases(path);
  ASSERT_TRUE(all.ok()) << all.status().message();
  ASSERT_FALSE(all->empty());
  for (const Case& c : *all) ExpectSameBits(c);
}

INSTANTIATE_TEST_SUITE_P(File, CaseFiles, ::testing::Values("smoke", "edge"),
                         [](const auto& test) { return std::string(test.param); });

// The model shapes are for benchmarks; here each runs with a few tokens.
TEST(CaseFiles, ModelShapesPassWithFewTokens) {
  const auto all = cases::ReadCases(QKVFUSE_CASES_DIRECTORY "/models.txt");
  ASSERT_TRUE(all.ok()) << all.status().message();
  ASSERT_FALSE(all->empty());
  for (Case c : *all) {
    c.tokens = TokenCount(2, 2);
    c.blocks = 0;
    ExpectSameBits(c);
  }
}

TEST(CaseFiles, FusedFitsItsLines) {
  const auto all = cases::ReadCases(QKVFUSE_CASES_DIRECTORY "/fused.txt");
  ASSERT_TRUE(all.ok()) << all.status().message();
  EXPECT_GT(all->size(), 70U);
  for (const Case& c : *all) {
    const Result<Case> again = ParseCase(PrintCase(c));
    ASSERT_TRUE(again.ok()) << again.status().message();
    EXPECT_EQ(PrintCase(*again), PrintCase(c));
    ExpectSameBits(c, TargetsPathsAndThreads());
  }
}

}  // namespace
}  // namespace qkvfuse::testing
