// Reading caches back and moving their pages: gather rows as dense floats, copy blocks, convert
// blocks between layouts and types. The arithmetic, to the bit: docs/reading_back.md.
#pragma once

#include <cstdint>
#include <optional>

#include "qkvfuse/export.hpp"
#include "qkvfuse/plan.hpp"
#include "qkvfuse/specs.hpp"
#include "qkvfuse/status.hpp"
#include "qkvfuse/tensor.hpp"

namespace qkvfuse {

/// A cache in memory: what its elements mean and where they are. Pointers that the spec does not
/// use are ignored. Only the `to` of a copy or conversion is written.
struct CacheView {
  CacheSpec spec;                // fp32, fp16, bf16, int8 or fp8
  int64_t heads = 0;             // 1 to 65536
  int64_t head_dim = 0;          // 1 to 1024
  void* data = nullptr;          // spec.layout
  const void* scale = nullptr;   // fp32, spec.scale_shape: 8-bit types without dynamic scales
  const void* offset = nullptr;  // fp32, spec.offset_shape: with spec.has_offset
  void* scale_cache = nullptr;   // fp32, spec.scale_layout: dynamic scales
};

struct ReadCacheArguments {
  CacheView cache;
  /// kSlotPerToken: row i of `out` is slot slots[i], zeros where that is negative. kPageTable: the
  /// first lengths[b] rows of the blocks slots[b, 0], slots[b, 1], ... go to the rows of `out` from
  /// row_offsets[b] on; the sequences must lie there in order and apart. Slots may repeat.
  SlotSpec slot_spec;
  int64_t rows = 0;                   // of `out`
  int64_t sequences = 0;              // kPageTable only
  const void* slots = nullptr;        // [rows] slots, or [sequences, pages] blocks
  const void* lengths = nullptr;      // [sequences], kPageTable
  const void* row_offsets = nullptr;  // [sequences], kPageTable; null: one after another from row 0

  DType dtype = DType::kBFloat16;           // of `out`: fp32, fp16 or bf16
  std::optional<TokenStrides> out_strides;  // a row is a token; packed where absent
  void* out = nullptr;                      // [rows, heads, head_dim]
};

/// Reads rows of a cache as floats. Rows of `out` that no sequence names keep their bytes.
[[nodiscard]] QKVFUSE_API Status ReadCache(const ReadCacheArguments& arguments,
                                           const RunOptions& options = {}) noexcept;

/// Blocks to move between two caches of the same heads, head_dim and block_size. Every destination
/// is named once.
struct MovePagesArguments {
  CacheView from;
  CacheView to;
  int64_t count = 0;
  DType dtype = DType::kInt64;  // of pairs: int64 or int32
  const void* pairs = nullptr;  // [count, 2]: a block of `from`, the block of `to` it goes to
};

/// Copies blocks bit for bit, dynamic scales included, between caches of one type; their layouts
/// may differ. Scales that are not dynamic are not looked at. Both may be the same cache, unless a
/// block is a source and a destination.
[[nodiscard]] QKVFUSE_API Status CopyPages(const MovePagesArguments& arguments,
                                           const RunOptions& options = {}) noexcept;

/// Converts blocks to the type, scales and layout of `to`: reads each value as ReadCache does, in
/// fp32, and writes it as the operators do. Caches whose codes mean the same (equal types; dynamic
/// scales on both sides, or scales and offsets in the same memory) are copied bit for bit. `to`
/// shares no memory with `from`.
[[nodiscard]] QKVFUSE_API Status ConvertPages(const MovePagesArguments& arguments,
                                              const RunOptions& options = {}) noexcept;

}  // namespace qkvfuse
