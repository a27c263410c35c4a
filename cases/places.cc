#include "cases/places.h"

namespace qkvfuse::cases {
namespace {

using Axis = size_t;

/// The axes of a cache's array and what they are strides of.
struct CacheAxes {
  Axis head;
  Axis row;
  Axis channel;
  std::optional<Axis> row_chunk = std::nullopt;
  std::optional<Axis> channel_chunk = std::nullopt;
};

CacheAxes AxesOf(const Case& c, bool is_k) {
  switch (c.layout) {
    case Layout::kPaNz:  // heads and chunks are one axis
      return {1, 2, 3, std::nullopt, 1};
    case Layout::kPaged:
    case Layout::kContiguous:
      return {2, 1, 3};
    case Layout::kHeadsFirst:
      return {1, 2, 3};
    case Layout::kXSplit:
      if (is_k) return {1, 3, 4, std::nullopt, 2};
      return {1, 3, 2};
    case Layout::kTransposed:
      return {1, 3, 2};
    case Layout::kShuffled:
      if (is_k) return {1, 3, 4, std::nullopt, 2};
      return {1, 4, 3, 2};
  }
  return {};
}

const char* NameOf(Layout layout) {
  switch (layout) {
    case Layout::kPaNz:
      return "PA_NZ";
    case Layout::kPaged:
      return "paged NHD";
    case Layout::kContiguous:
      return "contiguous BSND";
    case Layout::kHeadsFirst:
      return "heads first";
    case Layout::kXSplit:
      return "x-split";
    case Layout::kTransposed:
      return "transposed";
    case Layout::kShuffled:
      return "shuffled";
  }
  return "";
}

}  // namespace

std::optional<TokenStrides> Places::Row(TensorId id) const {
  if (!Has(c_, id) || (IsPacked(id) && !c_.in_place.any())) return std::nullopt;
  const auto& st = Shape(id).strides;
  if (Shape(id).rank == 3) return TokenStrides{st[0], st[1], 0, st[2]};
  // Packed rows of heads of two sizes have one axis for all of their channels.
  const bool is_one_row = id == TensorId::kX && c_.v_head_dim() != c_.head_dim;
  return TokenStrides{st[0], st[1], is_one_row ? st[3] * c_.head_dim : st[2], st[3]};
}

std::optional<TokenStrides> Places::Table(TensorId id) const {
  if (!Has(c_, id) || IsPacked(id)) return std::nullopt;
  const auto& st = Shape(id).strides;
  return TokenStrides{TokenStrides::kFollows, st[0], 0, st[1]};
}

StridedShape Places::Parameter(TensorId id) const {
  return IsPacked(id) || !Has(c_, id) ? StridedShape{} : Shape(id);
}

CacheSpec Places::Cache(TensorId id, const CacheCase& cache) const {
  const bool is_k = id == TensorId::kKCache;
  CacheSpec spec;
  spec.dtype = cache.dtype;
  spec.has_offset = cache.has_offset;
  spec.scale_rule = cache.rule;
  spec.granularity = cache.granularity;
  spec.layout = Layout(id);
  spec.scale_shape = Parameter(is_k ? TensorId::kKScale : TensorId::kVScale);
  spec.offset_shape = Parameter(is_k ? TensorId::kKOffset : TensorId::kVOffset);
  if (cache.is_dynamic()) {
    spec.scale_layout = ScaleLayout(is_k ? TensorId::kKScaleCache : TensorId::kVScaleCache);
  }
  return spec;
}

CacheLayout Places::Layout(TensorId id) const {
  const bool is_k = id == TensorId::kKCache;
  const StridedShape& shape = Shape(id);
  const CacheAxes axes = AxesOf(c_, is_k);
  const int64_t head_dim = is_k ? c_.head_dim : c_.v_head_dim();
  CacheLayout layout;
  layout.name = IsPacked(id) && !c_.interleaved ? NameOf(c_.layout) : "strided";
  layout.blocks = BlockCount(c_);
  layout.block_size = c_.block_size;
  layout.block_stride = shape.strides[0];
  layout.head_stride = shape.strides[axes.head];
  layout.row_stride = shape.strides[axes.row];
  layout.channel_stride = shape.strides[axes.channel];
  if (axes.row_chunk) {
    layout.row_chunk = shape.dims[axes.row];
    layout.row_chunk_stride = shape.strides[*axes.row_chunk];
  }
  if (axes.channel_chunk) {
    layout.channel_chunk = shape.dims[axes.channel];
    layout.channel_chunk_stride = shape.strides[*axes.channel_chunk];
  }
  if (c_.layout == cases::Layout::kPaNz) layout.head_stride *= head_dim / layout.channel_chunk;
  return layout;
}

CacheLayout Places::ScaleLayout(TensorId id) const {
  const auto& strides = Shape(id).strides;
  CacheLayout layout;
  layout.blocks = BlockCount(c_);
  layout.block_size = c_.block_size;
  layout.block_stride = strides[0];
  layout.row_stride = strides[1];
  layout.head_stride = strides[2];
  return layout;
}

SlotSpec Places::Slots() const {
  const StridedShape& shape = Shape(TensorId::kSlots);
  SlotSpec spec{c_.slot_mode, c_.slot_dtype, shape.strides[0]};
  if (!c_.is_ragged()) return spec;
  spec.stride = shape.strides[1];
  if (!IsPacked(TensorId::kSlots)) spec.sequence_stride = shape.strides[0];
  spec.pages = shape.dims[1];
  spec.zeroes_unused_rows = c_.fused.zeroes_unused_rows;
  return spec;
}

}  // namespace qkvfuse::cases
