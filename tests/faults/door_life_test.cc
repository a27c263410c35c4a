// Public faults in the life of an executor and its workspace, through the aclnn door.
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/capi/contract.h"
#include "tests/capi/golden.h"
#include "tests/capi/sample_calls.h"

namespace qkvfuse::capi_test {
namespace {

constexpr Op kOps[] = {Op::kQnr, Op::kDrq};

using Bytes = std::vector<unsigned char>;

// The memory of a call that ran as it should.
std::vector<Bytes> RightMemory(Op op) {
  const auto call = Sample(op);
  EXPECT_EQ(call->Run(), ACLNN_SUCCESS) << aclGetRecentErrMsg();
  const Comparison found = CompareWithGolden(*call);
  EXPECT_EQ(found.outside + found.disturbed, 0) << found.first_outside;
  return call->Memory();
}

TEST(Faults, C58) {
  for (const Op op : kOps) {
    const auto call = Sample(op);
    ASSERT_EQ(call->Run(), ACLNN_SUCCESS) << aclGetRecentErrMsg();
    EXPECT_EQ(call->Memory(), RightMemory(op));
    // The second run is an error and writes nothing. A stale executor that still ran would write.
    for (const char* name : TensorNames(op)) {
      Bytes& bytes = (*call)[name].bytes;
      if (IsOutput(name)) std::fill(bytes.begin(), bytes.end(), 0x55);
    }
    const auto before = call->Memory();
    EXPECT_NE(before, RightMemory(op));
    EXPECT_EQ(call->PhaseTwo(), ACLNN_ERR_PARAM_NULLPTR);
    EXPECT_EQ(call->Memory(), before);
    call->executor = nullptr;
    EXPECT_EQ(call->PhaseTwo(), ACLNN_ERR_PARAM_NULLPTR);
    EXPECT_EQ(call->Memory(), before);

    const auto never_run = Sample(op);  // its executor is destroyed with it: no leak
    EXPECT_EQ(never_run->PhaseOne(), ACLNN_SUCCESS);

    const auto refused = Sample(op);
    const char* const table = "cos";
    ExpectPhaseOneRefuses({"bad type", ACLNN_ERR_PARAM_INVALID, table, Typed(table, ACL_INT8)},
                          *refused);
  }
}

struct WorkspaceCase {
  const char* name;
  unsigned char before;  // what the workspace holds
};

// NaN in every type, and the poison of a debug allocator: nothing may be taken for zeroed.
constexpr WorkspaceCase kWorkspaces[] = {
    {"zeros", 0}, {"NaN", 0xFF}, {"NaN", 0x7F}, {"other", 0xCD}};

TEST(Faults, C59) {
  constexpr size_t kGuard = 64;
  for (const Op op : kOps) {
    const std::vector<Bytes> right = RightMemory(op);
    for (const WorkspaceCase& workspace : kWorkspaces) {
      for (size_t offset = 0; offset < kGuard; offset += 7) {
        const auto call = Sample(op);
        ASSERT_EQ(call->PhaseOne(), ACLNN_SUCCESS);
        ASSERT_GT(call->workspace_size, 0U);
        Bytes memory(call->workspace_size + 2 * kGuard, workspace.before);
        std::fill_n(memory.begin(), kGuard + offset, 0xA5);
        std::fill(memory.end() - static_cast<std::ptrdiff_t>(kGuard - offset), memory.end(), 0xA5);
        unsigned char* const start = memory.data() + kGuard + offset;
        ASSERT_EQ(call->PhaseTwo(start, call->workspace_size), ACLNN_SUCCESS);
        std::fill_n(start, call->workspace_size, 0xFF);  // freed and used by another
        EXPECT_EQ(call->Memory(), right) << workspace.name;
        const auto is_guard = [](unsigned char byte) { return byte == 0xA5; };
        EXPECT_TRUE(std::all_of(memory.data(), start, is_guard));
        EXPECT_TRUE(
            std::all_of(start + call->workspace_size, memory.data() + memory.size(), is_guard));
      }
    }
  }
}

TEST(Faults, C59Refusals) {
  for (const Op op : kOps) {
    const auto expect_refused = [&](bool is_null, uint64_t missing, aclnnStatus code) {
      const auto call = Sample(op);
      const auto before = call->Memory();
      ASSERT_EQ(call->PhaseOne(), ACLNN_SUCCESS);
      Bytes memory(call->workspace_size);
      EXPECT_EQ(call->PhaseTwo(is_null ? nullptr : memory.data(), call->workspace_size - missing),
                code);
      EXPECT_EQ(call->Memory(), before);
      EXPECT_NE(before, RightMemory(op)) << "a run cannot be told from a refusal";
    };
    expect_refused(/*is_null=*/true, 0, ACLNN_ERR_PARAM_NULLPTR);
    const uint64_t size = [&] {
      const auto call = Sample(op);
      EXPECT_EQ(call->PhaseOne(), ACLNN_SUCCESS);
      return call->workspace_size;
    }();
    for (uint64_t missing = 1; missing <= size; ++missing) {
      expect_refused(/*is_null=*/false, missing, ACLNN_ERR_PARAM_INVALID);
    }
  }
}

// 8 threads with tensors of their own; each executor runs in another thread than it was made in.
TEST(FaultsDoor, C61) {
  const std::array<std::vector<Bytes>, 2> right = {RightMemory(Op::kQnr), RightMemory(Op::kDrq)};
  std::array<int, 8> failures{};
  std::vector<std::thread> threads;
  for (size_t thread = 0; thread < failures.size(); ++thread) {
    threads.emplace_back([&, thread] {
      for (size_t round = 0; round < 100; ++round) {
        const auto call = Sample(kOps[(thread + round) % 2]);
        if (call->PhaseOne() != ACLNN_SUCCESS) ++failures[thread];
        if (round % 10 == 0) {
          std::thread([&] {
            if (call->PhaseTwo() != ACLNN_SUCCESS) ++failures[thread];
          }).join();
        } else if (call->PhaseTwo() != ACLNN_SUCCESS) {
          ++failures[thread];
        }
        if (call->Memory() != right[(thread + round) % 2]) ++failures[thread];
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failures, (std::array<int, 8>{}));
}

}  // namespace
}  // namespace qkvfuse::capi_test
