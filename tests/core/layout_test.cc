// Addresses of every layout preset against tables worked out by hand from its documented shape.
#include <gtest/gtest.h>

#include <set>

#include "plan/cache_layout.h"

namespace qkvfuse {
namespace {

struct Element {
  int64_t slot, head, channel, address;
};

int64_t AddressOf(const CacheLayout& layout, const Element& e) {
  const int64_t row = RowOffset(layout, e.slot / layout.block_size, e.slot % layout.block_size);
  const int64_t chunk = layout.channel_chunk == 0 ? 1 << 20 : layout.channel_chunk;
  return row + e.head * layout.head_stride + e.channel / chunk * layout.channel_chunk_stride +
         e.channel % chunk * layout.channel_stride;
}

void ExpectAddresses(const CacheLayout& layout, std::initializer_list<Element> elements) {
  for (const Element& e : elements) {
    EXPECT_EQ(AddressOf(layout, e), e.address)
        << layout.name << " slot " << e.slot << " head " << e.head << " channel " << e.channel;
  }
}

/// Every element of a dense cache has an address of its own, and they fill it.
void ExpectFills(const CacheLayout& layout, int64_t heads, int64_t head_dim) {
  std::set<int64_t> seen;
  for (int64_t slot = 0; slot < layout.slots(); ++slot) {
    for (int64_t head = 0; head < heads; ++head) {
      for (int64_t channel = 0; channel < head_dim; ++channel) {
        seen.insert(AddressOf(layout, {slot, head, channel, 0}));
      }
    }
  }
  const int64_t count = layout.slots() * heads * head_dim;
  EXPECT_EQ(static_cast<int64_t>(seen.size()), count) << layout.name;
  EXPECT_EQ(*seen.begin(), 0) << layout.name;
  EXPECT_EQ(*seen.rbegin(), count - 1) << layout.name;
}

TEST(Layout, PaNz16) {
  // [3 blocks, 1 head * 64/16 = 4, 48 rows, 16].
  const CacheLayout layout = PaNz(3, 48, 1, 64, 16);
  ExpectAddresses(
      layout,
      {{47, 0, 0, 752}, {48, 0, 0, 3072}, {95, 0, 0, 3824}, {96, 0, 0, 6144}, {100, 0, 17, 6977}});
  ExpectFills(PaNz(2, 4, 3, 32, 16), 3, 32);
}

TEST(Layout, PaNz32) {
  // [2 blocks, 2 heads * 64/32 = 4, 32 rows, 32]: head 1 begins at 2*32*32.
  const CacheLayout layout = PaNz(2, 32, 2, 64, 32);
  ExpectAddresses(layout, {{0, 0, 31, 31},
                           {0, 0, 32, 1024},
                           {1, 0, 33, 1057},
                           {3, 1, 0, 2048 + 96},
                           {33, 1, 63, 4096 + 3 * 1024 + 32 + 31}});
  ExpectFills(PaNz(2, 3, 2, 64, 32), 2, 64);
}

TEST(Layout, PagedAndContiguous) {
  // [4 blocks, 8 rows, 2 heads, 6].
  for (const CacheLayout& layout : {PagedNhd(4, 8, 2, 6), ContiguousBsnd(4, 8, 2, 6)}) {
    ExpectAddresses(layout, {{0, 1, 5, 11}, {7, 0, 0, 84}, {8, 0, 0, 96}, {31, 1, 5, 383}});
    ExpectFills(layout, 2, 6);
  }
}

TEST(Layout, RowChunks) {
  // Rows in chunks of 4 that lie 1000 apart, as a layout that splits the token has them.
  CacheLayout layout = PagedNhd(1, 8, 1, 10);
  layout.row_chunk = 4;
  layout.row_chunk_stride = 1000;
  layout.row_stride = 1;
  layout.channel_stride = 4;
  ExpectAddresses(layout, {{3, 0, 0, 3}, {4, 0, 0, 1000}, {6, 0, 2, 1010}});
}

TEST(Layout, PieceTable) {
  EXPECT_EQ(PieceTable(64, 1, 0, 0), (std::vector<int64_t>{0, 16, 32, 48}));
  EXPECT_EQ(PieceTable(64, 2, 16, 500), (std::vector<int64_t>{0, 1000, 2000, 3000}));
  EXPECT_EQ(PieceTable(64, 1, 32, 500), (std::vector<int64_t>{0, 16, 500, 516}));
}

}  // namespace
}  // namespace qkvfuse
