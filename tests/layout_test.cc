// Caches of any layout that strides and chunks describe, also ones without a preset: every element
// lies where the formula of CacheLayout has it, and no other byte of the cache changes.
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "tests/support/same_bits.h"

namespace qkvfuse::testing {
namespace {

constexpr int64_t kHeads = 2, kHeadDim = 96, kBlocks = 3, kRows = 8;

int64_t AddressOf(const CacheLayout& l, int64_t slot, int64_t head, int64_t channel) {
  const int64_t row = slot % l.block_size;
  const int64_t row_chunk = l.row_chunk == 0 ? l.block_size : l.row_chunk;
  const int64_t channel_chunk = l.channel_chunk == 0 ? kHeadDim : l.channel_chunk;
  return slot / l.block_size * l.block_stride + head * l.head_stride +
         row / row_chunk * l.row_chunk_stride + row % row_chunk * l.row_stride +
         channel / channel_chunk * l.channel_chunk_stride +
         channel % channel_chunk * l.channel_stride;
}

/// [blocks, heads, chunks, rows, chunk], `gap` elements behind each row of a chunk.
CacheLayout InChunks(int64_t chunk, int64_t gap) {
  CacheLayout layout;
  layout.blocks = kBlocks;
  layout.block_size = kRows;
  layout.channel_chunk = chunk;
  layout.row_stride = chunk + gap;
  layout.channel_chunk_stride = kRows * layout.row_stride;
  layout.head_stride = kHeadDim / chunk * layout.channel_chunk_stride;
  layout.block_stride = kHeads * layout.head_stride;
  return layout;
}

/// [blocks, rows / chunk, heads, chunk, head_dim]: rows in chunks too.
CacheLayout InRowChunks(int64_t chunk) {
  CacheLayout layout;
  layout.blocks = kBlocks;
  layout.block_size = kRows;
  layout.row_chunk = chunk;
  layout.row_stride = kHeadDim;
  layout.head_stride = chunk * kHeadDim;
  layout.row_chunk_stride = kHeads * layout.head_stride;
  layout.block_stride = kRows / chunk * layout.row_chunk_stride;
  return layout;
}

/// A cache's elements in the order (slot, head, channel), then all other bytes of its memory.
std::vector<char> Ordered(const CacheLayout& layout, std::vector<char> memory, size_t size) {
  std::vector<char> ordered;
  for (int64_t slot = 0; slot < layout.slots(); ++slot) {
    for (int64_t head = 0; head < kHeads; ++head) {
      for (int64_t channel = 0; channel < kHeadDim; ++channel) {
        char* const at =
            &memory[static_cast<size_t>(AddressOf(layout, slot, head, channel)) * size];
        ordered.insert(ordered.end(), at, at + size);
        std::memset(at, 'P', size);
      }
    }
  }
  for (const char byte : memory) EXPECT_EQ(byte, 'P');
  return ordered;
}

/// The elements of both caches after a call with that layout.
std::vector<char> Written(const cases::Problem& problem, const CacheLayout& layout,
                          const PlanOptions& options) {
  QkvRmsNormRopeCacheSpec spec = problem.QnrSpec();
  spec.k_cache.layout = spec.v_cache.layout = layout;
  const size_t elements = static_cast<size_t>(kBlocks * layout.block_stride);
  const auto k_size = static_cast<size_t>(SizeOf(spec.k_cache.dtype));
  const auto v_size = static_cast<size_t>(SizeOf(spec.v_cache.dtype));
  std::vector<char> k(elements * k_size, 'P');
  std::vector<char> v(elements * v_size, 'P');
  Tensors tensors = problem.tensors();
  tensors.k_cache = k.data();
  tensors.v_cache = v.data();
  const Result<Plan> plan = MakePlan(spec, options);
  EXPECT_TRUE(plan.ok() && plan->Run(tensors, problem.tokens()).ok());
  std::vector<char> ordered = Ordered(layout, k, k_size);
  const std::vector<char> more = Ordered(layout, v, v_size);
  ordered.insert(ordered.end(), more.begin(), more.end());
  return ordered;
}

void ExpectSameElements(const CacheLayout& layout, const std::string& what) {
  for (const char* caches : {"k_cache=int8 v_cache=int8+offset", "k_cache=16bit v_cache=16bit"}) {
    const auto problem = MakeProblem(
        CaseOf(std::string("op=qnr dtype=bf16 heads=3/2 head_dim=96 tokens=13 slots=shuffled "
                           "layout=paged block_size=8 blocks=3 ") +
               caches));
    ASSERT_NE(problem, nullptr);
    const CacheLayout paged = PagedNhd(kBlocks, kRows, kHeads, kHeadDim);
    const std::vector<char> expected = Written(*problem, paged, {});
    for (const Variant& variant : TargetsAndPaths()) {
      EXPECT_EQ(Written(*problem, layout, {true, variant.path, variant.target}), expected)
          << what << ", " << caches << ", " << variant.target;
    }
  }
}

TEST(Layout, ChunksOfAnySize) {
  for (const int64_t chunk : {1, 2, 8, 12, 16, 24, 32, 48, 96}) {
    for (const int64_t gap : {0, 3}) {
      ExpectSameElements(InChunks(chunk, gap), "chunks of " + std::to_string(chunk));
    }
  }
}

TEST(Layout, RowsInChunks) {
  for (const int64_t chunk : {1, 2, 4, 8}) {
    ExpectSameElements(InRowChunks(chunk), "row chunks of " + std::to_string(chunk));
  }
}

}  // namespace
}  // namespace qkvfuse::testing
