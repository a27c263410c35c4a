// The life of an executor: consumed, repeated, destroyed, shared by threads.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <set>
#include <thread>
#include <vector>

#include "contract.h"
#include "sample_test.h"

namespace qkvfuse::capi_test {
namespace {

using LifeCycle = SampleTest;

INSTANTIATE_TEST_SUITE_P(Both, LifeCycle, testing::Values(Op::kQnr, Op::kDrq), Title);

TEST_P(LifeCycle, TwoPhasesComputeWhatFloat64Gives) {
  ASSERT_EQ(call_->PhaseOne(), ACLNN_SUCCESS) << aclGetRecentErrMsg();
  EXPECT_NE(call_->executor, nullptr);
  ASSERT_EQ(call_->PhaseTwo(), ACLNN_SUCCESS) << aclGetRecentErrMsg();
  ExpectGolden(*call_);
}

TEST_P(LifeCycle, ResultPointersAreRequiredAndCleared) {
  uint64_t size = 7;
  auto* executor = reinterpret_cast<aclOpExecutor*>(this);
  EXPECT_EQ(call_->PhaseOne(nullptr, &executor), ACLNN_ERR_PARAM_NULLPTR);
  EXPECT_EQ(executor, nullptr);
  EXPECT_TRUE(LastErrorNames("workspaceSize"));
  EXPECT_EQ(call_->PhaseOne(&size, nullptr), ACLNN_ERR_PARAM_NULLPTR);
  EXPECT_EQ(size, 0u);
  EXPECT_TRUE(LastErrorNames("executor"));
}

TEST_P(LifeCycle, AConsumedExecutorIsAnErrorForGood) {
  ASSERT_EQ(call_->Run(), ACLNN_SUCCESS);
  const auto after = call_->Memory();
  EXPECT_EQ(call_->PhaseTwo(), ACLNN_ERR_PARAM_NULLPTR);
  EXPECT_TRUE(LastErrorNames("executor"));
  aclOpExecutor* const consumed = call_->executor;
  std::set<aclOpExecutor*> handles = {consumed};
  for (int i = 0; i < 1000; ++i) {
    const auto other = Sample(GetParam());
    ASSERT_EQ(other->PhaseOne(), ACLNN_SUCCESS);
    EXPECT_TRUE(handles.insert(other->executor).second);
    call_->executor = consumed;
    EXPECT_EQ(call_->PhaseTwo(), ACLNN_ERR_PARAM_NULLPTR);
  }
  EXPECT_EQ(call_->Memory(), after);
}

TEST_P(LifeCycle, HandlesThatNeverWereAreErrors) {
  int local = 0;
  for (void* handle : {static_cast<void*>(nullptr), static_cast<void*>(&local),
                       reinterpret_cast<void*>(1), reinterpret_cast<void*>(~uintptr_t{0})}) {
    call_->executor = static_cast<aclOpExecutor*>(handle);
    EXPECT_EQ(call_->PhaseTwo(nullptr, 0), ACLNN_ERR_PARAM_NULLPTR);
    EXPECT_EQ(aclSetAclOpExecutorRepeatable(call_->executor), ACLNN_ERR_INNER_NULLPTR);
    EXPECT_EQ(aclDestroyAclOpExecutor(call_->executor), ACLNN_ERR_INNER_NULLPTR);
  }
  call_->executor = nullptr;
}

TEST_P(LifeCycle, WorkspaceIsCheckedAndTheRefusalConsumes) {
  std::vector<unsigned char> workspace;
  ASSERT_EQ(call_->PhaseOne(), ACLNN_SUCCESS);
  EXPECT_EQ(call_->PhaseTwo(nullptr, 64), ACLNN_ERR_PARAM_NULLPTR);
  EXPECT_TRUE(LastErrorNames("workspace"));
  EXPECT_EQ(call_->PhaseTwo(), ACLNN_ERR_PARAM_NULLPTR);
  ASSERT_EQ(call_->PhaseOne(), ACLNN_SUCCESS);
  if (call_->workspace_size == 0) return;
  workspace.resize(call_->workspace_size);
  EXPECT_EQ(call_->PhaseTwo(workspace.data(), workspace.size() - 1), ACLNN_ERR_PARAM_INVALID);
  EXPECT_TRUE(LastErrorNames("workspaceSize"));
  EXPECT_EQ(call_->PhaseTwo(), ACLNN_ERR_PARAM_NULLPTR);
  ASSERT_EQ(call_->PhaseOne(), ACLNN_SUCCESS);
  EXPECT_EQ(call_->PhaseTwo(nullptr, 0), ACLNN_ERR_PARAM_INVALID);
}

TEST_P(LifeCycle, AnExecutorBelongsToItsOperator) {
  const auto other = Sample(GetParam() == Op::kQnr ? Op::kDrq : Op::kQnr);
  ASSERT_EQ(other->PhaseOne(), ACLNN_SUCCESS);
  call_->executor = other->executor;
  call_->workspace_size = other->workspace_size;
  EXPECT_EQ(call_->PhaseTwo(), ACLNN_ERR_PARAM_INVALID);
  EXPECT_TRUE(LastErrorNames("executor"));
  EXPECT_EQ(other->PhaseTwo(), ACLNN_ERR_PARAM_NULLPTR);
}

TEST_P(LifeCycle, ARepeatableExecutorRunsUntilDestroyed) {
  ASSERT_EQ(call_->PhaseOne(), ACLNN_SUCCESS);
  EXPECT_EQ(aclSetAclOpExecutorRepeatable(call_->executor), ACLNN_SUCCESS);
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(call_->PhaseTwo(), ACLNN_SUCCESS) << aclGetRecentErrMsg();
    ExpectGolden(*call_);
  }
  EXPECT_EQ(aclDestroyAclOpExecutor(call_->executor), ACLNN_SUCCESS);
  EXPECT_EQ(call_->PhaseTwo(), ACLNN_ERR_PARAM_NULLPTR);
  EXPECT_EQ(aclDestroyAclOpExecutor(call_->executor), ACLNN_ERR_INNER_NULLPTR);
}

TEST_P(LifeCycle, AnExecutorThatNeverRanCanBeDestroyed) {
  ASSERT_EQ(call_->PhaseOne(), ACLNN_SUCCESS);
  EXPECT_EQ(aclDestroyAclOpExecutor(call_->executor), ACLNN_SUCCESS);
  EXPECT_EQ(call_->PhaseTwo(), ACLNN_ERR_PARAM_NULLPTR);
}

TEST_P(LifeCycle, TensorsMayBeDestroyedAfterPhaseOne) {
  ASSERT_EQ(call_->PhaseOne(), ACLNN_SUCCESS);
  call_->DestroyTensors();
  ASSERT_EQ(call_->PhaseTwo(), ACLNN_SUCCESS) << aclGetRecentErrMsg();
  ExpectGolden(*call_);
}

TEST_P(LifeCycle, AddressesMayBeSetAfterPhaseOne) {
  for (const char* name : TensorNames(GetParam())) (*call_)[name].has_data = false;
  ASSERT_EQ(call_->PhaseOne(), ACLNN_SUCCESS) << aclGetRecentErrMsg();
  for (const char* name : TensorNames(GetParam())) {
    EXPECT_EQ(aclSetRawTensorAddr(call_->tensor(name), (*call_)[name].Data()), ACLNN_SUCCESS);
  }
  ASSERT_EQ(call_->PhaseTwo(), ACLNN_SUCCESS) << aclGetRecentErrMsg();
  ExpectGolden(*call_);
}

TEST_P(LifeCycle, PhasesMayRunOnDifferentThreads) {
  std::thread([&] { EXPECT_EQ(call_->PhaseOne(), ACLNN_SUCCESS); }).join();
  std::thread([&] { EXPECT_EQ(call_->PhaseTwo(), ACLNN_SUCCESS); }).join();
  ExpectGolden(*call_);
}

TEST_P(LifeCycle, OnlyOneOfManyThreadsConsumesAnExecutor) {
  ASSERT_EQ(call_->PhaseOne(), ACLNN_SUCCESS);
  std::vector<unsigned char> workspace(call_->workspace_size);
  std::atomic<int> ran = 0;
  std::atomic<int> refused = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      const aclnnStatus status = call_->PhaseTwo(workspace.data(), workspace.size());
      if (status == ACLNN_SUCCESS) ++ran;
      if (status == ACLNN_ERR_PARAM_NULLPTR) ++refused;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(ran, 1);
  EXPECT_EQ(refused, 7);
  ExpectGolden(*call_);
}

TEST_P(LifeCycle, ThreadsWithTheirOwnCallsDoNotDisturbEachOther) {
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([op = GetParam()] {
      for (int round = 0; round < 50; ++round) {
        const auto call = Sample(op);
        ASSERT_EQ(call->Run(), ACLNN_SUCCESS);
        ExpectGolden(*call);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// Destructors of static objects run after those of a thread's own, the kept plans among them.
TEST_P(LifeCycle, CallsAreRightAtTheEndOfTheProgram) {
  static Op op;
  op = GetParam();
  const auto end_with_a_call = [] {
    std::atexit([] {
      const auto call = Sample(op);
      const bool is_right = call->Run() == ACLNN_SUCCESS && CompareWithGolden(*call).outside == 0;
      std::_Exit(is_right ? 7 : 8);
    });
    if (Sample(op)->Run() == ACLNN_SUCCESS) std::exit(0);
  };
  EXPECT_EXIT(end_with_a_call(), ::testing::ExitedWithCode(7), "");
}

TEST(LenientMode, TheHighestTokenOfARepeatedSlotWins) {
  const auto repeated = SampleQnr();
  SetValues<int64_t>((*repeated)["index"], {5, 40, 5, 5});
  ASSERT_EQ(repeated->Run(), ACLNN_SUCCESS) << aclGetRecentErrMsg();
  const auto last_only = SampleQnr();
  SetValues<int64_t>((*last_only)["index"], {-1, 40, -1, 5});
  ASSERT_EQ(last_only->Run(), ACLNN_SUCCESS);
  ExpectGolden(*last_only);
  for (const char* name : {"kCache", "vCache", "qOut", "kOutBeforeQuant"}) {
    EXPECT_EQ((*repeated)[name].bytes, (*last_only)[name].bytes) << name;
  }
}

TEST(LenientMode, AZeroScaleSaturates) {
  const auto call = SampleQnr();
  SetValues((*call)["vScale"], std::vector<float>(128, 0.0f));
  (*call)["vOffset"].is_present = false;
  ASSERT_EQ(call->Run(), ACLNN_SUCCESS) << aclGetRecentErrMsg();
  // Token 0 has slot 5 of block 0; v is the row's last head.
  for (int64_t d = 0; d < 128; ++d) {
    const int16_t v = (*call)["qkv"].As<int16_t>()[3 * 128 + d];
    const int code = (*call)["vCache"].As<int8_t>()[d / 32 * 1024 + 5 * 32 + d % 32];
    EXPECT_EQ(code, (v & 0x7FFF) == 0 ? 0 : (v < 0 ? -128 : 127)) << d;
  }
}

TEST(StrictMode, IsReadWhenPhaseOneRuns) {
  const auto call = SampleQnr();
  SetValues<int64_t>((*call)["index"], {5, 5, -1, 100});
  ASSERT_EQ(call->PhaseOne(), ACLNN_SUCCESS);
  {
    const StrictEnvironment strict;
    EXPECT_EQ(call->PhaseTwo(), ACLNN_SUCCESS);
    ASSERT_EQ(call->PhaseOne(), ACLNN_SUCCESS);
  }
  EXPECT_EQ(call->PhaseTwo(), ACLNN_ERR_PARAM_INVALID);
  EXPECT_TRUE(LastErrorNames("index"));
}

TEST(StrictMode, NeedsTheNumberOne) {
  for (const char* value : {"0", ""}) {
    setenv("QKVFUSE_STRICT", value, /*overwrite=*/1);
    const auto call = SampleQnr();
    SetValues<int64_t>((*call)["index"], {5, 5, -1, 100});
    EXPECT_EQ(call->Run(), ACLNN_SUCCESS) << value;
  }
  unsetenv("QKVFUSE_STRICT");
}

// Phase 1 keeps plans; what they depend on besides the descriptors is looked at every time.
TEST(KeptPlans, FollowTheEnvironment) {
  const auto call = SampleQnr();
  ASSERT_EQ(call->PhaseOne(), ACLNN_SUCCESS);
  for (const char* variable : {"QKVFUSE_TARGET", "QKVFUSE_PATH"}) {
    setenv(variable, "nonsense", /*overwrite=*/1);
    EXPECT_EQ(call->PhaseOne(), ACLNN_ERR_PARAM_INVALID) << variable;
    EXPECT_TRUE(LastErrorNames("nonsense"));
    unsetenv(variable);
    EXPECT_EQ(call->PhaseOne(), ACLNN_SUCCESS) << variable;
  }
}

}  // namespace
}  // namespace qkvfuse::capi_test
