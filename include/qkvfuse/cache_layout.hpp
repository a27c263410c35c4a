// Where a KV cache keeps element (slot, head, channel): one stride descriptor for every engine's
// layout, and the named presets. See docs/cache_layouts.md for drawings.
#pragma once

#include <cstdint>

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

}  // namespace qkvfuse
