// A strided tensor as sizes and strides: whether its extent fits, its bytes as a view, and the
// sentences about overlaps.
#pragma once

#include <array>
#include <initializer_list>
#include <string_view>

#include "plan/overlap.h"
#include "qkvfuse/cache_layout.hpp"
#include "qkvfuse/dtype.hpp"
#include "qkvfuse/status.hpp"
#include "qkvfuse/tensor.hpp"

namespace qkvfuse {

// Keeps sums and differences of extents inside 64 bits.
inline constexpr int64_t kMaxExtentBytes = int64_t{1} << 60;

/// An axis of a tensor; strides in elements.
struct Axis {
  int64_t size;
  int64_t stride;
};

/// Axes of a tensor.
struct Axes {
  static constexpr int kMax = kMaxRank;
  std::array<int64_t, kMax> sizes{};
  std::array<int64_t, kMax> strides{};
  int count = 0;

  Axes() = default;
  Axes(std::initializer_list<Axis> axes) noexcept {
    for (const Axis& axis : axes) Add(axis.size, axis.stride);
  }

  /// The stride of an axis of one element does not matter and may be anything.
  void Add(int64_t size, int64_t stride) noexcept {
    if (size == 1) return;
    sizes[static_cast<size_t>(count)] = size;
    strides[static_cast<size_t>(count)] = stride;
    ++count;
  }

  /// Whether there is no element.
  [[nodiscard]] bool IsEmpty() const noexcept;
};

/// The axes of a cache whose layout was checked.
[[nodiscard]] Axes AxesOf(const CacheLayout& layout, int64_t heads, int64_t channels) noexcept;

/// Whether the extent is at most kMaxExtentBytes to either side.
[[nodiscard]] bool FitsExtent(const Axes& axes, DType dtype) noexcept;

[[nodiscard]] ByteView ViewOf(const Axes& axes, DType dtype, const void* data) noexcept;

/// Refuses an extent that does not fit, and an output that overlaps itself.
[[nodiscard]] Status CheckExtent(std::string_view name, const Axes& axes, DType dtype,
                                 bool is_output);

/// What is wrong with an output that overlaps, or may overlap, another tensor; `exception` says
/// where it may.
[[nodiscard]] Status RefuseOverlap(Overlap overlap, std::string_view output, std::string_view other,
                                   std::string_view exception = {});

}  // namespace qkvfuse
