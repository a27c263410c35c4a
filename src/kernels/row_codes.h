// One head of a cache row as fp32 and back, whatever its type and scales; contiguous channels.
#pragma once

#include <cstdint>

#include "kernels/kernels.h"
#include "qkvfuse/dtype.hpp"
#include "qkvfuse/specs.hpp"

namespace qkvfuse::kernels {

/// How codes and fp32 values relate. Float types have no scales.
struct CodeFormat {
  DType dtype = DType::kFloat32;
  ScaleRule rule = ScaleRule::kDivide;
  const float* scale = nullptr;   // of an 8-bit type, not kDynamic: [heads, head_dim]
  const float* offset = nullptr;  // the same, or none

  /// The format of one head: scale and offset are [head_dim].
  [[nodiscard]] CodeFormat OfHead(int64_t head, int64_t head_dim) const noexcept {
    CodeFormat format = *this;
    if (scale != nullptr) format.scale += head * head_dim;
    if (offset != nullptr) format.offset += head * head_dim;
    return format;
  }
};

/// y = the values of a head's `channels` codes; `dynamic_scale` is used with kDynamic only.
void DecodeHead(const CodeFormat& format, const void* codes, float dynamic_scale, int64_t channels,
                float* y) noexcept;

/// codes = a head's values as codes. Returns the scale that kDynamic found, else 0.
float EncodeHead(const CodeFormat& format, const float* y, int64_t channels, void* codes) noexcept;

/// A scale or offset as a cache has it.
struct CacheParameter {
  const float* data = nullptr;
  StridedShape shape;
  ScaleGranularity granularity = ScaleGranularity::kChannel;
};

/// The parameter as [heads, head_dim].
void ExpandParameter(const CacheParameter& from, int64_t heads, int64_t head_dim,
                     float* to) noexcept;

}  // namespace qkvfuse::kernels
