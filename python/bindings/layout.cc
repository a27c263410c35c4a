#include "layout.h"

#include <algorithm>
#include <set>
#include <utility>

namespace qkvfuse::python {
namespace {

using Axis = CacheArray::Axis;

constexpr std::pair<const char*, Axis> kAxisNames[] = {
    {"block", Axis::kBlock},
    {"row_chunk", Axis::kRowChunk},
    {"row", Axis::kRow},
    {"head", Axis::kHead},
    {"channel", Axis::kChannel},
    {"channel_chunk", Axis::kChannelChunk},
    {"head*channel_chunk", Axis::kHeadChunk},
};

/// CacheLayouts are equal where their names have the same address. The GIL guards the set.
const char* Interned(const std::string& name) {
  static auto* const names = new std::set<std::string>;
  return names->insert(name).first->c_str();
}

}  // namespace

CacheArray CacheArray::Of(const std::string& layout, const std::vector<std::string>& axes,
                          const CacheArray& sizes, const char* argument) {
  CacheArray array = sizes;
  array.name = Interned(layout);
  for (const std::string& axis : axes) {
    for (const auto& [name, value] : kAxisNames) {
      if (axis == name) array.axes.push_back(value);
    }
  }
  int64_t elements = 1;
  for (const int64_t size : {array.blocks, array.block_size, array.heads, array.channels}) {
    if (!__builtin_mul_overflow(elements, size == 0 ? 1 : size, &elements)) continue;
    RefuseValue(argument, ": ", array.blocks, " blocks of ", array.block_size, " rows, ",
                array.heads, " heads and ", array.channels, " channels, must fit 64 bits");
  }
  const bool cuts_rows = array.Has(Axis::kRowChunk);
  const bool cuts_channels = array.Has(Axis::kChannelChunk) || array.Has(Axis::kHeadChunk);
  const auto check_chunk = [&array, argument](int64_t whole, const char* what) {
    if (array.chunk >= 1 && whole % array.chunk == 0) return;
    RefuseValue(argument, ": chunk is ", array.chunk, ", must divide ", whole, ", the ", what);
  };
  if (cuts_rows) check_chunk(array.block_size, "block_size");
  if (cuts_channels) check_chunk(array.channels, "head_dim");
  if (!cuts_rows && !cuts_channels) array.chunk = 0;
  if (!array.Has(Axis::kRow) && array.block_size != 1) {
    RefuseValue(argument, ": block_size is ", array.block_size, ", must be 1: layout \"", layout,
                "\" has no axis of rows");
  }
  const bool has_channels = array.Has(Axis::kChannel);
  if (has_channels && array.channels == 0) {
    RefuseValue(argument, ": scale_layout \"", layout,
                "\" has an axis of channels, must have none");
  }
  if (!has_channels && array.channels != 0) {
    RefuseValue(argument, ": layout \"", layout, "\" has no axis of channels, must have one");
  }
  return array;
}

bool CacheArray::Has(Axis axis) const noexcept {
  return std::find(axes.begin(), axes.end(), axis) != axes.end();
}

int64_t CacheArray::SizeOf(Axis axis) const noexcept {
  switch (axis) {
    case Axis::kBlock:
      return blocks;
    case Axis::kRowChunk:
      return block_size / chunk;
    case Axis::kRow:
      return Has(Axis::kRowChunk) ? chunk : block_size;
    case Axis::kHead:
      return heads;
    case Axis::kChannelChunk:
      return channels / chunk;
    case Axis::kHeadChunk:
      return heads * (channels / chunk);
    case Axis::kChannel:
      return Has(Axis::kChannelChunk) || Has(Axis::kHeadChunk) ? chunk : channels;
  }
  return 0;
}

StridedShape CacheArray::Shape() const {
  StridedShape shape;
  for (const Axis axis : axes) shape.dims[static_cast<size_t>(shape.rank++)] = SizeOf(axis);
  shape.MakeContiguous();
  return shape;
}

CacheLayout CacheArray::LayoutOf(const StridedShape& shape) const {
  CacheLayout layout;
  layout.name = name;
  layout.blocks = blocks;
  layout.block_size = block_size;
  if (!Has(Axis::kChannel)) layout.channel_stride = 1;
  for (size_t i = 0; i < axes.size(); ++i) {
    const int64_t stride = shape.strides[i];
    switch (axes[i]) {
      case Axis::kBlock:
        layout.block_stride = stride;
        break;
      case Axis::kRowChunk:
        layout.row_chunk = chunk;
        layout.row_chunk_stride = stride;
        break;
      case Axis::kRow:
        layout.row_stride = stride;
        break;
      case Axis::kHead:
        layout.head_stride = stride;
        break;
      case Axis::kHeadChunk:
        // Array strides are bytes in 64 bits and a head has at most 1024 channels, so a product
        // that leaves 64 bits belongs to no array in memory.
        layout.head_stride = stride * (channels / chunk);
        [[fallthrough]];
      case Axis::kChannelChunk:
        layout.channel_chunk = chunk;
        layout.channel_chunk_stride = stride;
        break;
      case Axis::kChannel:
        layout.channel_stride = stride;
        break;
    }
  }
  return layout;
}

}  // namespace qkvfuse::python
