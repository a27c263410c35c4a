// Copies 16-bit heads bit for bit, signalling NaN included.
#include "kernels/copy.h"

#include <algorithm>
#include <cstring>

namespace qkvfuse::kernels {
namespace {

void CopyGroup(const GroupTask& task, const Tile& tile) {
  for (int64_t i = 0; i < tile.tokens; ++i) {
    const int64_t row = tile.cache_rows[i];
    for (const Destination& to : task.dense) {
      if (to.data == nullptr || (to.is_cache && row == kSkippedRow)) continue;
      for (int64_t head = tile.first_head; head < tile.first_head + tile.heads; ++head) {
        CopyHead(task, to, tile.first_token + i, head, row);
      }
    }
  }
}

void CopyChannels(const uint16_t* from, int64_t from_stride, uint16_t* to, int64_t to_stride,
                  int64_t count) {
  if (from_stride == 1 && to_stride == 1) {
    std::memcpy(to, from, static_cast<size_t>(count) * sizeof(uint16_t));
    return;
  }
  for (int64_t i = 0; i < count; ++i) to[i * to_stride] = from[i * from_stride];
}

}  // namespace

void CopyHead(const GroupTask& task, const Destination& to, int64_t token, int64_t head,
              int64_t cache_row) {
  const Source& source = task.source;
  const uint16_t* const from = static_cast<const uint16_t*>(source.data) +
                               token * source.token_stride + head * source.head_stride;
  uint16_t* const row = static_cast<uint16_t*>(to.data) +
                        (to.is_cache ? cache_row : token * to.token_stride) + head * to.head_stride;
  if (from == row) return;  // in place
  const int64_t chunk = to.channel_chunk == 0 ? task.head_dim : to.channel_chunk;
  for (int64_t channel = 0; channel < task.head_dim; channel += chunk) {
    CopyChannels(from + channel * source.channel_stride, source.channel_stride,
                 row + channel / chunk * to.channel_chunk_stride, to.channel_stride,
                 std::min(chunk, task.head_dim - channel));
  }
}

GroupKernel SelectCopy() { return &CopyGroup; }

}  // namespace qkvfuse::kernels
