// Each allocation of the functions of pages.hpp fails once: the call says so and writes nothing.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <new>
#include <vector>

#include "qkvfuse/qkvfuse.hpp"

namespace {
int64_t allocations_left = -1;  // negative: any number
}  // namespace

// Not inlined: GCC would see free() of what a new returned, and warn.
[[gnu::noinline]] void* operator new(size_t bytes) {
  if (allocations_left == 0) throw std::bad_alloc();
  if (allocations_left > 0) --allocations_left;
  void* const memory = std::malloc(bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace qkvfuse {
namespace {

constexpr int64_t kHeads = 2, kHeadDim = 8, kBlocks = 2, kBlockSize = 4;
constexpr size_t kElements = kBlocks * kBlockSize * kHeads * kHeadDim;

/// An int8 cache of codes 1, with a scale and an offset per channel.
struct Cache {
  std::vector<int8_t> data = std::vector<int8_t>(kElements, 1);
  std::vector<float> scale = std::vector<float>(kHeads * kHeadDim, 0.5f);
  CacheView view;

  Cache() {
    view.spec.layout = PagedNhd(kBlocks, kBlockSize, kHeads, kHeadDim);
    view.spec.has_offset = true;
    view.heads = kHeads;
    view.head_dim = kHeadDim;
    view.data = data.data();
    view.scale = scale.data();
    view.offset = scale.data();
  }
};

/// Lets the first allocation fail, then the second, ... until the call succeeds. Returns how many
/// failed.
int64_t ExpectSaysSo(const std::function<Status()>& call,
                     const std::function<bool()>& is_untouched) {
  for (int64_t allowed = 0; allowed < 1000; ++allowed) {
    allocations_left = allowed;
    const Status status = call();
    allocations_left = -1;
    if (status.ok()) return allowed;
    EXPECT_EQ(status.code(), StatusCode::kOutOfMemory) << allowed << ": " << status.message();
    EXPECT_TRUE(is_untouched()) << allowed;
  }
  return 0;
}

TEST(OutOfMemory, ReadCache) {
  const Cache cache;
  std::vector<float> out(kBlockSize * kHeads * kHeadDim, 7.0f);
  const int64_t block = 1, length = kBlockSize;
  ReadCacheArguments arguments;
  arguments.cache = cache.view;
  arguments.slot_spec.mode = SlotMode::kPageTable;
  arguments.slot_spec.pages = 1;
  arguments.sequences = 1;
  arguments.slots = &block;
  arguments.lengths = &length;
  arguments.rows = length;
  arguments.dtype = DType::kFloat32;
  arguments.out = out.data();
  EXPECT_GT(ExpectSaysSo(
                [&] {
                  return ReadCache(arguments, {1, false});
                },
                [&] { return out == std::vector<float>(out.size(), 7.0f); }),
            0);
}

TEST(OutOfMemory, MovePages) {
  const Cache from, to;
  Cache other;
  const std::vector<int64_t> pairs = {0, 1, 1, 0};
  MovePagesArguments arguments;
  arguments.from = from.view;
  arguments.to = to.view;
  arguments.count = 2;
  arguments.pairs = pairs.data();
  for (size_t i = 0; i < other.scale.size(); ++i) other.scale[i] = 0.25f;
  arguments.to.scale = other.view.scale;
  arguments.to.offset = other.view.offset;
  const auto is_untouched = [&] { return to.data == std::vector<int8_t>(kElements, 1); };
  for (const auto move : {&ConvertPages, &CopyPages}) {
    EXPECT_GT(ExpectSaysSo([&] { return move(arguments, {1, false}); }, is_untouched), 0);
    std::fill_n(static_cast<int8_t*>(to.view.data), kElements, int8_t{1});
  }
}

}  // namespace
}  // namespace qkvfuse
