// DequantRopeQuantKvcache: the pipeline that its Spec makes.
#include "qkvfuse/dequant_rope_quant_kvcache.hpp"

#include "base/message.h"
#include "ops/dequant_rope_quant_kvcache_names.h"
#include "ops/pipeline_builder.h"

namespace qkvfuse {
namespace {

using namespace drq;  // NOLINT(google-build-using-namespace): the argument names

using Spec = DequantRopeQuantKvcacheSpec;

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
    if (cache->dtype == DType::kInt8) continue;
    return Invalid((cache == &spec.k_cache ? kKCache : kVCache).In(style), ": type is ",
                   Name(cache->dtype), ", must be int8");
  }
  return CheckHeads(spec.heads, "heads", spec.head_dim, "head_dim");
}

void AddInputs(const Spec& spec, NameStyle style, Pipeline* pipeline) {
  auto& operands = pipeline->operands;
  const int64_t head_dim = spec.head_dim;
  const int64_t channels = spec.heads.total() * head_dim;
  operands[Operand::kX] =
      RowsOperand(kX.In(style), spec.x_dtype, spec.heads.total(), head_dim, spec.x_strides);
  operands[Operand::kCos] = RowsOperand(kCos.In(style), spec.dtype, 1, head_dim, spec.cos_strides);
  operands[Operand::kSin] = RowsOperand(kSin.In(style), spec.dtype, 1, head_dim, spec.sin_strides);
  if (spec.x_dtype != DType::kInt32) return;
  operands[Operand::kWeightScale] =
      ParameterOperand(kWeightScale.In(style), DType::kFloat32, channels, spec.weight_scale_shape);
  if (spec.has_token_scale) {
    OperandSpec token_scale =
        ParameterOperand(kActivationScale.In(style), DType::kFloat32, 0, spec.token_scale_shape);
    token_scale.role = Role::kTokenParameter;
    operands[Operand::kTokenScale] = token_scale;
  }
  if (spec.bias) {
    operands[Operand::kBias] =
        ParameterOperand(kBias.In(style), *spec.bias, channels, spec.bias_shape);
  }
}

void AddGroupsAndOutputs(const Spec& spec, NameStyle style, Pipeline* pipeline) {
  SetHeads(spec.heads, pipeline);
  auto& [q, k, v] = pipeline->groups;
  q.has_rope = k.has_rope = true;
  AddDense(Operand::kQOut, kQOut.In(style), 0, spec.q_out_strides, pipeline);
  if (!spec.kv_output) return;
  AddDense(Operand::kKOut, kKOut.In(style), 1, spec.k_out_strides, pipeline);
  AddDense(Operand::kVOut, kVOut.In(style), 2, spec.v_out_strides, pipeline);
}

Result<Pipeline> MakePipeline(const Spec& spec, NameStyle style) {
  Status status = CheckSpec(spec, style);
  if (!status.ok()) return status;
  Pipeline pipeline;
  pipeline.operator_name = "DequantRopeQuantKvcache";
  pipeline.head_dim = spec.head_dim;
  pipeline.store = spec.dtype;
  AddInputs(spec, style, &pipeline);
  AddGroupsAndOutputs(spec, style, &pipeline);
  status = AddSlots(spec.slots, kIndices.In(style), &pipeline);
  if (!status.ok()) return status;
  status = AddCaches({spec.k_cache, kKCache.In(style), kScaleK.In(style), kOffsetK.In(style)},
                     {spec.v_cache, kVCache.In(style), kScaleV.In(style), kOffsetV.In(style)},
                     &pipeline);
  if (!status.ok()) return status;
  return pipeline;
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
