#include "ops/page_checks.h"

#include "base/checked_math.h"
#include "base/message.h"
#include "kernels/kernels.h"
#include "ops/argument_checks.h"
#include "plan/cache_layout.h"
#include "plan/pipeline.h"

namespace qkvfuse {
namespace {

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
  return overlap == Overlap::kNone ? Status() : RefuseOverlap(overlap, output.name, other.name);
}

Status CheckSizes(const CacheView& cache, const std::string& name) {
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
  Axes axes;
  int64_t elements = 1;
  for (int axis = 0; axis < shape.rank; ++axis) {
    const auto i = static_cast<size_t>(axis);
    if (shape.dims[i] < 0 || !CheckedMul(elements, shape.dims[i], &elements)) {
      return Invalid(name, ": dimension ", axis, " is ", shape.dims[i],
                     ", sizes must be 0 or more and their product below 2^63");
    }
    axes.Add(shape.dims[i], shape.strides[i]);
  }
  if (shape.rank == 0) {
    axes.Add(count, 1);
  } else if (elements != count) {
    return Invalid(name, ": has ", elements, " elements, must have ", count);
  }
  return regions->Add(name, DType::kFloat32, data, axes, /*is_output=*/false);
}

}  // namespace

Status MemoryRegions::Add(const std::string& name, DType dtype, const void* data, const Axes& axes,
                          bool is_output) {
  if (axes.IsEmpty()) return {};
  Status status = CheckPointer(name, dtype, data);
  if (status.ok()) status = CheckExtent(name, axes, dtype, is_output);
  if (status.ok()) (is_output ? outputs_ : inputs_).push_back({name, ViewOf(axes, dtype, data)});
  return status;
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
