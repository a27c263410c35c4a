// Copies 16-bit heads bit for bit, signalling NaN included, and picks among the files of fused
// kernels.
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

SelectedKernels SelectFused(int64_t target, const KernelKey& key) {
  if (!key.unit_strides || key.head_dim % kPieceChannels != 0) return {};
  switch (key.source) {
    case SourceKind::kHalf:
      if (key.store != DType::kFloat16 || key.table != DType::kFloat16) return {};
      return SelectFusedHalf(target, key);
    case SourceKind::kBFloat16:
      if (key.store != DType::kBFloat16 || key.table != DType::kBFloat16) return {};
      return SelectFusedBFloat16(target, key);
    case SourceKind::kInt32:
    case SourceKind::kInt32IntBias:
    case SourceKind::kInt32FloatBias:
      if (key.store != key.table) return {};
      return SelectFusedInt32(target, key);
    case SourceKind::kFloat:
      return {};
  }
  return {};
}

}  // namespace qkvfuse::kernels
