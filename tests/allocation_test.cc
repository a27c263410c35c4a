// Check, Run and RunRange allocate nothing: every malloc and operator new of the process is
// counted while they run.
#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <new>
#include <vector>

#include "qkvfuse/qkvfuse.hpp"
#include "tests/support/same_bits.h"

// Sanitizers bring their own malloc. The GNU C library lets a program put one in front of its own.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define QKVFUSE_HAS_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define QKVFUSE_HAS_SANITIZER 1
#endif
#endif

namespace {
std::atomic<int64_t> allocations{0};
}  // namespace

#if defined(__GLIBC__) && !defined(QKVFUSE_HAS_SANITIZER)
#define QKVFUSE_COUNTS_MALLOC 1
// Exported, so that the shared libraries of the process call these, too.
#pragma GCC visibility push(default)
extern "C" {
void* __libc_malloc(size_t bytes);
void* __libc_calloc(size_t count, size_t bytes);
void* __libc_realloc(void* memory, size_t bytes);
void* __libc_memalign(size_t alignment, size_t bytes);

void* malloc(size_t bytes) {
  ++allocations;
  return __libc_malloc(bytes);
}
void* calloc(size_t count, size_t bytes) {
  ++allocations;
  return __libc_calloc(count, bytes);
}
void* realloc(void* memory, size_t bytes) {
  ++allocations;
  return __libc_realloc(memory, bytes);
}
void* aligned_alloc(size_t alignment, size_t bytes) {
  ++allocations;
  return __libc_memalign(alignment, bytes);
}
int posix_memalign(void** memory, size_t alignment, size_t bytes) {
  ++allocations;
  *memory = __libc_memalign(alignment, bytes);
  return *memory == nullptr ? ENOMEM : 0;
}
}
#pragma GCC visibility pop
#endif

namespace qkvfuse::testing {
namespace {

// A pool that allocates nothing itself; some OpenMP runtimes do where they start a team.
void RunInTurn(void*, int64_t items, ParallelForBody body, void* context) {
  for (int64_t item = 0; item < items; ++item) body(context, item);
}

class Allocation : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
#if !defined(QKVFUSE_COUNTS_MALLOC)
    GTEST_SKIP() << "allocations cannot be counted here";
#endif
    SetParallelFor(RunInTurn, nullptr, 3);
  }
  void TearDown() override { SetParallelFor(nullptr, nullptr, 0); }
};

TEST_P(Allocation, NoneInCheckRunAndRunRange) {
  const auto problem = MakeSolvedProblem(CaseOf(GetParam()));
  ASSERT_NE(problem, nullptr);
  for (const Variant& variant : TargetsAndPaths()) {
    const Result<Plan> plan = problem->MakePlan({false, variant.path, variant.target});
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    const TokenCount tokens = problem->tokens();
    std::vector<std::byte> memory(plan->WorkspaceBytes(tokens));
    const Workspace workspace{memory.data(), memory.size()};
    const RunOptions parallel{3, /*force_split=*/true};
    // The first call of a process may wake the OpenMP runtime, which allocates.
    ASSERT_TRUE(plan->Run(problem->tensors(), tokens, workspace, parallel).ok());

    const int64_t before = allocations;
    const Status check = plan->Check(problem->tensors(), tokens, workspace);
    const int64_t after_check = allocations;
    plan->RunRange(problem->tensors(), tokens, 0, tokens.total(), workspace);
    const int64_t after_range = allocations;
    const Status serial = plan->Run(problem->tensors(), tokens, workspace, {1, false});
    const int64_t after_serial = allocations;
    const Status split = plan->Run(problem->tensors(), tokens, workspace, parallel);
    const int64_t after_split = allocations;

    ASSERT_TRUE(check.ok() && serial.ok() && split.ok());
    EXPECT_EQ(after_check - before, 0) << "Check, " << variant.target;
    EXPECT_EQ(after_range - after_check, 0) << "RunRange, " << variant.target;
    EXPECT_EQ(after_serial - after_range, 0) << "Run, " << variant.target;
    EXPECT_EQ(after_split - after_serial, 0) << "Run split in three, " << variant.target;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Cases, Allocation,
    ::testing::Values("op=qnr dtype=bf16 heads=8/2 head_dim=128 tokens=64 before_quant=1",
                      "op=qnr dtype=fp16 heads=8/2 head_dim=46 tokens=64 layout=paged "
                      "k_cache=16bit v_cache=int8+offset slots=repeated strict=0",
                      "op=drq dtype=bf16 heads=8/2 head_dim=512 tokens=4x16 layout=contiguous "
                      "bias=fp32 token_scale=1 kv_output=1"));

// The counter must count, or zero means nothing.
TEST(AllocationCounter, SeesNew) {
#if !defined(QKVFUSE_COUNTS_MALLOC)
  GTEST_SKIP() << "allocations cannot be counted here";
#endif
  const int64_t before = allocations;
  void* volatile memory = ::operator new(100);  // volatile: compilers may leave out an unused pair
  const int64_t after = allocations;
  ::operator delete(memory);
  EXPECT_EQ(after - before, 1);
}

}  // namespace
}  // namespace qkvfuse::testing
