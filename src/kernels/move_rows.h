// Moves rows from one cache to another, between layouts and types. A dense tensor is a cache of one
// block.
#pragma once

#include "kernels/row_codes.h"
#include "qkvfuse/cache_layout.hpp"

namespace qkvfuse::kernels {

/// One of the two caches; the one that is read is not written.
struct MoveSide {
  CodeFormat format;
  CacheLayout layout;
  char* data = nullptr;
  CacheLayout scale_layout;  // kDynamic
  float* scale_cache = nullptr;
};

struct Move {
  MoveSide from;
  MoveSide to;
  int64_t heads = 0;
  int64_t head_dim = 0;
  bool copies_bits = false;  // the codes of both sides mean the same
};

/// Slots of a row on both sides. A negative `from` writes zeros.
struct RowPair {
  int64_t from;
  int64_t to;
};

// Rows that are moved together, head by head: where rows are innermost they share cache lines.
inline constexpr int64_t kMoveRows = 32;

/// Moves up to kMoveRows rows.
void MoveRows(const Move& move, const RowPair* rows, int64_t count) noexcept;

}  // namespace qkvfuse::kernels
