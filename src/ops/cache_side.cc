#include "ops/cache_side.h"

namespace qkvfuse {
namespace {

std::vector<float> Expand(const CacheView& cache, const void* from, const StridedShape& shape) {
  std::vector<float> expanded(static_cast<size_t>(cache.heads * cache.head_dim));
  const kernels::CacheParameter parameter{static_cast<const float*>(from), shape,
                                          cache.spec.granularity};
  kernels::ExpandParameter(parameter, cache.heads, cache.head_dim, expanded.data());
  return expanded;
}

}  // namespace

Side SideOf(const CacheView& cache, bool uses_scales) {
  Side result;
  kernels::MoveSide& side = result.side;
  side.format.dtype = cache.spec.dtype;
  side.format.rule = cache.spec.scale_rule;
  side.layout = cache.spec.layout;
  side.data = static_cast<char*>(cache.data);
  if (IsDynamic(cache.spec)) {
    side.scale_layout = cache.spec.scale_layout;
    side.scale_cache = static_cast<float*>(cache.scale_cache);
    return result;
  }
  if (!uses_scales || !IsQuantised(cache.spec.dtype)) return result;
  result.scale = Expand(cache, cache.scale, cache.spec.scale_shape);
  side.format.scale = result.scale.data();
  if (cache.spec.has_offset) {
    result.offset = Expand(cache, cache.offset, cache.spec.offset_shape);
    side.format.offset = result.offset.data();
  }
  return result;
}

bool IsDynamic(const CacheSpec& spec) {
  return IsQuantised(spec.dtype) && spec.scale_rule == ScaleRule::kDynamic;
}

bool MeanTheSame(const CacheView& a, const CacheView& b) {
  if (a.spec.dtype != b.spec.dtype) return false;
  if (!IsQuantised(a.spec.dtype)) return true;
  if (a.spec.scale_rule != b.spec.scale_rule) return false;
  if (a.spec.scale_rule == ScaleRule::kDynamic) return true;
  const bool has_same_offset =
      a.spec.has_offset == b.spec.has_offset &&
      (!a.spec.has_offset || (a.offset == b.offset && a.spec.offset_shape == b.spec.offset_shape));
  return has_same_offset && a.scale == b.scale && a.spec.scale_shape == b.spec.scale_shape &&
         a.spec.granularity == b.spec.granularity;
}

}  // namespace qkvfuse
