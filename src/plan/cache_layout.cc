#include "plan/cache_layout.h"

#include "base/checked_math.h"
#include "base/message.h"
#include "kernels/kernels.h"

namespace qkvfuse {

Status CheckLayout(const CacheLayout& layout, const char* name, int64_t head_dim) {
  if (layout.blocks < 1) {
    return Invalid(name, ": has ", layout.blocks, " blocks, must have at least 1");
  }
  if (layout.block_size < 1) {
    return Invalid(name, ": block_size is ", layout.block_size, ", must be at least 1");
  }
  int64_t slots = 0;
  if (!CheckedMul(layout.blocks, layout.block_size, &slots)) {
    return Invalid(name, ": ", layout.blocks, " blocks of ", layout.block_size,
                   " rows are more than 2^63 slots");
  }
  if (layout.channel_chunk < 0 ||
      (layout.channel_chunk > 0 && head_dim % layout.channel_chunk != 0)) {
    return Invalid(name, ": head_dim ", head_dim, " is not a multiple of ", layout.channel_chunk,
                   ", the channel chunk of its ", layout.name, " layout");
  }
  if (layout.row_chunk < 0 || (layout.row_chunk > 0 && layout.block_size % layout.row_chunk != 0)) {
    return Invalid(name, ": block_size ", layout.block_size, " is not a multiple of ",
                   layout.row_chunk, ", the row chunk of its ", layout.name, " layout");
  }
  return {};
}

std::vector<int64_t> PieceTable(int64_t head_dim, int64_t element_bytes, int64_t channel_chunk,
                                int64_t channel_chunk_stride) {
  std::vector<int64_t> pieces;
  for (int64_t channel = 0; channel < head_dim; channel += kernels::kPieceChannels) {
    const int64_t offset = channel_chunk == 0 ? channel
                                              : channel / channel_chunk * channel_chunk_stride +
                                                    channel % channel_chunk;
    pieces.push_back(offset * element_bytes);
  }
  return pieces;
}

}  // namespace qkvfuse
