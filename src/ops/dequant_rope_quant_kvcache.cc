// DequantRopeQuantKvcache as a special case of the general operator.
#include "qkvfuse/dequant_rope_quant_kvcache.hpp"

#include <utility>

#include "base/message.h"
#include "ops/dequant_rope_quant_kvcache_names.h"
#include "ops/fused_qkv.h"

namespace qkvfuse {
namespace {

using namespace drq;  // NOLINT(google-build-using-namespace): the argument names

using Spec = DequantRopeQuantKvcacheSpec;

OperandNames NamesIn(NameStyle style) {
  OperandNames names = MemberNames();
  for (const auto& [operand, name] : {std::pair{Operand::kX, kX},
                                      {Operand::kCos, kCos},
                                      {Operand::kSin, kSin},
                                      {Operand::kSlots, kIndices},
                                      {Operand::kQOut, kQOut},
                                      {Operand::kKOut, kKOut},
                                      {Operand::kVOut, kVOut},
                                      {Operand::kKCache, kKCache},
                                      {Operand::kVCache, kVCache},
                                      {Operand::kKScale, kScaleK},
                                      {Operand::kVScale, kScaleV},
                                      {Operand::kKOffset, kOffsetK},
                                      {Operand::kVOffset, kOffsetV},
                                      {Operand::kWeightScale, kWeightScale},
                                      {Operand::kTokenScale, kActivationScale},
                                      {Operand::kBias, kBias}}) {
    names[operand] = name.In(style);
  }
  return names;
}

Status CheckSpec(const Spec& spec, NameStyle style) {
  if (!Is16Bit(spec.dtype)) {
    return Invalid("dtype: is ", Name(spec.dtype), ", must be fp16 or bf16");
  }
  if (spec.x_dtype != DType::kInt32 && spec.x_dtype != spec.dtype) {
    return Invalid(kX.In(style), ": type is ", Name(spec.x_dtype), ", must be int32 or ",
                   Name(spec.dtype), ", that of cos");
  }
  const bool is_dequantised = spec.x_dtype == DType::kInt32;
  if (!is_dequantised && spec.has_token_scale) {
    return Invalid("has_token_scale: is true for x of type ", Name(spec.x_dtype),
                   ", must be false unless x is int32");
  }
  if (!is_dequantised && spec.bias) {
    return Invalid(kBias.In(style), ": is given for x of type ", Name(spec.x_dtype),
                   ", needs an int32 x");
  }
  if (spec.bias && !Is16Bit(*spec.bias) && *spec.bias != DType::kFloat32 &&
      *spec.bias != DType::kInt32) {
    return Invalid(kBias.In(style), ": type is ", Name(*spec.bias),
                   ", must be fp32 or fp16 or bf16 or int32");
  }
  for (const CacheSpec* const cache : {&spec.k_cache, &spec.v_cache}) {
    const char* const name = (cache == &spec.k_cache ? kKCache : kVCache).In(style);
    if (cache->dtype != DType::kInt8) {
      return Invalid(name, ": type is ", Name(cache->dtype), ", must be int8");
    }
    Status status = CheckChannelScales(*cache, name);
    if (!status.ok()) return status;
  }
  return CheckHeads(spec.heads, "heads", spec.head_dim, "head_dim");
}

FusedQkvSpec GeneralSpec(const Spec& spec) {
  FusedQkvSpec general;
  general.x_dtype = spec.x_dtype;
  general.heads = spec.heads;
  general.head_dim = spec.head_dim;
  general.has_token_scale = spec.has_token_scale;
  general.bias = spec.bias;
  general.rope.dtype = spec.dtype;
  general.rope.cos_strides = spec.cos_strides;
  general.rope.sin_strides = spec.sin_strides;
  general.x_strides = spec.x_strides;
  // Of a 16-bit x what belongs to the dequantisation is ignored, as upstream ignores it.
  if (spec.x_dtype == DType::kInt32) {
    general.weight_scale_shape = spec.weight_scale_shape;
    if (spec.has_token_scale) general.token_scale_shape = spec.token_scale_shape;
    if (spec.bias) general.bias_shape = spec.bias_shape;
  }
  general.k_cache = spec.k_cache;
  general.v_cache = spec.v_cache;
  general.slots = spec.slots;
  general.q_out = {spec.dtype, spec.q_out_strides};
  if (!spec.kv_output) return general;
  general.k_out = {spec.dtype, spec.k_out_strides};
  general.v_out = {spec.dtype, spec.v_out_strides};
  return general;
}

Result<Pipeline> MakePipeline(const Spec& spec, NameStyle style) {
  Status status = CheckSpec(spec, style);
  if (!status.ok()) return status;
  return MakeFusedQkvPipeline(GeneralSpec(spec), NamesIn(style), "DequantRopeQuantKvcache");
}

}  // namespace

Result<Plan> MakePlan(const DequantRopeQuantKvcacheSpec& spec,
                      const PlanOptions& options) noexcept {
  return PlanFrom(spec, NameStyle::kMember, options, &MakePipeline);
}

template <>
Result<Plan> MakePlan(const BoundCall<DequantRopeQuantKvcacheSpec>& call,
                      const PlanOptions& options) noexcept {
  return PlanFrom(call.spec, call.names, options, &MakePipeline);
}

}  // namespace qkvfuse
