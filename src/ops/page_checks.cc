#include "ops/page_checks.h"

#include <algorithm>

#include "base/checked_math.h"
#include "base/message.h"
#include "kernels/kernels.h"
#include "plan/cache_layout.h"
#include "plan/pipeline.h"

namespace qkvfuse {
namespace {

// Keeps sums and differences of extents inside 64 bits.
constexpr int64_t kMaxExtentBytes = int64_t{1} << 60;

bool FitsExtent(const std::vector<Axis>& axes, DType dtype) {
  OffsetRange range;
  const int64_t limit = kMaxExtentBytes / SizeOf(dtype);
  for (const Axis& axis : axes) {
    if (axis.size == 1) continue;  // its stride may be anything
    if (!range.AddAxis(axis.size, axis.stride)) return false;
    if (range.highest > limit || range.lowest < -limit) return false;
  }
  return true;
}

ByteView ViewOf(DType dtype, const void* data, const std::vector<Axis>& axes) {
  ByteView view;
  view.base = static_cast<int64_t>(reinterpret_cast<uintptr_t>(data));
  view.element_bytes = SizeOf(dtype);
  for (const Axis& axis : axes) view.Add(axis.size, axis.stride * view.element_bytes);
  return view;
}

std::vector<Axis> AxesOf(const CacheLayout& layout, int64_t heads, int64_t head_dim) {
  const int64_t rows = layout.row_chunk == 0 ? layout.block_size : layout.row_chunk;
  const int64_t channels = layout.channel_chunk == 0 ? head_dim : layout.channel_chunk;
  return {{layout.blocks, layout.block_stride},
          {heads, layout.head_stride},
          {layout.block_size / rows, layout.row_chunk_stride},
          {rows, layout.row_stride},
          {head_dim / channels, layout.channel_chunk_stride},
          {channels, layout.channel_stride}};
}

Status CheckPointer(const std::string& name, DType dtype, const void* data) {
  if (data == nullptr) return Null(name, ": is null, must point to its elements");
  const auto misaligned =
      reinterpret_cast<uintptr_t>(data) & static_cast<uintptr_t>(SizeOf(dtype) - 1);
  if (misaligned == 0) return {};
  return Invalid(name, ": address ends in ", misaligned, " modulo ", SizeOf(dtype),
                 ", must be a multiple of the element size");
}

Status CheckApartFrom(const MemoryRegion& output, const MemoryRegion& other) {
  const Overlap overlap = Intersect(output.view, other.view);
  if (overlap == Overlap::kNone) return {};
  if (overlap == Overlap::kSome) {
    return Invalid(output.name, ": overlaps ", other.name,
                   ", an output must not share an element with another tensor");
  }
  return Invalid(output.name, ": its byte range crosses that of ", other.name,
                 " and their strides do not nest, so they cannot be shown to be disjoint, as they "
                 "must be");
}

Status CheckSizes(const CacheView& cache, const std::string& name) {
  constexpr int64_t kMaxHeads = 1 << 16;
  const DType dtype = cache.spec.dtype;
  if (!IsFloat(dtype) && !IsQuantised(dtype)) {
    return Invalid(name, ".spec.dtype: is ", Name(dtype),
                   ", must be fp32, fp16, bf16, int8, fp8_e4m3 or fp8_e5m2");
  }
  if (cache.heads < 1 || cache.heads > kMaxHeads) {
    return Invalid(name, ".heads: is ", cache.heads, ", must be from 1 to ", kMaxHeads);
  }
  if (cache.head_dim < 1 || cache.head_dim > kernels::kMaxHeadDim) {
    return Invalid(name, ".head_dim: is ", cache.head_dim, ", must be from 1 to ",
                   kernels::kMaxHeadDim);
  }
  CacheLayout layout = cache.spec.layout;
  if (layout.name == nullptr) layout.name = "unnamed";
  return CheckLayout(layout, (name + ".spec.layout").c_str(), cache.head_dim);
}

Status CheckScaleRule(const CacheSpec& spec, const std::string& name) {
  if (spec.scale_rule > ScaleRule::kDynamic) {
    return Invalid(name, ".spec.scale_rule: is ", static_cast<int>(spec.scale_rule),
                   ", must be kDivide, kMultiply or kDynamic");
  }
  if (spec.granularity > ScaleGranularity::kTensor) {
    return Invalid(name, ".spec.granularity: is ", static_cast<int>(spec.granularity),
                   ", must be kChannel, kHead or kTensor");
  }
  const bool has_static_scales = IsQuantised(spec.dtype) && spec.scale_rule != ScaleRule::kDynamic;
  if (spec.granularity != ScaleGranularity::kChannel && !has_static_scales) {
    return Invalid(name, ".spec.granularity: is given, needs an 8-bit type with static scales");
  }
  if (spec.scale_rule == ScaleRule::kDynamic && !IsQuantised(spec.dtype)) {
    return Invalid(name, ".spec.scale_rule: is kDynamic for a cache of type ", Name(spec.dtype),
                   ", needs an 8-bit type");
  }
  if (!spec.has_offset) return {};
  if (spec.dtype != DType::kInt8) {
    return Invalid(name, ".spec.has_offset: is set for a cache of type ", Name(spec.dtype),
                   ", needs an int8 cache");
  }
  if (spec.scale_rule == ScaleRule::kDynamic) {
    return Invalid(name, ".spec.has_offset: is set for dynamic scales, needs kDivide or kMultiply");
  }
  return {};
}

Status AddScaleCache(const CacheView& cache, const std::string& name, bool is_output,
                     MemoryRegions* regions) {
  const CacheLayout& rows = cache.spec.layout;
  CacheLayout layout = cache.spec.scale_layout;
  layout.channel_chunk = 0;  // channels are not used
  if (layout.name == nullptr) layout.name = "unnamed";
  const std::string layout_name = name + ".spec.scale_layout";
  Status status = CheckLayout(layout, layout_name.c_str(), 1);
  if (!status.ok()) return status;
  if (layout.blocks != rows.blocks || layout.block_size != rows.block_size) {
    return Invalid(layout_name, ": has ", layout.blocks, " blocks of ", layout.block_size,
                   " rows, must have the cache's ", rows.blocks, " blocks of ", rows.block_size);
  }
  return regions->Add(name + ".scale_cache", DType::kFloat32, cache.scale_cache,
                      AxesOf(layout, cache.heads, 1), is_output);
}

int64_t ParameterCount(const CacheView& cache) {
  switch (cache.spec.granularity) {
    case ScaleGranularity::kHead:
      return cache.heads;
    case ScaleGranularity::kTensor:
      return 1;
    default:
      return cache.heads * cache.head_dim;
  }
}

Status AddParameter(const std::string& name, const StridedShape& shape, const void* data,
                    int64_t count, MemoryRegions* regions) {
  if (shape.rank < 0 || shape.rank > kMaxRank) {
    return Invalid(name, ": has ", shape.rank, " dimensions, must have from 0 to ", kMaxRank);
  }
  std::vector<Axis> axes;
  int64_t elements = 1;
  for (int axis = 0; axis < shape.rank; ++axis) {
    const auto i = static_cast<size_t>(axis);
    if (shape.dims[i] < 0 || !CheckedMul(elements, shape.dims[i], &elements)) {
      return Invalid(name, ": dimension ", axis, " is ", shape.dims[i],
                     ", sizes must be 0 or more and their product below 2^63");
    }
    axes.push_back({shape.dims[i], shape.strides[i]});
  }
  if (shape.rank == 0) {
    axes.push_back({count, 1});
  } else if (elements != count) {
    return Invalid(name, ": has ", elements, " elements, must have ", count);
  }
  return regions->Add(name, DType::kFloat32, data, axes, /*is_output=*/false);
}

}  // namespace

Status MemoryRegions::Add(const std::string& name, DType dtype, const void* data,
                          const std::vector<Axis>& axes, bool is_output) {
  for (const Axis& axis : axes) {
    if (axis.size == 0) return {};
  }
  Status status = CheckPointer(name, dtype, data);
  if (!status.ok()) return status;
  if (!FitsExtent(axes, dtype)) {
    return Invalid(name, ": its sizes and strides span more than 2^60 bytes");
  }
  const ByteView view = ViewOf(dtype, data, axes);
  (is_output ? outputs_ : inputs_).push_back({name, view});
  if (!is_output) return {};
  const Overlap overlap = OverlapsItself(view);
  if (overlap == Overlap::kNone) return {};
  if (overlap == Overlap::kSome) {
    return Invalid(name,
                   ": its strides put two elements at one address, an output must not overlap "
                   "itself");
  }
  return Invalid(name,
                 ": its strides do not nest, so its elements cannot be shown to be disjoint, as an "
                 "output's must be");
}

void MemoryRegions::Forget(const std::string& name) {
  std::erase_if(inputs_, [&](const MemoryRegion& region) { return region.name == name; });
}

Status MemoryRegions::CheckApart() const {
  for (size_t i = 0; i < outputs_.size(); ++i) {
    for (size_t j = i + 1; j < outputs_.size(); ++j) {
      Status status = CheckApartFrom(outputs_[i], outputs_[j]);
      if (!status.ok()) return status;
    }
    for (const MemoryRegion& input : inputs_) {
      Status status = CheckApartFrom(outputs_[i], input);
      if (!status.ok()) return status;
    }
  }
  return {};
}

Status CheckCache(const CacheView& cache, const std::string& name, bool is_output, bool uses_scales,
                  MemoryRegions* regions) {
  Status status = CheckSizes(cache, name);
  if (status.ok()) status = CheckScaleRule(cache.spec, name);
  if (status.ok()) {
    status = regions->Add(name + ".data", cache.spec.dtype, cache.data,
                          AxesOf(cache.spec.layout, cache.heads, cache.head_dim), is_output);
  }
  if (!status.ok() || !IsQuantised(cache.spec.dtype)) return status;
  if (cache.spec.scale_rule == ScaleRule::kDynamic) {
    return AddScaleCache(cache, name, is_output, regions);
  }
  if (!uses_scales) return {};
  const int64_t count = ParameterCount(cache);
  status = AddParameter(name + ".scale", cache.spec.scale_shape, cache.scale, count, regions);
  if (!status.ok() || !cache.spec.has_offset) return status;
  return AddParameter(name + ".offset", cache.spec.offset_shape, cache.offset, count, regions);
}

Status CheckIndexType(DType dtype, const char* name) {
  if (dtype == DType::kInt64 || dtype == DType::kInt32) return {};
  return Invalid(name, ": type is ", Name(dtype), ", must be int64 or int32");
}

Status CheckCount(int64_t count, const char* name) {
  if (count >= 0 && count <= kMaxTokens) return {};
  return Invalid(name, ": is ", count, ", must be from 0 to ", kMaxTokens);
}

}  // namespace qkvfuse
