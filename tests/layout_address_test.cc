// Addresses of the layout presets, worked out by hand from the array shape that the engine
// documents: index by index through its sizes, not through strides.
#include <gtest/gtest.h>

#include <vector>

#include "qkvfuse/cache_layout.hpp"

namespace qkvfuse {
namespace {

struct Element {
  int64_t slot, head, channel, address;
};

void ExpectAddresses(const CacheLayout& layout, const std::vector<Element>& elements) {
  for (const Element& e : elements) {
    EXPECT_EQ(layout.AddressOf(e.slot, e.head, e.channel), e.address)
        << layout.name << " slot " << e.slot << " head " << e.head << " channel " << e.channel;
  }
}

/// Counts how many elements lie at each address of an array of `size` elements.
std::vector<int> Uses(const CacheLayout& layout, int64_t heads, int64_t head_dim, int64_t size) {
  std::vector<int> uses(static_cast<size_t>(size));
  for (int64_t slot = 0; slot < layout.slots(); ++slot) {
    for (int64_t head = 0; head < heads; ++head) {
      for (int64_t channel = 0; channel < head_dim; ++channel) {
        ++uses.at(static_cast<size_t>(layout.AddressOf(slot, head, channel)));
      }
    }
  }
  return uses;
}

/// Every element of a dense cache has an address of its own, and they fill the array.
void ExpectFills(const CacheLayout& layout, int64_t heads, int64_t head_dim) {
  const int64_t size = layout.slots() * heads * head_dim;
  EXPECT_EQ(Uses(layout, heads, head_dim, size), std::vector<int>(static_cast<size_t>(size), 1))
      << layout.name;
}

/// K at the buffer's begin and V `run` elements later fill it together.
void ExpectFillsInTurn(const CacheLayout& layout, int64_t heads, int64_t head_dim, int64_t run) {
  const auto size = static_cast<size_t>(2 * layout.slots() * heads * head_dim);
  std::vector<int> uses = Uses(layout, heads, head_dim, static_cast<int64_t>(size));
  const std::vector<int> k = uses;
  for (size_t i = 0; i + static_cast<size_t>(run) < size; ++i) {
    uses[i + static_cast<size_t>(run)] += k[i];
  }
  EXPECT_EQ(uses, std::vector<int>(size, 1)) << layout.name << " run " << run;
}

// Ascend: [3 blocks, 2 heads * 8/4 = 4, 4 rows, 4]. A block has 64 elements, a chunk of channels
// 4 rows of 4; head 1 begins with the third chunk.
TEST(LayoutAddress, PaNz) {
  ExpectAddresses(PaNz(3, 4, 2, 8, 4), {{0, 0, 0, 0},
                                        {0, 0, 3, 3},
                                        {0, 0, 4, 16},
                                        {1, 0, 0, 4},
                                        {2, 0, 6, 16 + 8 + 2},
                                        {0, 1, 0, 32},
                                        {3, 1, 7, 63},
                                        {6, 1, 2, 106},
                                        {9, 0, 6, 150},
                                        {11, 1, 7, 191}});
  ExpectFills(PaNz(3, 4, 2, 8, 4), 2, 8);
}

// vLLM's flash layout: [3 blocks, 4 rows, 2 heads, 8].
TEST(LayoutAddress, PagedNhd) {
  ExpectAddresses(PagedNhd(3, 4, 2, 8), {{0, 0, 0, 0},
                                         {0, 0, 7, 7},
                                         {0, 1, 0, 8},
                                         {1, 0, 0, 16},
                                         {3, 1, 7, 63},
                                         {4, 0, 0, 64},
                                         {6, 1, 2, 106},
                                         {9, 0, 6, 150},
                                         {11, 1, 7, 191}});
  ExpectFills(PagedNhd(3, 4, 2, 8), 2, 8);
}

// [2 sequences, 6 rows, 3 heads, 4].
TEST(LayoutAddress, ContiguousBsnd) {
  ExpectAddresses(ContiguousBsnd(2, 6, 3, 4), {{0, 0, 3, 3},
                                               {0, 1, 0, 4},
                                               {1, 0, 0, 12},
                                               {4, 0, 2, 50},
                                               {5, 2, 3, 71},
                                               {6, 0, 0, 72},
                                               {7, 1, 2, 72 + 12 + 4 + 2},
                                               {11, 2, 3, 143}});
  ExpectFills(ContiguousBsnd(2, 6, 3, 4), 3, 4);
}

// FlashInfer's "HND": [3 blocks, 2 heads, 4 rows, 8]. A head of a block has 32 elements.
TEST(LayoutAddress, PagedHnd) {
  ExpectAddresses(PagedHnd(3, 4, 2, 8), {{0, 0, 0, 0},
                                         {0, 0, 5, 5},
                                         {1, 0, 0, 8},
                                         {0, 1, 0, 32},
                                         {3, 0, 7, 31},
                                         {3, 1, 7, 63},
                                         {4, 0, 0, 64},
                                         {6, 1, 2, 64 + 32 + 16 + 2},
                                         {9, 0, 6, 128 + 8 + 6},
                                         {11, 1, 7, 191}});
  ExpectFills(PagedHnd(3, 4, 2, 8), 2, 8);
}

// Static caches of inference frameworks: [2 sequences, 3 heads, 6 rows, 4]. A sequence has 72
// elements, a head of it 24.
TEST(LayoutAddress, ContiguousBnsd) {
  ExpectAddresses(ContiguousBnsd(2, 6, 3, 4), {{0, 0, 0, 0},
                                               {0, 0, 3, 3},
                                               {1, 0, 0, 4},
                                               {4, 0, 2, 18},
                                               {0, 1, 0, 24},
                                               {5, 2, 3, 71},
                                               {6, 0, 0, 72},
                                               {7, 1, 2, 72 + 24 + 4 + 2},
                                               {9, 2, 1, 72 + 48 + 12 + 1},
                                               {11, 2, 3, 143}});
  ExpectFills(ContiguousBnsd(2, 6, 3, 4), 3, 4);
}

// vLLM's paged attention and AITER's shuffled K: [3 blocks, 2 heads, 8/4 = 2, 4 rows, x = 4].
TEST(LayoutAddress, XSplitK) {
  ExpectAddresses(XSplitK(3, 4, 2, 8, 4), {{0, 0, 0, 0},
                                           {0, 0, 1, 1},
                                           {0, 0, 5, 17},
                                           {1, 0, 0, 4},
                                           {2, 0, 7, 16 + 8 + 3},
                                           {0, 1, 0, 32},
                                           {3, 1, 7, 63},
                                           {4, 0, 0, 64},
                                           {6, 1, 2, 64 + 32 + 8 + 2},
                                           {9, 0, 6, 128 + 16 + 4 + 2},
                                           {11, 1, 7, 191}});
  ExpectFills(XSplitK(3, 4, 2, 8, 4), 2, 8);
}

// V of vLLM's paged attention, and a transposed K: [3 blocks, 2 heads, 8, 4 rows].
TEST(LayoutAddress, Transposed) {
  ExpectAddresses(Transposed(3, 4, 2, 8), {{0, 0, 0, 0},
                                           {1, 0, 0, 1},
                                           {0, 0, 1, 4},
                                           {0, 0, 5, 20},
                                           {2, 0, 7, 30},
                                           {0, 1, 0, 32},
                                           {3, 1, 7, 63},
                                           {4, 0, 0, 64},
                                           {6, 1, 2, 64 + 32 + 8 + 2},
                                           {9, 0, 6, 128 + 24 + 1},
                                           {11, 1, 7, 191}});
  ExpectFills(Transposed(3, 4, 2, 8), 2, 8);
}

// AITER's shuffled V: [3 blocks, 2 heads, 4/2 = 2, 8, x = 2]. Two rows' channel c lie side by side;
// rows 2 and 3 of a block begin after the 16 elements of rows 0 and 1.
TEST(LayoutAddress, ShuffledV) {
  ExpectAddresses(ShuffledV(3, 4, 2, 8, 2), {{0, 0, 0, 0},
                                             {1, 0, 0, 1},
                                             {0, 0, 1, 2},
                                             {0, 0, 5, 10},
                                             {2, 0, 0, 16},
                                             {0, 1, 0, 32},
                                             {3, 1, 7, 63},
                                             {6, 1, 2, 64 + 32 + 16 + 4},
                                             {7, 0, 3, 64 + 16 + 6 + 1},
                                             {9, 0, 6, 128 + 12 + 1},
                                             {11, 1, 7, 191}});
  ExpectFills(ShuffledV(3, 4, 2, 8, 2), 2, 8);
}

// SGLang's token pool: [6 tokens, 2 heads, 4].
TEST(LayoutAddress, TokenPool) {
  ExpectAddresses(TokenPool(6, 2, 4), {{0, 0, 0, 0},
                                       {0, 0, 3, 3},
                                       {0, 1, 0, 4},
                                       {1, 0, 0, 8},
                                       {2, 1, 1, 16 + 4 + 1},
                                       {3, 0, 2, 26},
                                       {4, 1, 3, 39},
                                       {5, 1, 3, 47}});
  ExpectFills(TokenPool(6, 2, 4), 2, 4);
}

// FlashInfer's paged cache as one tensor, "NHD": [2 blocks, 2 (K, V), 3 rows, 2 heads, 4]. K and V
// of a block have 24 elements each.
TEST(LayoutAddress, BlocksInTurn) {
  const CacheLayout layout = InTurn(PagedNhd(2, 3, 2, 4), 24);
  ExpectAddresses(layout, {{0, 0, 0, 0},
                           {0, 1, 3, 7},
                           {1, 0, 2, 10},
                           {2, 1, 3, 23},
                           {3, 0, 0, 48},
                           {4, 0, 1, 48 + 8 + 1},
                           {4, 1, 1, 48 + 8 + 4 + 1},
                           {5, 1, 3, 48 + 23}});
  ExpectFillsInTurn(layout, 2, 4, 24);
}

// The same of "HND": [2 blocks, 2 (K, V), 2 heads, 3 rows, 4].
TEST(LayoutAddress, BlocksInTurnHnd) {
  const CacheLayout layout = InTurn(PagedHnd(2, 3, 2, 4), 24);
  ExpectAddresses(layout, {{0, 0, 0, 0},
                           {0, 1, 3, 12 + 3},
                           {1, 0, 2, 6},
                           {2, 1, 3, 23},
                           {3, 0, 0, 48},
                           {4, 0, 1, 48 + 4 + 1},
                           {4, 1, 1, 48 + 12 + 4 + 1},
                           {5, 1, 3, 48 + 23}});
  ExpectFillsInTurn(layout, 2, 4, 24);
}

// [2 blocks, 3 rows, 2 (K, V), 2 heads, 4]: a row of K and V together has 16 elements.
TEST(LayoutAddress, RowsInTurn) {
  const CacheLayout layout = InTurn(PagedNhd(2, 3, 2, 4), 8);
  ExpectAddresses(layout, {{0, 0, 0, 0},
                           {0, 1, 3, 7},
                           {1, 0, 2, 18},
                           {2, 1, 3, 39},
                           {3, 0, 0, 48},
                           {4, 0, 1, 48 + 16 + 1},
                           {4, 1, 1, 48 + 16 + 4 + 1},
                           {5, 1, 3, 48 + 32 + 7}});
  ExpectFillsInTurn(layout, 2, 4, 8);
}

// [2 blocks, 3 rows, 2 heads, 2 (K, V), 4]: a head of K and V together has 8 elements.
TEST(LayoutAddress, HeadsInTurn) {
  const CacheLayout layout = InTurn(PagedNhd(2, 3, 2, 4), 4);
  ExpectAddresses(layout, {{0, 0, 0, 0},
                           {0, 1, 3, 11},
                           {1, 0, 2, 18},
                           {2, 1, 3, 32 + 8 + 3},
                           {3, 0, 0, 48},
                           {4, 0, 1, 48 + 16 + 1},
                           {4, 1, 1, 48 + 16 + 8 + 1},
                           {5, 1, 3, 48 + 32 + 8 + 3}});
  ExpectFillsInTurn(layout, 2, 4, 4);
}

// The layouts with chunks: whole blocks in turn, and AITER's V of rows in chunks.
TEST(LayoutAddress, ChunksInTurn) {
  const CacheLayout k = InTurn(XSplitK(3, 4, 2, 8, 4), 64);
  ExpectAddresses(k, {{3, 1, 7, 63}, {4, 0, 0, 128}, {6, 1, 2, 128 + 32 + 8 + 2}});
  ExpectFillsInTurn(k, 2, 8, 64);
  const CacheLayout v = InTurn(ShuffledV(3, 4, 2, 8, 2), 64);
  ExpectAddresses(v, {{3, 1, 7, 63}, {4, 0, 0, 128}, {6, 1, 2, 128 + 32 + 16 + 4}});
  ExpectFillsInTurn(v, 2, 8, 64);
}

// One fp32 for each row and head: [2 blocks, 3 rows, 2 heads].
TEST(LayoutAddress, ScalesNh) {
  ExpectAddresses(
      ScalesNh(2, 3, 2),
      {{0, 0, 0, 0}, {0, 1, 0, 1}, {1, 0, 0, 2}, {2, 1, 0, 5}, {3, 0, 0, 6}, {4, 1, 0, 9}});
  ExpectFills(ScalesNh(2, 3, 2), 2, 1);
}

// [2 blocks, 2 heads, 3 rows], as AITER has the scales of a row and head.
TEST(LayoutAddress, ScalesHn) {
  ExpectAddresses(
      ScalesHn(2, 3, 2),
      {{0, 0, 0, 0}, {0, 1, 0, 3}, {1, 0, 0, 1}, {2, 1, 0, 5}, {3, 0, 0, 6}, {4, 1, 0, 10}});
  ExpectFills(ScalesHn(2, 3, 2), 2, 1);
}

// Presets can be compared and made at compile time; names keep them apart.
static_assert(XSplitK(2, 4, 2, 8, 4) == XSplitK(2, 4, 2, 8, 4));
static_assert(Transposed(2, 4, 2, 8).AddressOf(7, 1, 7) == 127);

}  // namespace
}  // namespace qkvfuse
