// Where a KV cache keeps element (slot, head, channel): one stride descriptor for every engine's
// layout, and the named presets. See docs/cache_layouts.md for drawings.
#pragma once

#include <cstdint>
#include <initializer_list>

namespace qkvfuse {

/// A slot names a row of the cache: block = slot / block_size, row = slot % block_size. The element
/// (block, row, head, channel) lies at
///
///   block*block_stride + head*head_stride
///     + (row / row_chunk)*row_chunk_stride + (row % row_chunk)*row_stride
///     + (channel / channel_chunk)*channel_chunk_stride + (channel % channel_chunk)*channel_stride
///
/// elements from the cache's first one. A chunk of 0 means "not chunked": the outer term is absent.
struct CacheLayout {
  int64_t blocks = 0;
  int64_t block_size = 0;  // rows of a block
  int64_t block_stride = 0;
  int64_t head_stride = 0;
  int64_t row_chunk = 0;
  int64_t row_chunk_stride = 0;
  int64_t row_stride = 0;
  int64_t channel_chunk = 0;
  int64_t channel_chunk_stride = 0;
  int64_t channel_stride = 1;
  const char* name = "strided";  // for people; copied by MakePlan

  /// Slots that the cache has. As the sizes and strides below, a product that has to fit 64 bits.
  [[nodiscard]] constexpr int64_t slots() const noexcept { return blocks * block_size; }

  /// The formula above: elements from the cache's first one.
  [[nodiscard]] constexpr int64_t AddressOf(int64_t slot, int64_t head,
                                            int64_t channel) const noexcept {
    const int64_t row = slot % block_size;
    int64_t address = slot / block_size * block_stride + head * head_stride;
    if (row_chunk == 0) {
      address += row * row_stride;
    } else {
      address += row / row_chunk * row_chunk_stride + row % row_chunk * row_stride;
    }
    if (channel_chunk == 0) return address + channel * channel_stride;
    return address + channel / channel_chunk * channel_chunk_stride +
           channel % channel_chunk * channel_stride;
  }

  /// Compares names by address: equal layouts of one preset are equal.
  bool operator==(const CacheLayout&) const = default;
};

/// PA_NZ, [blocks, heads*head_dim/chunk, block_size, chunk]: the layout of Ascend's attention.
/// chunk is 32 for an int8 cache and 16 for a 16-bit one, and divides head_dim.
[[nodiscard]] constexpr CacheLayout PaNz(int64_t blocks, int64_t block_size, int64_t heads,
                                         int64_t head_dim, int64_t chunk) noexcept {
  CacheLayout layout;
  layout.blocks = blocks;
  layout.block_size = block_size;
  layout.block_stride = heads * head_dim * block_size;
  layout.head_stride = head_dim * block_size;
  layout.row_stride = chunk;
  layout.channel_chunk = chunk;
  layout.channel_chunk_stride = block_size * chunk;
  layout.name = "PA_NZ";
  return layout;
}

/// Paged NHD, [blocks, block_size, heads, head_dim].
[[nodiscard]] constexpr CacheLayout PagedNhd(int64_t blocks, int64_t block_size, int64_t heads,
                                             int64_t head_dim) noexcept {
  CacheLayout layout;
  layout.blocks = blocks;
  layout.block_size = block_size;
  layout.block_stride = block_size * heads * head_dim;
  layout.head_stride = head_dim;
  layout.row_stride = heads * head_dim;
  layout.name = "paged NHD";
  return layout;
}

/// Contiguous BSND, [batch, rows, heads, head_dim]: a block is the cache of one sequence.
[[nodiscard]] constexpr CacheLayout ContiguousBsnd(int64_t batch, int64_t rows, int64_t heads,
                                                   int64_t head_dim) noexcept {
  CacheLayout layout = PagedNhd(batch, rows, heads, head_dim);
  layout.name = "contiguous BSND";
  return layout;
}

/// Paged HND, [blocks, heads, block_size, head_dim]: FlashInfer's "HND".
[[nodiscard]] constexpr CacheLayout PagedHnd(int64_t blocks, int64_t block_size, int64_t heads,
                                             int64_t head_dim) noexcept {
  CacheLayout layout;
  layout.blocks = blocks;
  layout.block_size = block_size;
  layout.block_stride = heads * block_size * head_dim;
  layout.head_stride = block_size * head_dim;
  layout.row_stride = head_dim;
  layout.name = "paged HND";
  return layout;
}

/// Contiguous BNSD, [batch, heads, rows, head_dim]: a block is the cache of one sequence.
[[nodiscard]] constexpr CacheLayout ContiguousBnsd(int64_t batch, int64_t rows, int64_t heads,
                                                   int64_t head_dim) noexcept {
  CacheLayout layout = PagedHnd(batch, rows, heads, head_dim);
  layout.name = "contiguous BNSD";
  return layout;
}

/// K split by x channels, [blocks, heads, head_dim/x, block_size, x]: vLLM's paged attention and
/// AITER's shuffled K, x = 16 bytes of channels. x divides head_dim. Addresses are PA_NZ's.
[[nodiscard]] constexpr CacheLayout XSplitK(int64_t blocks, int64_t block_size, int64_t heads,
                                            int64_t head_dim, int64_t x) noexcept {
  CacheLayout layout = PaNz(blocks, block_size, heads, head_dim, x);
  layout.name = "x-split K";
  return layout;
}

/// Rows innermost, [blocks, heads, head_dim, block_size]: the V that goes with XSplitK in vLLM's
/// paged attention, and a K that is stored transposed.
[[nodiscard]] constexpr CacheLayout Transposed(int64_t blocks, int64_t block_size, int64_t heads,
                                               int64_t head_dim) noexcept {
  CacheLayout layout = PagedHnd(blocks, block_size, heads, head_dim);
  layout.row_stride = 1;
  layout.channel_stride = block_size;
  layout.name = "transposed";
  return layout;
}

/// V split by x rows, [blocks, heads, block_size/x, head_dim, x]: AITER's shuffled V, which goes
/// with XSplitK; x = 16 bytes of rows. x divides block_size.
[[nodiscard]] constexpr CacheLayout ShuffledV(int64_t blocks, int64_t block_size, int64_t heads,
                                              int64_t head_dim, int64_t x) noexcept {
  CacheLayout layout = PagedHnd(blocks, block_size, heads, head_dim);
  layout.row_chunk = x;
  layout.row_chunk_stride = head_dim * x;
  layout.row_stride = 1;
  layout.channel_stride = x;
  layout.name = "shuffled V";
  return layout;
}

/// A pool of tokens, [tokens, heads, head_dim], as SGLang has it: blocks of one row.
[[nodiscard]] constexpr CacheLayout TokenPool(int64_t tokens, int64_t heads,
                                              int64_t head_dim) noexcept {
  CacheLayout layout = PagedNhd(tokens, 1, heads, head_dim);
  layout.name = "token pool";
  return layout;
}

/// K and V in turn in one buffer, `run` elements of each: every `run` elements of a dense layout
/// are followed by as many of the other cache, whose first element is element `run` of the buffer.
/// run = block_stride: [blocks, 2, ...]; heads*head_dim of paged NHD: [blocks, block_size, 2,
/// heads, head_dim]; head_dim: [..., 2, head_dim].
[[nodiscard]] constexpr CacheLayout InTurn(CacheLayout layout, int64_t run) noexcept {
  for (int64_t* const stride :
       {&layout.block_stride, &layout.head_stride, &layout.row_chunk_stride, &layout.row_stride,
        &layout.channel_chunk_stride, &layout.channel_stride}) {
    if (*stride >= run) *stride *= 2;
  }
  return layout;
}

/// Dynamic scales, one fp32 for each row and head: [blocks, block_size, heads].
[[nodiscard]] constexpr CacheLayout ScalesNh(int64_t blocks, int64_t block_size,
                                             int64_t heads) noexcept {
  CacheLayout layout = PagedNhd(blocks, block_size, heads, 1);
  layout.name = "scales NH";
  return layout;
}

/// Dynamic scales, one fp32 for each row and head: [blocks, heads, block_size].
[[nodiscard]] constexpr CacheLayout ScalesHn(int64_t blocks, int64_t block_size,
                                             int64_t heads) noexcept {
  CacheLayout layout = PagedHnd(blocks, block_size, heads, 1);
  layout.name = "scales HN";
  return layout;
}

}  // namespace qkvfuse
