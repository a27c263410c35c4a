// Exact overlap test of strided views, by a bounded search: cheap where the strides nest (each at
// least the extent of the ones below), and "unknown" when the search would take too long.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace qkvfuse {

/// Bytes that a strided tensor occupies.
struct ByteView {
  static constexpr int kMaxAxes = 8;

  int64_t base = 0;  // address of the element with all indices 0
  int64_t element_bytes = 1;
  int axes = 0;
  std::array<int64_t, kMaxAxes> sizes{};    // at least 1
  std::array<int64_t, kMaxAxes> strides{};  // bytes

  /// Adds an axis; axes of one element do not matter and are dropped.
  void Add(int64_t size, int64_t stride_bytes) noexcept {
    if (size == 1) return;
    sizes[static_cast<size_t>(axes)] = size;
    strides[static_cast<size_t>(axes)] = stride_bytes;
    ++axes;
  }

  /// First byte, and one past the last. Extents must not overflow (CheckExtents).
  [[nodiscard]] int64_t begin() const noexcept;
  [[nodiscard]] int64_t end() const noexcept;
};

enum class Overlap { kNone, kSome, kUnknown };

/// Whether two views share a byte.
[[nodiscard]] Overlap Intersect(const ByteView& a, const ByteView& b) noexcept;

/// Whether two different elements of a view share a byte.
[[nodiscard]] Overlap OverlapsItself(const ByteView& view) noexcept;

}  // namespace qkvfuse
