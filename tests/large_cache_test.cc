// Caches of more than 2^31 elements: addresses need 64 bits. The memory is mapped without being
// reserved, so only the pages that are written exist.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <vector>

#include "qkvfuse/qkvfuse.hpp"
#include "reference/exact.h"
#include "tests/support/same_bits.h"
#include "tests/support/sparse_memory.h"

namespace qkvfuse::testing {
namespace {

constexpr int64_t kHeads = 4;
constexpr int64_t kHeadDim = 128;
constexpr int64_t kBlockSize = 128;
constexpr int64_t kBlocks = 100000;  // 6.5e9 elements, more than 2^32
constexpr int64_t kElements = kBlocks * kBlockSize * kHeads * kHeadDim;
constexpr int64_t kTokens = 40;

// The first and last slots, those around the 2^31st and 2^32nd element, and some between.
std::vector<int64_t> FarSlots() {
  constexpr int64_t kSlots = kBlocks * kBlockSize;
  constexpr int64_t kPerSlot = kHeads * kHeadDim;
  std::vector<int64_t> slots = {0, kSlots - 1};
  for (const int64_t edge : {(int64_t{1} << 31) / kPerSlot, (int64_t{1} << 32) / kPerSlot}) {
    for (const int64_t distance : {-kBlockSize, int64_t{-1}, int64_t{0}, int64_t{1}, kBlockSize}) {
      slots.push_back(edge + distance);
    }
  }
  while (slots.size() < static_cast<size_t>(kTokens)) {
    slots.push_back(static_cast<int64_t>(slots.size()) * 299993 + 7);
  }
  return slots;
}

void ExpectSamePages(const SparseMemory& found, const SparseMemory& expected) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const std::vector<size_t> pages = expected.WrittenPages();
  EXPECT_FALSE(pages.empty());
  ASSERT_EQ(found.WrittenPages(), pages);
  for (const size_t i : pages) {
    ASSERT_EQ(std::memcmp(found.data() + i * page, expected.data() + i * page, page), 0)
        << "page " << i;
  }
}

// The caches of both sides, in place of those that the case has.
struct FarCaches {
  SparseMemory k{static_cast<size_t>(kElements)};      // int8
  SparseMemory v{static_cast<size_t>(kElements) * 2};  // bfloat16
};

void UseFarCaches(const FarCaches& caches, cases::Layout layout, std::vector<int64_t>& slots,
                  reference::Problem& p) {
  const bool is_pa_nz = layout == cases::Layout::kPaNz;
  const auto dims = [&](int64_t chunk) {
    return is_pa_nz
               ? StridedShape::Contiguous({kBlocks, kHeads * kHeadDim / chunk, kBlockSize, chunk})
               : StridedShape::Contiguous({kBlocks, kBlockSize, kHeads, kHeadDim});
  };
  p.cache_order = is_pa_nz ? reference::CacheOrder::kPaNz : reference::CacheOrder::kNd;
  p.k_cache.data = {DType::kInt8, dims(32), caches.k.data()};
  p.v_cache.data = {DType::kBFloat16, dims(16), caches.v.data()};
  p.slots = {DType::kInt64, StridedShape::Contiguous({kTokens}), slots.data()};
}

CacheLayout FarLayout(cases::Layout layout, int64_t chunk) {
  return layout == cases::Layout::kPaNz ? PaNz(kBlocks, kBlockSize, kHeads, kHeadDim, chunk)
                                        : PagedNhd(kBlocks, kBlockSize, kHeads, kHeadDim);
}

class LargeCache : public ::testing::TestWithParam<cases::Layout> {};

TEST_P(LargeCache, WritesWhereTheReferenceDoes) {
  const auto problem = MakeProblem(
      CaseOf("op=qnr dtype=bf16 heads=4/4 head_dim=128 tokens=40 k_cache=int8 v_cache=16bit"));
  ASSERT_NE(problem, nullptr);
  std::vector<int64_t> slots = FarSlots();
  const FarCaches expected;
  ASSERT_TRUE(expected.k.is_mapped() && expected.v.is_mapped());
  reference::Problem p = problem->ReferenceProblem();
  UseFarCaches(expected, GetParam(), slots, p);
  reference::RunExact(p);

  QkvRmsNormRopeCacheSpec spec = problem->QnrSpec();
  spec.k_cache.layout = FarLayout(GetParam(), 32);
  spec.v_cache.layout = FarLayout(GetParam(), 16);
  for (const Variant& variant : TargetsAndPaths()) {
    const FarCaches found;
    ASSERT_TRUE(found.k.is_mapped() && found.v.is_mapped());
    const Result<Plan> plan = MakePlan(spec, {true, variant.path, variant.target});
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    Tensors tensors = problem->tensors();
    tensors.slots = slots.data();
    tensors.k_cache = found.k.data();
    tensors.v_cache = found.v.data();
    const Status status = plan->Run(tensors, TokenCount(kTokens), {2, /*force_split=*/true});
    ASSERT_TRUE(status.ok()) << status.message();
    ExpectSamePages(found.k, expected.k);
    ExpectSamePages(found.v, expected.v);
  }
}

INSTANTIATE_TEST_SUITE_P(Layouts, LargeCache,
                         ::testing::Values(cases::Layout::kPaNz, cases::Layout::kPaged),
                         [](const auto& test) {
                           return test.param == cases::Layout::kPaNz ? "pa_nz" : "paged";
                         });

}  // namespace
}  // namespace qkvfuse::testing
