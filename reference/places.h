// Where the elements of a call lie: views, and the rows and elements of caches.
#pragma once

#include <cstddef>
#include <cstring>
#include <initializer_list>

#include "reference/fused_problem.h"

namespace qkvfuse::reference {

/// Head `head` of a part, for token `sequence` of batch entry `batch`.
struct HeadPosition {
  int64_t batch;
  int64_t sequence;
  int64_t token;  // over the whole batch
  int64_t head;
};

[[nodiscard]] inline bool IsPresent(const TensorView& view) { return view.data != nullptr; }

[[nodiscard]] std::byte* Element(const TensorView& view, std::initializer_list<int64_t> index);

/// The element that is the `position`th in row-major order.
[[nodiscard]] std::byte* Element(const TensorView& view, int64_t position);

template <typename T>
[[nodiscard]] T Read(const std::byte* address) {
  T value;
  std::memcpy(&value, address, sizeof(T));
  return value;
}

/// An element of int32 or int64.
[[nodiscard]] int64_t ReadIndex(const TensorView& view, int64_t position);

/// The sequence of a page table that a token belongs to.
[[nodiscard]] int64_t SequenceOf(const FusedProblem& p, int64_t token);

/// Where a page table has a row of a sequence.
[[nodiscard]] CacheRow PageRow(const FusedProblem& p, int64_t b, int64_t row);

/// The caches' row of a token; block is negative where it is skipped.
[[nodiscard]] CacheRow RowOf(const FusedProblem& p, const HeadPosition& at);

[[nodiscard]] std::byte* CacheElement(const FusedOutput& cache, int64_t head_dim, CacheRow to,
                                      int64_t head, int64_t d);

}  // namespace qkvfuse::reference
