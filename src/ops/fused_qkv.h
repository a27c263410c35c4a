// The pipeline of a FusedQkvSpec, for the general operator and for those that are special cases.
#pragma once

#include "ops/pipeline_builder.h"
#include "qkvfuse/fused_qkv.hpp"

namespace qkvfuse {

/// Refuses members of the Spec that contradict each other or would not be used.
[[nodiscard]] Status CheckFusedQkvSpec(const FusedQkvSpec& spec, const OperandNames& names);

/// The pipeline of a Spec; refusals use the names.
[[nodiscard]] Result<Pipeline> MakeFusedQkvPipeline(const FusedQkvSpec& spec,
                                                    const OperandNames& names,
                                                    const char* operator_name);

/// Channels of a v head.
[[nodiscard]] constexpr int64_t VHeadDim(const FusedQkvSpec& spec) noexcept {
  return spec.v_head_dim == 0 ? spec.head_dim : spec.v_head_dim;
}

/// Channels of a head that are rotated.
[[nodiscard]] constexpr int64_t RotaryDim(const FusedQkvSpec& spec) noexcept {
  if (spec.rope.pairing == RopeSpec::Pairing::kNone) return 0;
  return spec.rope.rotary_dim == 0 ? spec.head_dim : spec.rope.rotary_dim;
}

/// Whether anything is to become of k, and of v.
[[nodiscard]] constexpr bool WantsK(const FusedQkvSpec& spec) noexcept {
  return spec.k_cache.has_value() || spec.k_out.has_value();
}
[[nodiscard]] constexpr bool WantsV(const FusedQkvSpec& spec) noexcept {
  return spec.v_cache.has_value() || spec.v_out.has_value();
}

}  // namespace qkvfuse
