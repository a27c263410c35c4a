// Copies 16-bit heads bit for bit, signalling NaN included.
#include "kernels/copy.h"

#include <algorithm>
#include <cstring>

namespace qkvfuse::kernels {
namespace {

const uint16_t* SourceHead(const GroupTask& task, int64_t token, int64_t head) {
  return static_cast<const uint16_t*>(task.source.data) + token * task.source.token_stride +
         head * task.source.head_stride;
}

uint16_t* DestinationHead(const Destination& to, int64_t token, int64_t cache_row, int64_t head) {
  return static_cast<uint16_t*>(to.data) + HeadOffset(to, token, cache_row, head);
}

void CopyChannels(const uint16_t* from, int64_t from_stride, uint16_t* to, int64_t to_stride,
                  int64_t count) {
  if (from_stride == 1 && to_stride == 1) {
    std::memcpy(to, from, static_cast<size_t>(count) * sizeof(uint16_t));
    return;
  }
  for (int64_t i = 0; i < count; ++i) to[i * to_stride] = from[i * from_stride];
}

/// Copies one head to its row of `to`, whatever the strides.
void CopyHead(const GroupTask& task, const Destination& to, int64_t token, int64_t head,
              int64_t cache_row) {
  const Source& source = task.source;
  const uint16_t* const from = SourceHead(task, token, head);
  uint16_t* const row = DestinationHead(to, token, cache_row, head);
  const int64_t chunk = to.channel_chunk == 0 ? task.head_dim : to.channel_chunk;
  for (int64_t channel = 0; channel < task.head_dim; channel += chunk) {
    CopyChannels(from + channel * source.channel_stride, source.channel_stride,
                 row + channel / chunk * to.channel_chunk_stride, to.channel_stride,
                 std::min(chunk, task.head_dim - channel));
  }
}

/// Whether the heads of a token lie next to each other on both sides: one run of bytes.
bool IsOneRun(const GroupTask& task, const Destination& to) {
  const Source& source = task.source;
  const int64_t head_dim = task.head_dim;
  return source.channel_stride == 1 && to.channel_stride == 1 && source.head_stride == head_dim &&
         to.head_stride == head_dim && (to.channel_chunk == 0 || to.channel_chunk == head_dim);
}

/// A head piece by piece: the size of a copy is known, which spares a call for each.
void CopyPieces(const uint16_t* from, int64_t head_dim, const int64_t* pieces, uint16_t* row) {
  char* const to = reinterpret_cast<char*>(row);
  for (int64_t piece = 0; piece < head_dim / kPieceChannels; ++piece) {
    std::memcpy(to + pieces[piece], from + piece * kPieceChannels,
                kPieceChannels * sizeof(uint16_t));
  }
}

void CopyTo(const GroupTask& task, const Tile& tile, const Destination& to) {
  const auto is_skipped = [&](int64_t i) {
    return to.is_cache && tile.cache_rows[i] == kSkippedRow;
  };
  if (IsOneRun(task, to)) {
    const auto bytes = static_cast<size_t>(tile.heads * task.head_dim) * sizeof(uint16_t);
    for (int64_t i = 0; i < tile.tokens; ++i) {
      if (is_skipped(i)) continue;
      const uint16_t* const from = SourceHead(task, tile.first_token + i, tile.first_head);
      uint16_t* const row =
          DestinationHead(to, tile.first_token + i, tile.cache_rows[i], tile.first_head);
      if (from != row) std::memcpy(row, from, bytes);  // else in place
    }
    return;
  }
  const bool has_pieces = to.pieces != nullptr && task.source.channel_stride == 1;
  // Head by head: caches that keep pieces of a head's rows together are written line by line.
  for (int64_t head = tile.first_head; head < tile.first_head + tile.heads; ++head) {
    for (int64_t i = 0; i < tile.tokens; ++i) {
      if (is_skipped(i)) continue;
      const int64_t token = tile.first_token + i;
      const int64_t row = tile.cache_rows[i];
      const uint16_t* const from = SourceHead(task, token, head);
      uint16_t* const out = DestinationHead(to, token, row, head);
      if (from == out) continue;  // in place
      if (has_pieces) {
        CopyPieces(from, task.head_dim, to.pieces, out);
      } else {
        CopyHead(task, to, token, head, row);
      }
    }
  }
}

void CopyGroup(const GroupTask& task, const Tile& tile) {
  for (const Destination& to : task.dense) {
    if (to.data != nullptr) CopyTo(task, tile, to);
  }
}

}  // namespace

GroupKernel SelectCopy() { return &CopyGroup; }

}  // namespace qkvfuse::kernels
