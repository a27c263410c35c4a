// A caller, or a pool thread, with flush to zero or another rounding mode changes no bit, and finds
// its control register as it left it.
#include <gtest/gtest.h>

#include <atomic>
#include <bit>
#include <memory>
#include <thread>
#include <vector>

#include "qkvfuse/qkvfuse.hpp"
#include "tests/support/fp_state.h"
#include "tests/support/same_bits.h"

#if defined(_OPENMP)
#include <omp.h>
#endif

namespace qkvfuse::testing {
namespace {

// Data whose results change under any of the hostile states.
const char* const kLines[] = {
    "op=qnr dtype=bf16 heads=4/2 head_dim=64 tokens=50 k_cache=int8+offset v_cache=16bit "
    "before_quant=1 data=special",
    "op=qnr dtype=fp16 heads=4/2 head_dim=46 tokens=50 layout=paged k_cache=16bit v_cache=int8 "
    "data=special",
    "op=qnr dtype=fp16 heads=4/2 head_dim=128 tokens=50 before_quant=1",
    "op=drq dtype=fp16 heads=4/2 head_dim=64 tokens=50 layout=paged bias=fp32 token_scale=1 "
    "kv_output=1 data=special",
    "op=drq dtype=bf16 heads=4/2 head_dim=64 tokens=50 layout=paged bias=int32 kv_output=1",
    "op=drq dtype=bf16 x=16bit heads=4/2 head_dim=18 tokens=50 layout=paged kv_output=1 "
    "data=special",
};

std::vector<std::unique_ptr<cases::Problem>> SolvedProblems() {
  std::vector<std::unique_ptr<cases::Problem>> problems;
  for (const char* line : kLines) problems.push_back(MakeSolvedProblem(CaseOf(line)));
  return problems;
}

uint32_t Bits(float value) { return std::bit_cast<uint32_t>(value); }

// Computed when it is called, whatever the compiler knows about the factors.
float Product(float a, float b) {
  volatile float x = a;
  volatile float y = b;
  return x * y;
}

// What the default environment gives: subnormals kept, ties to even (up in magnitude here). Bits
// are compared, as a comparison of floats would itself read denormals as zeros.
bool ArithmeticIsUsual() {
  return Bits(Product(0x1p-130F, 0.5F)) == Bits(0x1p-131F) &&
         Bits(Product(1 + 0x1p-23F, 1.5F)) == Bits(1.5F + 0x1p-22F) &&
         Bits(Product(1 + 0x1p-23F, -1.5F)) == Bits(-1.5F - 0x1p-22F);
}

// The states must be hostile: where they change nothing, this file tests nothing.
TEST(Environment, StatesChangeArithmetic) {
  if (HostileFpStates().empty()) GTEST_SKIP() << "unknown processor";
  EXPECT_TRUE(ArithmeticIsUsual());
  for (const FpState& state : HostileFpStates()) {
    const ScopedFpControl scope(state.control);
    EXPECT_FALSE(ArithmeticIsUsual()) << state.name;
  }
}

TEST(Environment, CallingThread) {
  for (const auto& problem : SolvedProblems()) {
    for (const FpState& state : HostileFpStates()) {
      for (const Variant& variant : TargetsAndPaths()) {
        const ScopedFpControl scope(state.control);
        EXPECT_TRUE(SameBits(*problem, variant)) << state.name;
        EXPECT_EQ(ReadFpControl(), state.control) << state.name;
      }
    }
  }
}

TEST(Environment, RunRangeAlone) {
  for (const auto& problem : SolvedProblems()) {
    for (const FpState& state : HostileFpStates()) {
      problem->ResetLibraryOutputs();
      const Result<Plan> plan = problem->MakePlan();
      ASSERT_TRUE(plan.ok()) << plan.status().message();
      std::vector<std::byte> memory(plan->WorkspaceBytes(problem->tokens()));
      const Workspace workspace{memory.data(), memory.size()};
      {
        const ScopedFpControl scope(state.control);
        ASSERT_TRUE(plan->Check(problem->tensors(), problem->tokens(), workspace).ok());
        EXPECT_EQ(ReadFpControl(), state.control) << "Check, " << state.name;
        plan->RunRange(problem->tensors(), problem->tokens(), 0, problem->tokens().total(),
                       workspace);
        EXPECT_EQ(ReadFpControl(), state.control) << "RunRange, " << state.name;
      }
      EXPECT_TRUE(problem->Compare().ok()) << problem->Compare().message() << state.name;
    }
  }
}

#if defined(_OPENMP)

constexpr int kThreads = 4;

void SetPoolThreads(uint64_t control) {
#pragma omp parallel num_threads(kThreads)
  WriteFpControl(control);
}

int PoolThreadsWith(uint64_t control) {
  int count = 0;
#pragma omp parallel num_threads(kThreads) reduction(+ : count)
  count += ReadFpControl() == control ? 1 : 0;
  return count;
}

// Some OpenMP runtimes hand the caller's control register to the pool threads at every parallel
// region, others leave each thread its own: the caller is in the hostile state, too.
TEST(Environment, OpenMpThreads) {
  for (const auto& problem : SolvedProblems()) {
    for (const FpState& state : HostileFpStates()) {
      {
        const ScopedFpControl scope(state.control);
        SetPoolThreads(state.control);
        for (Variant variant : TargetsAndPaths()) {
          variant.threads = kThreads;
          EXPECT_TRUE(SameBits(*problem, variant)) << state.name;
          EXPECT_EQ(PoolThreadsWith(state.control), kThreads) << state.name;
        }
      }
      SetPoolThreads(ReadFpControl());
    }
  }
}

#endif

// Starts a thread for every item, each in the hostile state.
struct HostilePool {
  uint64_t control;
  std::atomic<int> items{0};
  std::atomic<int> restored{0};

  static void Run(void* user, int64_t items, ParallelForBody body, void* context) {
    auto* pool = static_cast<HostilePool*>(user);
    std::vector<std::thread> threads;
    for (int64_t item = 0; item < items; ++item) {
      threads.emplace_back([pool, body, context, item] {
        WriteFpControl(pool->control);
        body(context, item);
        ++pool->items;
        if (ReadFpControl() == pool->control) ++pool->restored;
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
};

TEST(Environment, HookThreads) {
  for (const auto& problem : SolvedProblems()) {
    for (const FpState& state : HostileFpStates()) {
      HostilePool pool{state.control};
      SetParallelFor(HostilePool::Run, &pool, 3);
      for (Variant variant : TargetsAndPaths()) {
        variant.threads = 3;
        EXPECT_TRUE(SameBits(*problem, variant)) << state.name;
      }
      SetParallelFor(nullptr, nullptr, 0);
      EXPECT_GT(pool.items, 0);
      EXPECT_EQ(pool.restored, pool.items) << state.name;
    }
  }
}

}  // namespace
}  // namespace qkvfuse::testing
