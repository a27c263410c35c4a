// Faults of splitting: counters too narrow, threads that share state, packs of heads with a rest,
// token counts that a tiling does not divide.
#include <array>
#include <cstring>
#include <memory>
#include <thread>

#include "tests/faults/fault.h"

namespace qkvfuse::testing {
namespace {

using cases::Case;
using cases::TensorId;

std::string Number(int64_t value) { return std::to_string(value); }

TEST(Faults, C63) {
  constexpr int64_t kTokens = 70000;
  Fault fault(
      "op=qnr dtype=fp16 heads=1/1 head_dim=32 tokens=70000 k_cache=int8 v_cache=int8 layout=pa_nz "
      "block_size=32 blocks=2188");
  std::vector<int64_t> slots;
  for (int64_t t = 0; t < kTokens; ++t) slots.push_back(kTokens - 1 - t);
  fault.Slots(slots);
  fault.ExpectRight({{AvailableTargets().front(), Path::kAuto, 2}});
  const std::vector<int> k = {6, 13, 6,  3,  5, -2, -4, -4, -6, -20, -18, -10, -5,  2, 1,  2,
                              0, 2,  28, 28, 5, 7,  -9, 5,  2,  2,   -3,  -33, -22, 0, -8, -5};
  const std::vector<int> v = {110, -83, -45, -17, 4,   20,  32,  43,  -32, -18, -6,
                              15,  42,  59,  -71, -44, -23, -6,  8,   20,  30,  -33,
                              -80, -34, -4,  18,  34,  47,  -44, -26, -12, 1};
  for (int64_t d = 0; d < 32; ++d) {  // slot 0
    EXPECT_EQ(fault.Value(TensorId::kKCache, {0, 0, 0, d}), k[static_cast<size_t>(d)]);
    EXPECT_EQ(fault.Value(TensorId::kVCache, {0, 0, 0, d}), v[static_cast<size_t>(d)]);
  }
  constexpr int64_t kLast = kTokens - 1;
  fault.ExpectSpots(TensorId::kQOut, {{{kLast, 0, 0}, -0.733214535},
                                      {{kLast, 0, 1}, -1.28933776},
                                      {{kLast, 0, 2}, -0.636483541},
                                      {{kLast, 0, 3}, -0.112355129}});
  fault.ExpectToldApart("a 16-bit counter", [](const reference::Problem& p) {
    reference::RunExact(p, 0, kTokens & 0xFFFF);
  });
  fault.ExpectToldApart("65535 tokens",
                        [](const reference::Problem& p) { reference::RunExact(p, 0, 65535); });
}

class Counts : public ::testing::TestWithParam<int64_t> {};

// Counts around 2^16 of every number that counts: tokens, sequences, tokens of a sequence.
TEST_P(Counts, AreWhole) {
  const int64_t count = GetParam();
  const std::string shapes[] = {Number(count) + " layout=paged", Number(count) + "x1",
                                "1x" + Number(count) + " block_size=" + Number(count)};
  for (const std::string& shape : shapes) {
    const bool is_list = shape.find("paged") != std::string::npos;
    const std::string slots = is_list ? ""
                                      : " layout=contiguous slot_mode=start blocks=" +
                                            Number(shape[0] == '1' ? 1 : count);
    const bool has_block_size = shape.find("block_size") != std::string::npos;
    for (const char* line : {"op=qnr dtype=bf16", "op=drq dtype=fp16 x=int32"}) {
      Fault fault(std::string(line) + " heads=1/1 head_dim=16 tokens=" + shape + slots +
                  (has_block_size ? "" : " block_size=1"));
      fault.ExpectRight({{AvailableTargets().front(), Path::kAuto, 3}});
      fault.ExpectToldApart("one token less", [=](const reference::Problem& p) {
        reference::RunExact(p, 0, count - 1);
      });
    }
  }
}

INSTANTIATE_TEST_SUITE_P(C63Kind, Counts, ::testing::Values(65535, 65536, 65537),
                         [](const auto& test) { return Number(test.param); });

const Codes kC66K = {{17, -6, -4, -3, 2, 2, -1, -4, 9, 8, -6, 9, 3, 6, -7, -1},
                     {-5, 7, 10, 10, 15, -1, -2, 2},
                     0x70DA412224834D26U};
const Codes kC66V = {{18, 44, 62, -69, -42, -20, -3, 9, 21, 31, -32, -76, -31, -1, 19, 36},
                     {34, 57, 73, -61, -35, -14, 2, 16},
                     0xC8F1B8CB1E4679C8U};

// k heads that start somewhere else in the packed row, still inside it.
FaultyRun WithKFrom(int64_t head) {
  return [head](reference::Problem p) {
    reference::Problem k_only = p;
    p.k_cache.data.data = nullptr;
    reference::RunExact(p);
    const auto bytes = head * p.head_dim * SizeOf(p.x.dtype);
    k_only.x.data = static_cast<char*>(p.x.data) + bytes;
    k_only.q_heads = 0;
    k_only.v_heads = 0;
    reference::RunExact(k_only);
  };
}

TEST(Faults, C66) {
  Fault fault(
      "op=qnr dtype=bf16 heads=5/2 head_dim=48 tokens=7 k_cache=int8+offset v_cache=int8+offset "
      "layout=paged block_size=16 blocks=4");
  fault.Fill(TensorId::kKScale, Cyc(9, 7, 128)).Slots({0, 31, 32, -1, 63, 1, 33});
  fault.ExpectRight();
  fault.ExpectCodes(TensorId::kKCache, kC66K);
  fault.ExpectCodes(TensorId::kVCache, kC66V);
  fault.ExpectSpots(TensorId::kQOut, {{{0, 0, 0}, 0.88765015},
                                      {{0, 0, 24}, -0.182822253},
                                      {{0, 4, 47}, -0.155778364},
                                      {{6, 0, 1}, 0.688888137},
                                      {{6, 4, 23}, 0.275377338},
                                      {{3, 2, 46}, 0.0241980687}});
  double sum = 0;
  double squares = 0;
  for (int64_t i = 0; i < 7 * 5 * 48; ++i) {
    const double q = fault.Value(TensorId::kQOut, {i / 240, i / 48 % 5, i % 48});
    sum += q;
    squares += q * q;
  }
  EXPECT_NEAR(sum, -10.90614277, 0.1);  // published before rounding to bf16
  EXPECT_NEAR(squares, 943.1505747, 0.5);
  for (const int64_t head : {0, 1, 4, 6, 7}) {
    fault.ExpectToldApart("k heads from head " + Number(head), WithKFrom(head));
  }
}

TEST(Faults, C66Kind) {
  for (const char* heads : {"5/2", "7/1", "3/2", "1/3", "9/3", "13/5"}) {
    for (const char* rest : {"head_dim=48 layout=paged k_cache=16bit v_cache=16bit",
                             "head_dim=46 layout=paged", "head_dim=64 k_cache=16bit"}) {
      Fault fault(std::string("op=qnr dtype=bf16 tokens=7 heads=") + heads + " " + rest);
      fault.ExpectRight();
      for (int64_t head = 0; head < fault.description().heads.q; ++head) {
        fault.ExpectToldApart("k heads from head " + Number(head), WithKFrom(head));
      }
    }
  }
}

// Every token count, in both factorisations.
TEST(Faults, C65) {
  for (int64_t tokens = 1; tokens <= 130; ++tokens) {
    for (const std::string& shape : {Number(tokens) + "x1", "1x" + Number(tokens)}) {
      Fault fault("op=qnr dtype=bf16 heads=3/1 head_dim=64 before_quant=1 k_cache=16bit tokens=" +
                  shape);
      fault.ExpectRight();
      fault.ExpectToldApart("the last token left out", [=](const reference::Problem& p) {
        reference::RunExact(p, 0, tokens - 1);
      });
    }
  }
}

// Bits of each token are those it has alone, at any number of threads.
TEST(Faults, C62) {
  for (const int64_t head_dim : {64, 80, 128}) {
    for (const int64_t tokens : {1, 2, 3, 5, 7, 16, 17, 31, 33, 100, 257}) {
      Fault fault(
          "op=qnr dtype=bf16 heads=5/2 layout=paged before_quant=1 k_cache=int8+offset "
          "v_cache=16bit head_dim=" +
          Number(head_dim) + " tokens=" + Number(tokens));
      std::vector<Variant> variants;
      for (Variant variant : TargetsAndPaths()) {
        for (const int threads : {1, 2, 3, 4, 7, 16, 64}) {
          variant.threads = threads;
          variants.push_back(variant);
        }
      }
      fault.ExpectRight(variants);
      // Token by token: the reference of a token does not know the others.
      const cases::Problem& problem = fault.problem();
      const Result<Plan> plan = problem.MakePlan();
      ASSERT_TRUE(plan.ok());
      fault.problem().ResetLibraryOutputs();
      std::vector<std::byte> workspace(plan->WorkspaceBytes(problem.tokens()));
      const Workspace memory{workspace.data(), workspace.size()};
      ASSERT_TRUE(plan->Check(problem.tensors(), problem.tokens(), memory).ok());
      for (int64_t t = tokens - 1; t >= 0; --t) {
        plan->RunRange(problem.tensors(), problem.tokens(), t, t + 1, memory);
      }
      EXPECT_TRUE(problem.Compare().ok()) << problem.Compare().message();
    }
  }
}

// Elements of 16 bits in rows of head_dim, the channels of each half moved on by one.
std::vector<uint16_t> MovedOn(const void* data, int64_t count, int64_t head_dim, int64_t by) {
  const auto* const from = static_cast<const uint16_t*>(data);
  const int64_t half = head_dim / 2;
  std::vector<uint16_t> moved;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t first = i - i % half;
    moved.push_back(from[first + (i % half + half + by) % half]);
  }
  return moved;
}

// The same mathematics with the sum of squares grouped in another way: a split of a row gives this.
void RegroupedSums(reference::Problem p) {
  std::vector<uint16_t> memory[5];
  size_t next = 0;
  for (const TensorId id :
       {TensorId::kX, TensorId::kQGamma, TensorId::kKGamma, TensorId::kCos, TensorId::kSin}) {
    TensorView& view = ViewOf(p, id);
    memory[next] = MovedOn(view.data, view.shape.ElementCount(), p.head_dim, 1);
    view.data = memory[next++].data();
  }
  reference::RunExact(p);
  const int64_t count = p.q_out.shape.ElementCount();
  const std::vector<uint16_t> back = MovedOn(p.q_out.data, count, p.head_dim, -1);
  std::memcpy(p.q_out.data, back.data(), back.size() * sizeof(uint16_t));
}

TEST(Faults, C62RegroupedSums) {
  Fault fault("op=qnr dtype=fp16 heads=8/1 head_dim=128 tokens=64 slots=skipped");
  const auto random = [](int64_t i) {
    return static_cast<double>(static_cast<uint64_t>(i + 1) * 0x9E3779B97F4A7C15U >> 40) * 0x1p-22;
  };
  fault.Fill(TensorId::kX, random);
  fault.ExpectRight();
  fault.ExpectToldApart("sums regrouped", RegroupedSums);
}

// 8 threads, each with tensors of its own, in turn over five kinds of call; plans are made while
// others run.
TEST(Faults, C61) {
  const std::array<const char*, 5> lines = {
      "op=qnr dtype=bf16 heads=5/2 head_dim=64 tokens=3 k_cache=int8+offset v_cache=int8+offset "
      "strides=x:pitch",
      "op=qnr dtype=bf16 heads=3/1 head_dim=46 tokens=3 layout=paged block_size=16",
      "op=qnr dtype=fp16 heads=2/1 head_dim=40 tokens=3 layout=paged block_size=4",
      "op=qnr dtype=bf16 heads=1/1 head_dim=192 tokens=2",
      "op=drq dtype=fp16 x=16bit heads=1/1 head_dim=64 tokens=2x3 layout=contiguous block_size=16"};
  constexpr int kThreads = 8;
  std::vector<std::unique_ptr<cases::Problem>> problems;
  for (int thread = 0; thread < kThreads; ++thread) {
    for (const char* line : lines) {
      Case c = CaseOf(line);
      c.seed = problems.size() + 1;
      problems.push_back(MakeSolvedProblem(c));
    }
  }
  std::array<std::string, kThreads> failures;
  std::vector<std::thread> threads;
  for (size_t thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&, thread] {
      for (size_t call = 0; call < 200 && failures[thread].empty(); ++call) {
        cases::Problem& problem = *problems[thread * lines.size() + call % lines.size()];
        problem.ResetLibraryOutputs();
        const Result<Plan> plan = problem.MakePlan();
        if (!plan.ok()) {
          failures[thread] = plan.status().message();
          continue;
        }
        const int workers = 1 + static_cast<int>(thread) % 4;
        Status status = plan->Run(problem.tensors(), problem.tokens(), {workers, workers > 1});
        if (status.ok()) status = problem.Compare();
        failures[thread] = status.message();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::string& failure : failures) EXPECT_EQ(failure, "");
}

}  // namespace
}  // namespace qkvfuse::testing
