// Copies heads bit for bit, signalling NaN included.
#include "kernels/copy.h"

#include <algorithm>
#include <cstring>

namespace qkvfuse::kernels {
namespace {

template <typename T>
const T* SourceHead(const GroupTask& task, int64_t token, int64_t head) {
  return static_cast<const T*>(task.source.data) + token * task.source.token_stride +
         head * task.source.head_stride;
}

template <typename T>
T* DestinationHead(const Destination& to, int64_t token, int64_t cache_row, int64_t head) {
  return static_cast<T*>(to.data) + HeadOffset(to, token, cache_row, head);
}

template <typename T>
void CopyChannels(const T* from, int64_t from_stride, T* to, int64_t to_stride, int64_t count) {
  if (from_stride == 1 && to_stride == 1) {
    std::memcpy(to, from, static_cast<size_t>(count) * sizeof(T));
    return;
  }
  for (int64_t i = 0; i < count; ++i) to[i * to_stride] = from[i * from_stride];
}

/// Copies one head to its row of `to`, whatever the strides.
template <typename T>
void CopyHead(const GroupTask& task, const Destination& to, int64_t token, int64_t head,
              int64_t cache_row) {
  const Source& source = task.source;
  const T* const from = SourceHead<T>(task, token, head);
  T* const row = DestinationHead<T>(to, token, cache_row, head);
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
template <typename T>
void CopyPieces(const T* from, int64_t head_dim, const int64_t* pieces, T* row) {
  char* const to = reinterpret_cast<char*>(row);
  for (int64_t piece = 0; piece < head_dim / kPieceChannels; ++piece) {
    std::memcpy(to + pieces[piece], from + piece * kPieceChannels, kPieceChannels * sizeof(T));
  }
}

template <typename T>
void CopyTo(const GroupTask& task, const Tile& tile, const Destination& to) {
  const auto is_skipped = [&](int64_t i) {
    return to.is_cache && tile.cache_rows[i] == kSkippedRow;
  };
  if (IsOneRun(task, to)) {
    const auto bytes = static_cast<size_t>(tile.heads * task.head_dim) * sizeof(T);
    for (int64_t i = 0; i < tile.tokens; ++i) {
      if (is_skipped(i)) continue;
      const T* const from = SourceHead<T>(task, tile.first_token + i, tile.first_head);
      T* const row =
          DestinationHead<T>(to, tile.first_token + i, tile.cache_rows[i], tile.first_head);
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
      const T* const from = SourceHead<T>(task, token, head);
      T* const out = DestinationHead<T>(to, token, row, head);
      if (from == out) continue;  // in place
      if (has_pieces) {
        CopyPieces(from, task.head_dim, to.pieces, out);
      } else {
        CopyHead<T>(task, to, token, head, row);
      }
    }
  }
}

template <typename T>
void CopyGroup(const GroupTask& task, const Tile& tile) {
  for (const Destination& to : task.dense) {
    if (to.data != nullptr) CopyTo<T>(task, tile, to);
  }
}

}  // namespace

GroupKernel SelectCopy(DType dtype) {
  return dtype == DType::kFloat32 ? &CopyGroup<uint32_t> : &CopyGroup<uint16_t>;
}

}  // namespace qkvfuse::kernels
