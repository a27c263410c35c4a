// The address map of caches: validation, row offsets, and the piece tables of fused kernels.
#pragma once

#include <cstdint>
#include <vector>

#include "qkvfuse/cache_layout.hpp"
#include "qkvfuse/status.hpp"

namespace qkvfuse {

/// Element offset of a slot's row: of its head 0 and channel 0. The slot must be in the cache.
[[nodiscard]] inline int64_t RowOffset(const CacheLayout& layout, int64_t block,
                                       int64_t row) noexcept {
  const int64_t offset = block * layout.block_stride;
  if (layout.row_chunk == 0) return offset + row * layout.row_stride;
  return offset + row / layout.row_chunk * layout.row_chunk_stride +
         row % layout.row_chunk * layout.row_stride;
}

/// Whether the descriptor's sizes are in order and its chunks divide block_size and head_dim.
/// Strides are not judged here.
[[nodiscard]] Status CheckLayout(const CacheLayout& layout, const char* name, int64_t head_dim);

/// Byte offset of every 16 channels of a row of `head_dim` channels of `element_bytes` each.
[[nodiscard]] std::vector<int64_t> PieceTable(int64_t head_dim, int64_t element_bytes,
                                              int64_t channel_chunk, int64_t channel_chunk_stride);

}  // namespace qkvfuse
