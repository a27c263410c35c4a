// The same bytes for every split of the tokens, for many threads on one plan or on many, for a
// caller's own pool and in the child of a fork.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "qkvfuse/qkvfuse.hpp"
#include "reference/exact.h"
#include "tests/support/random_case.h"
#include "tests/support/same_bits.h"

namespace qkvfuse::testing {
namespace {

constexpr char kQnrLine[] =
    "op=qnr dtype=bf16 heads=8/2 head_dim=128 tokens=100 k_cache=int8+offset v_cache=16bit "
    "before_quant=1 slots=padded";
constexpr char kRepeatedLine[] =
    "op=qnr dtype=fp16 heads=3/1 head_dim=48 tokens=100 layout=paged k_cache=16bit v_cache=int8 "
    "slots=repeated strict=0";
constexpr char kDrqLine[] =
    "op=drq dtype=fp16 heads=8/2 head_dim=64 tokens=6x17 layout=contiguous token_scale=1 "
    "bias=bf16 kv_output=1";

constexpr char kFusedLine[] =
    "op=fused dtype=bf16 heads=4/2 head_dim=64 tokens=100 layout=transposed block_size=8 "
    "k_cache=int8+dynamic v_cache=fp8_e4m3 slot_mode=page_table sequences=9 zeroes_unused_rows=1 "
    "q_norm=full norm_order=after rope=interleaved table=joined sections=interleaved kv_output=1";

// Memory for the workspace of one call, starting at an odd address: any alignment is allowed.
class OwnWorkspace {
 public:
  OwnWorkspace(const Plan& plan, TokenCount tokens) : bytes_(plan.WorkspaceBytes(tokens) + 1) {}
  [[nodiscard]] Workspace get() { return {bytes_.data() + 1, bytes_.size() - 1}; }

 private:
  std::vector<std::byte> bytes_;
};

// Cuts [0, tokens) into ranges, some of them empty.
std::vector<int64_t> RandomCuts(int64_t tokens, std::mt19937& random) {
  std::vector<int64_t> cuts = {0, tokens};
  for (int i = 0; i < 6; ++i) {
    cuts.push_back(static_cast<int64_t>(random() % static_cast<uint64_t>(tokens + 1)));
  }
  std::sort(cuts.begin(), cuts.end());
  return cuts;
}

// Ranges of the split, in random order.
void RunInRanges(const Plan& plan, const cases::Problem& problem, Workspace workspace,
                 std::mt19937& random) {
  const std::vector<int64_t> cuts = RandomCuts(problem.tokens().total(), random);
  std::vector<size_t> order;
  for (size_t i = 0; i + 1 < cuts.size(); ++i) order.push_back(i);
  std::shuffle(order.begin(), order.end(), random);
  for (const size_t i : order) {
    plan.RunRange(problem.tensors(), problem.tokens(), cuts[i], cuts[i + 1], workspace);
  }
}

TEST(RunRange, AnySplitInAnyOrderEqualsTheWhole) {
  std::mt19937 random(3);
  for (uint64_t seed = 0; seed < 200; ++seed) {
    cases::Case c = seed == 0   ? CaseOf(kQnrLine)
                    : seed == 1 ? CaseOf(kRepeatedLine)
                    : seed == 2 ? CaseOf(kDrqLine)
                    : seed == 3 ? CaseOf(kFusedLine)
                    : seed % 2  ? RandomFusedCase(seed + 1000)
                                : RandomCase(seed + 1000);
    const auto problem = MakeSolvedProblem(c);
    ASSERT_NE(problem, nullptr);
    const Result<Plan> plan = problem->MakePlan();
    ASSERT_TRUE(plan.ok()) << plan.status().message() << cases::PrintCase(c);
    OwnWorkspace workspace(*plan, problem->tokens());
    const Status check = plan->Check(problem->tensors(), problem->tokens(), workspace.get());
    ASSERT_TRUE(check.ok()) << check.message() << "\n  case: " << cases::PrintCase(c);
    EXPECT_TRUE(problem->CompareUntouched().ok()) << "Check wrote: " << cases::PrintCase(c);
    RunInRanges(*plan, *problem, workspace.get(), random);
    const Status same = problem->Compare();
    EXPECT_TRUE(same.ok()) << same.message() << "\n  case: " << cases::PrintCase(c);
  }
}

TEST(RunRange, ManyThreadsShareACall) {
  for (const char* line : {kQnrLine, kRepeatedLine, kDrqLine, kFusedLine}) {
    const auto problem = MakeSolvedProblem(CaseOf(line));
    ASSERT_NE(problem, nullptr);
    const Result<Plan> plan = problem->MakePlan();
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    OwnWorkspace memory(*plan, problem->tokens());
    const Workspace workspace = memory.get();
    ASSERT_TRUE(plan->Check(problem->tensors(), problem->tokens(), workspace).ok());
    std::vector<std::thread> threads;
    const int64_t tokens = problem->tokens().total();
    constexpr int64_t kThreads = 16;
    for (int64_t i = 0; i < kThreads; ++i) {
      threads.emplace_back([&, i] {
        plan->RunRange(problem->tensors(), problem->tokens(), tokens * i / kThreads,
                       tokens * (i + 1) / kThreads, workspace);
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_TRUE(problem->Compare().ok()) << problem->Compare().message();
  }
}

TEST(Plan, SixteenThreadsRunOnePlan) {
  for (const char* line : {kQnrLine, kRepeatedLine, kDrqLine, kFusedLine}) {
    std::vector<std::unique_ptr<cases::Problem>> problems;
    for (uint64_t seed = 1; seed <= 16; ++seed) {
      cases::Case c = CaseOf(line);
      c.seed = seed;
      problems.push_back(MakeSolvedProblem(c));
    }
    const Result<Plan> plan = problems[0]->MakePlan();
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    std::vector<Status> results(problems.size());
    std::vector<std::thread> threads;
    for (size_t i = 0; i < problems.size(); ++i) {
      threads.emplace_back([&, i] {
        for (int round = 0; round < 5 && results[i].ok(); ++round) {
          problems[i]->ResetLibraryOutputs();
          results[i] = plan->Run(problems[i]->tensors(), problems[i]->tokens(), {1, false});
          if (results[i].ok()) results[i] = problems[i]->Compare();
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (const Status& result : results) EXPECT_TRUE(result.ok()) << result.message();
  }
}

// Threads that make, run and drop plans of their own at the same time, some of which split again.
TEST(Plan, ManyPlansAtOnce) {
  constexpr uint64_t kThreads = 8;
  constexpr uint64_t kRounds = 25;
  std::vector<Status> results(kThreads);
  std::vector<std::thread> threads;
  for (uint64_t i = 0; i < kThreads; ++i) {
    threads.emplace_back([&result = results[i], i] {
      for (uint64_t round = 0; round < kRounds && result.ok(); ++round) {
        const auto problem = cases::Problem::Make(RandomCase(9000 + i * kRounds + round));
        if (!problem.ok()) {
          result = problem.status();
          return;
        }
        (*problem)->RunReference();
        const Result<Plan> plan = (*problem)->MakePlan();
        if (!plan.ok()) {
          result = plan.status();
          return;
        }
        result = plan->Run((*problem)->tensors(), (*problem)->tokens(),
                           {static_cast<int>(round % 3) + 1, true});
        if (result.ok()) result = (*problem)->Compare();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const Status& result : results) EXPECT_TRUE(result.ok()) << result.message();
}

// Runs items on threads of its own, last item first.
struct BackwardPool {
  int64_t items = 0;
  int calls = 0;

  static void Run(void* user, int64_t items, ParallelForBody body, void* context) {
    auto* pool = static_cast<BackwardPool*>(user);
    pool->items = items;
    ++pool->calls;
    std::vector<std::thread> threads;
    for (int64_t item = items - 1; item >= 0; --item) threads.emplace_back(body, context, item);
    for (std::thread& thread : threads) thread.join();
  }
};

TEST(ParallelForHook, RunsEveryItem) {
  BackwardPool pool;
  SetParallelFor(BackwardPool::Run, &pool, 5);
  for (const char* line : {kQnrLine, kRepeatedLine, kDrqLine, kFusedLine}) {
    const auto problem = MakeSolvedProblem(CaseOf(line));
    ASSERT_NE(problem, nullptr);
    for (Variant variant : TargetsAndPaths()) {
      variant.threads = 5;
      pool.calls = 0;
      EXPECT_TRUE(SameBits(*problem, variant));
      EXPECT_EQ(pool.calls, 1);
      EXPECT_GT(pool.items, 1);
    }
  }
  SetParallelFor(nullptr, nullptr, 0);
  pool.calls = 0;
  ExpectSameBits(CaseOf(kQnrLine));
  EXPECT_EQ(pool.calls, 0);
}

// The OpenMP runtime's threads do not exist in the child, which must not wait for them.
TEST(Fork, ChildRunsAndExits) {
  const auto problem = MakeSolvedProblem(CaseOf(kQnrLine));
  ASSERT_NE(problem, nullptr);
  const Variant parallel{AvailableTargets().front(), Path::kAuto, 4};
  ASSERT_TRUE(SameBits(*problem, parallel));
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    alarm(60);  // a hang ends the child by a signal
    const bool is_same = static_cast<bool>(SameBits(*problem, parallel));
    _exit(is_same ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_TRUE(SameBits(*problem, parallel)) << "in the parent, afterwards";
}

}  // namespace
}  // namespace qkvfuse::testing
