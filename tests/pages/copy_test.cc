// CopyPages against the model: between all layouts, within one cache and beyond 2^32 elements. The
// blocks that no pair names keep their bytes.
#include <algorithm>
#include <cstring>

#include "cases/buffer.h"
#include "tests/pages/moves.h"
#include "tests/support/sparse_memory.h"

namespace qkvfuse::testing {
namespace {

void ExpectCopies(const CacheSpec& from_spec, const CacheSpec& to_spec, unsigned seed) {
  const TestCache from(from_spec, kHeads, kHeadDim, seed);
  const TestCache to(to_spec, kHeads, kHeadDim, seed + 1);
  TestCache expected(to_spec, kHeads, kHeadDim, seed + 1);
  MoveByModel(kPairs, &expected,
              [&](int64_t slot, int64_t head) { return BitsOf(from, slot, head); });
  const Status status = CopyPages(Arguments(from, to, kPairs), {ThreadsOf(seed), true});
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(BytesOf(to), BytesOf(expected)) << Describe(from_spec) << " to " << to_spec.layout.name;
}

TEST(CopyPages, BetweenAllLayouts) {
  unsigned seed = 1;
  for (const CacheSpec& format : EveryFormat()) {
    if (format.granularity != ScaleGranularity::kChannel) continue;
    for (const CacheLayout& from : Layouts()) {
      for (const CacheLayout& to : Layouts()) {
        ExpectCopies(WithLayout(format, from, true), WithLayout(format, to), seed++);
      }
    }
  }
}

// Other numbers of blocks, and pairs of int32.
TEST(CopyPages, BetweenCachesOfOtherSizes) {
  const CacheSpec spec = FormatOf(DType::kBFloat16);
  const TestCache from(WithLayout(spec, PagedHnd(9, kBlockSize, kHeads, kHeadDim)), kHeads,
                       kHeadDim, 1);
  const TestCache to(WithLayout(spec, Transposed(2, kBlockSize, kHeads, kHeadDim)), kHeads,
                     kHeadDim, 2);
  TestCache expected(to.view.spec, kHeads, kHeadDim, 2);
  MoveByModel({8, 1, 5, 0}, &expected,
              [&](int64_t slot, int64_t head) { return BitsOf(from, slot, head); });
  const std::vector<int32_t> pairs = {8, 1, 5, 0};
  MovePagesArguments arguments = Arguments(from, to, {});
  arguments.count = 2;
  arguments.dtype = DType::kInt32;
  arguments.pairs = pairs.data();
  ASSERT_TRUE(CopyPages(arguments).ok());
  EXPECT_EQ(BytesOf(to), BytesOf(expected));
}

TEST(CopyPages, WithinOneCache) {
  for (const CacheSpec& format : EveryFormat()) {
    for (const CacheLayout& layout : Layouts()) {
      const TestCache cache(WithLayout(format, layout), kHeads, kHeadDim, 3);
      TestCache expected(cache.view.spec, kHeads, kHeadDim, 3);
      const std::vector<int64_t> pairs = {2, 0, 2, 3};
      MoveByModel(pairs, &expected,
                  [&](int64_t slot, int64_t head) { return BitsOf(cache, slot, head); });
      ASSERT_TRUE(CopyPages(Arguments(cache, cache, pairs), {3, true}).ok());
      EXPECT_EQ(BytesOf(cache), BytesOf(expected)) << Describe(cache.view.spec);
    }
  }
}

// K and V in turn in one buffer share no element.
TEST(CopyPages, BetweenTheTwoCachesOfABuffer) {
  const CacheSpec spec = WithLayout(FormatOf(DType::kFloat16), InTurn(Nhd(), kHeads * kHeadDim));
  const TestCache k(spec, kHeads, kHeadDim, 3);
  std::vector<char> buffer(k.data.size() + 2 * kHeads * kHeadDim, 'v');
  std::copy(k.data.begin(), k.data.end(), buffer.begin());
  MovePagesArguments arguments = Arguments(k, k, kPairs);
  arguments.from.data = buffer.data();
  arguments.to.data = buffer.data() + 2 * kHeads * kHeadDim;
  const Status status = CopyPages(arguments);
  ASSERT_TRUE(status.ok()) << status.message();
  const CacheLayout& layout = spec.layout;
  EXPECT_EQ(LoadBits(buffer.data() + 2 * (layout.AddressOf(2, 1, 3) + kHeads * kHeadDim), 2),
            k.BitsAt(14, 1, 3));
}

// Rows and channels in falling order.
TEST(CopyPages, NegativeStrides) {
  const TestCache from(WithLayout(FormatOf(DType::kBFloat16), Nhd()), kHeads, kHeadDim, 3);
  CacheLayout falling = Nhd();
  for (int64_t* stride : {&falling.block_stride, &falling.head_stride, &falling.row_stride,
                          &falling.channel_stride}) {
    *stride = -*stride;
  }
  std::vector<uint16_t> reversed(from.data.size() / 2);
  MovePagesArguments arguments = Arguments(from, from, kAllPairs);
  arguments.to.spec.layout = falling;
  arguments.to.data = &reversed.back();
  ASSERT_TRUE(CopyPages(arguments).ok());
  std::reverse(reversed.begin(), reversed.end());
  EXPECT_EQ(std::memcmp(reversed.data(), from.data.data(), from.data.size()), 0);
}

// No byte outside of the caches is touched: the neighbours are protected pages.
TEST(MovePages, StaysInsideItsTensors) {
  using cases::BufferPlacement;
  for (const auto side : {BufferPlacement::Side::kFront, BufferPlacement::Side::kBack}) {
    for (const CacheLayout& layout : Layouts()) {
      const TestCache from(WithLayout(FormatOf(DType::kFloat16), Nhd()), kHeads, kHeadDim, 3);
      const TestCache to(WithLayout(FormatOf(DType::kInt8, ScaleRule::kDynamic), layout), kHeads,
                         kHeadDim, 4);
      const cases::Buffer source(from.data.size(), {side, 0});
      std::memcpy(source.data(), from.data.data(), from.data.size());
      const cases::Buffer codes(to.data.size(), {side, 0});
      const cases::Buffer scales(4 * to.scale_cache.size(), {side, 0});
      const cases::Buffer copy(2 * to.data.size(), {side, 0});
      MovePagesArguments arguments = Arguments(from, to, kAllPairs);
      arguments.from.data = source.data();
      arguments.to.data = codes.data();
      arguments.to.scale_cache = scales.data();
      ASSERT_TRUE(ConvertPages(arguments).ok());
      arguments.to.spec = WithLayout(FormatOf(DType::kFloat16), layout);
      arguments.to.data = copy.data();
      ASSERT_TRUE(CopyPages(arguments).ok());
    }
  }
}

TEST(CopyPages, NoPairs) {
  const TestCache cache(WithLayout(FormatOf(DType::kFloat32), Nhd()), kHeads, kHeadDim, 5);
  EXPECT_TRUE(CopyPages(Arguments(cache, cache, {}), {3, true}).ok());
}

// More than 2^32 elements on both sides.
TEST(CopyPages, LargeCaches) {
  constexpr int64_t kMany = 100000, kRows = 128, kWide = 4, kChannels = 128;
  constexpr int64_t kElements = kMany * kRows * kWide * kChannels;
  const SparseMemory from(static_cast<size_t>(kElements)), to(static_cast<size_t>(kElements));
  ASSERT_TRUE(from.is_mapped() && to.is_mapped());
  const CacheLayout nhd = PagedNhd(kMany, kRows, kWide, kChannels);
  const CacheLayout hnd = PagedHnd(kMany, kRows, kWide, kChannels);
  MovePagesArguments arguments;
  arguments.from = {FormatOf(DType::kInt8), kWide, kChannels, from.data()};
  arguments.from.spec.layout = nhd;
  arguments.to = {FormatOf(DType::kInt8), kWide, kChannels, to.data()};
  arguments.to.spec.layout = hnd;
  const std::vector<int64_t> pairs = {kMany - 1, 70000, 0, kMany - 1, 70001, 3};
  arguments.count = 3;
  arguments.pairs = pairs.data();
  for (size_t i = 0; i < 6; i += 2) {
    from.data()[nhd.AddressOf(pairs[i] * kRows + 77, 2, 99)] = static_cast<char>(i + 1);
  }
  ASSERT_TRUE(CopyPages(arguments).ok());
  for (size_t i = 0; i < 6; i += 2) {
    EXPECT_EQ(to.data()[hnd.AddressOf(pairs[i + 1] * kRows + 77, 2, 99)], static_cast<char>(i + 1));
  }
}

}  // namespace
}  // namespace qkvfuse::testing
