// Which rows a move takes where: lists of slots, page tables and pairs of blocks, checked against
// the caches and resolved tile by tile.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/move_rows.h"
#include "plan/index_reader.h"
#include "qkvfuse/status.hpp"

namespace qkvfuse::internal {

/// The rows of a move, by number.
class RowMap {
 public:
  virtual ~RowMap() = default;
  [[nodiscard]] virtual int64_t rows() const noexcept = 0;
  /// Slots of rows [first, first + count) on both sides.
  virtual void Resolve(int64_t first, int64_t count, kernels::RowPair* pairs) const noexcept = 0;
};

/// One row per slot of a list; a negative slot stands for zeros.
class SlotRows final : public RowMap {
 public:
  SlotRows(IndexReader slots, int64_t rows) noexcept : slots_(slots), rows_(rows) {}

  [[nodiscard]] Status Check(const CacheLayout& cache) const;
  [[nodiscard]] int64_t rows() const noexcept override { return rows_; }
  void Resolve(int64_t first, int64_t count, kernels::RowPair* pairs) const noexcept override;

 private:
  IndexReader slots_;
  int64_t rows_;
};

/// The first rows of sequences that a page table describes.
struct PageTable {
  IndexReader pages;  // of sequence 0; strides as SlotSpec has them
  int64_t sequence_stride = 0;
  int64_t pages_per_sequence = 0;
  int64_t sequences = 0;
  IndexReader lengths;
  IndexReader row_offsets;  // data is null: one sequence after another
};

class PageTableRows final : public RowMap {
 public:
  explicit PageTableRows(const PageTable& table) : table_(table) {}

  /// Looks at all numbers, which end in `rows` rows, and remembers where each sequence begins.
  [[nodiscard]] Status Check(const CacheLayout& cache, int64_t rows);
  [[nodiscard]] int64_t rows() const noexcept override { return starts_.back(); }
  void Resolve(int64_t first, int64_t count, kernels::RowPair* pairs) const noexcept override;

 private:
  [[nodiscard]] Status CheckLengths(int64_t rows);
  [[nodiscard]] Status CheckOffsets(int64_t rows) const;
  [[nodiscard]] Status CheckPages(const CacheLayout& cache) const;
  [[nodiscard]] int64_t Page(int64_t sequence, int64_t page) const noexcept;

  PageTable table_;
  int64_t block_size_ = 1;
  std::vector<int64_t> starts_{0};  // rows of the sequences before each; one more for the end
};

/// All rows of pairs of blocks.
class BlockRows final : public RowMap {
 public:
  BlockRows(IndexReader pairs, int64_t count, int64_t block_size) noexcept
      : pairs_(pairs), count_(count), block_size_(block_size) {}

  /// With `is_one_cache` no block may be a source and a destination.
  [[nodiscard]] Status Check(const CacheLayout& from, const CacheLayout& to,
                             bool is_one_cache) const;
  [[nodiscard]] int64_t rows() const noexcept override { return count_ * block_size_; }
  void Resolve(int64_t first, int64_t count, kernels::RowPair* pairs) const noexcept override;

 private:
  [[nodiscard]] Status CheckRanges(const CacheLayout& from, const CacheLayout& to) const;
  [[nodiscard]] Status CheckRepeats(bool is_one_cache) const;

  IndexReader pairs_;  // a source, its destination, the next source, ...
  int64_t count_;
  int64_t block_size_;
};

}  // namespace qkvfuse::internal
