#include "plan/axes.h"

#include <algorithm>

#include "base/checked_math.h"
#include "base/message.h"

namespace qkvfuse {
bool Axes::IsEmpty() const noexcept {
  return std::any_of(sizes.begin(), sizes.begin() + count, [](int64_t size) { return size < 1; });
}

Axes AxesOf(const CacheLayout& layout, int64_t heads, int64_t channels) noexcept {
  const int64_t rows = layout.row_chunk == 0 ? layout.block_size : layout.row_chunk;
  const int64_t chunk = layout.channel_chunk == 0 ? channels : layout.channel_chunk;
  return {{layout.blocks, layout.block_stride},
          {heads, layout.head_stride},
          {layout.block_size / rows, layout.row_chunk_stride},
          {rows, layout.row_stride},
          {channels / chunk, layout.channel_chunk_stride},
          {chunk, layout.channel_stride}};
}

bool FitsExtent(const Axes& axes, DType dtype) noexcept {
  if (axes.IsEmpty()) return true;
  OffsetRange range;
  const int64_t limit = kMaxExtentBytes / SizeOf(dtype);
  for (int axis = 0; axis < axes.count; ++axis) {
    const auto i = static_cast<size_t>(axis);
    if (!range.AddAxis(axes.sizes[i], axes.strides[i])) return false;
    if (range.highest > limit || range.lowest < -limit) return false;
  }
  return true;
}

ByteView ViewOf(const Axes& axes, DType dtype, const void* data) noexcept {
  ByteView view;
  view.base = static_cast<int64_t>(reinterpret_cast<uintptr_t>(data));
  view.element_bytes = SizeOf(dtype);
  for (int axis = 0; axis < axes.count; ++axis) {
    const auto i = static_cast<size_t>(axis);
    view.Add(axes.sizes[i], axes.strides[i] * view.element_bytes);
  }
  return view;
}

Status CheckExtent(std::string_view name, const Axes& axes, DType dtype, bool is_output) {
  if (!FitsExtent(axes, dtype)) {
    return Invalid(name, ": its sizes and strides span more than 2^60 bytes");
  }
  if (!is_output) return {};
  switch (OverlapsItself(ViewOf(axes, dtype, nullptr))) {
    case Overlap::kNone:
      return {};
    case Overlap::kSome:
      return Invalid(name,
                     ": its strides put two elements at one address, an output must not overlap "
                     "itself");
    case Overlap::kUnknown:
      break;
  }
  return Invalid(name,
                 ": its strides do not nest, so its elements cannot be shown to be disjoint, as an "
                 "output's must be");
}

Status RefuseOverlap(Overlap overlap, std::string_view output, std::string_view other,
                     std::string_view exception) {
  if (overlap == Overlap::kSome) {
    return Invalid(output, ": overlaps ", other,
                   ", an output must not share an element with another tensor", exception);
  }
  return Invalid(output, ": its byte range crosses that of ", other,
                 " and their strides do not nest, so they cannot be shown to be disjoint, as they "
                 "must be");
}

}  // namespace qkvfuse
