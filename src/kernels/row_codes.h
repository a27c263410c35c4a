// One head of a cache row as fp32 and back, whatever its type and scales; contiguous channels.
#pragma once

#include <cstdint>

#include "kernels/kernels.h"
#include "qkvfuse/dtype.hpp"
#include "qkvfuse/specs.hpp"

namespace qkvfuse::kernels {

/// How the codes of a cache and fp32 values relate. Float types have no scales.
struct CodeFormat {
  DType dtype = DType::kFloat32;
  ScaleRule rule = ScaleRule::kDivide;
  const float* scale = nullptr;   // [heads, head_dim] of an 8-bit type, not kDynamic
  const float* offset = nullptr;  // [heads, head_dim], or none
};

/// y = the values of a head's `channels` codes; `dynamic_scale` is used with kDynamic only.
void DecodeHead(const CodeFormat& format, int64_t head, const void* codes, float dynamic_scale,
                int64_t channels, float* y) noexcept;

/// codes = a head's values as codes. Returns the scale that kDynamic found, else 0.
float EncodeHead(const CodeFormat& format, int64_t head, const float* y, int64_t channels,
                 void* codes) noexcept;

/// A scale or offset of any granularity and shape as [heads, head_dim].
void ExpandParameter(const float* from, const StridedShape& shape, ScaleGranularity granularity,
                     int64_t heads, int64_t head_dim, float* to) noexcept;

}  // namespace qkvfuse::kernels
