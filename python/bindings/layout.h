// A cache as an array: from the names of its axes and the array's shape and strides to the
// CacheLayout that the core takes.
#pragma once

#include <string>
#include <vector>

#include "array.h"
#include "qkvfuse/cache_layout.hpp"

namespace qkvfuse::python {

/// The array that a cache, or a scale cache, is.
struct CacheArray {
  enum class Axis : uint8_t { kBlock, kRowChunk, kRow, kHead, kChannelChunk, kChannel, kHeadChunk };

  std::vector<Axis> axes;        // kHeadChunk: heads * channel chunks in one axis
  const char* name = "strided";  // as CacheLayout::name; lives as long as the process
  int64_t blocks = 0;
  int64_t block_size = 0;
  int64_t heads = 0;
  int64_t channels = 0;  // 1 of a scale cache
  int64_t chunk = 0;     // of rows and of channels, where they are cut

  /// Parses "block row head channel"; Python has checked the names (qkvfuse/_layouts.py). Refuses
  /// what does not fit the sizes.
  static CacheArray Of(const std::string& layout, const std::vector<std::string>& axes,
                       const CacheArray& sizes, const char* argument);

  [[nodiscard]] StridedShape Shape() const;

  /// The layout of an array of this shape with any strides.
  [[nodiscard]] CacheLayout LayoutOf(const StridedShape& shape) const;

 private:
  [[nodiscard]] int64_t SizeOf(Axis axis) const noexcept;
  [[nodiscard]] bool Has(Axis axis) const noexcept;
};

}  // namespace qkvfuse::python
