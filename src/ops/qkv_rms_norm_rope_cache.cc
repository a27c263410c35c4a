// QkvRmsNormRopeCache: the pipeline that its Spec makes.
#include "qkvfuse/qkv_rms_norm_rope_cache.hpp"

#include "base/message.h"
#include "ops/pipeline_builder.h"
#include "ops/qkv_rms_norm_rope_cache_names.h"

namespace qkvfuse {
namespace {

using namespace qnr;  // NOLINT(google-build-using-namespace): the argument names

using Spec = QkvRmsNormRopeCacheSpec;

Status CheckSpec(const Spec& spec) {
  if (!Is16Bit(spec.dtype)) {
    return Invalid("dtype: is ", Name(spec.dtype), ", must be fp16 or bf16");
  }
  Status status = CheckHeads(spec.heads, "heads", spec.head_dim, "head_dim");
  if (!status.ok()) return status;
  return CheckEpsilon(spec.epsilon);
}

Status CheckCacheType(const CacheSpec& cache, DType dtype, const char* name) {
  if (cache.dtype == DType::kInt8 || cache.dtype == dtype) return {};
  return Invalid(name, ": type is ", Name(cache.dtype), ", must be int8 or ", Name(dtype));
}

void AddInputs(const Spec& spec, NameStyle style, Pipeline* pipeline) {
  auto& operands = pipeline->operands;
  const int64_t head_dim = spec.head_dim;
  operands[Operand::kX] =
      RowsOperand(kQkv.In(style), spec.dtype, spec.heads.total(), head_dim, spec.qkv_strides);
  operands[Operand::kCos] = RowsOperand(kCos.In(style), spec.dtype, 1, head_dim, spec.cos_strides);
  operands[Operand::kSin] = RowsOperand(kSin.In(style), spec.dtype, 1, head_dim, spec.sin_strides);
  operands[Operand::kQGamma] =
      ParameterOperand(kQGamma.In(style), spec.dtype, head_dim, spec.q_gamma_shape);
  operands[Operand::kKGamma] =
      ParameterOperand(kKGamma.In(style), spec.dtype, head_dim, spec.k_gamma_shape);
}

void AddGroups(const Spec& spec, Pipeline* pipeline) {
  SetHeads(spec.heads, pipeline);
  auto& [q, k, v] = pipeline->groups;
  for (HeadGroup* const group : {&q, &k}) group->has_norm = group->has_rope = true;
  q.gamma = Operand::kQGamma;
  k.gamma = Operand::kKGamma;
}

void AddOutputs(const Spec& spec, NameStyle style, Pipeline* pipeline) {
  AddDense(Operand::kQOut, kQOut.In(style), 0, spec.q_out_strides, pipeline);
  if (!spec.before_quant) return;
  AddDense(Operand::kQBeforeQuant, kQBefore.In(style), 0, spec.q_before_quant_strides, pipeline);
  AddDense(Operand::kKOut, kKBefore.In(style), 1, spec.k_out_strides, pipeline);
  AddDense(Operand::kVOut, kVBefore.In(style), 2, spec.v_out_strides, pipeline);
}

Result<Pipeline> MakePipeline(const Spec& spec, NameStyle style) {
  Status status = CheckSpec(spec);
  if (status.ok()) status = CheckCacheType(spec.k_cache, spec.dtype, kKCache.In(style));
  if (status.ok()) status = CheckCacheType(spec.v_cache, spec.dtype, kVCache.In(style));
  if (!status.ok()) return status;
  Pipeline pipeline;
  pipeline.operator_name = "QkvRmsNormRopeCache";
  pipeline.head_dim = spec.head_dim;
  pipeline.epsilon = spec.epsilon;
  pipeline.store = spec.dtype;
  AddInputs(spec, style, &pipeline);
  AddGroups(spec, &pipeline);
  AddOutputs(spec, style, &pipeline);
  status = AddSlots(spec.slots, kIndex.In(style), &pipeline);
  if (!status.ok()) return status;
  status = AddCaches({spec.k_cache, kKCache.In(style), kKScale.In(style), kKOffset.In(style)},
                     {spec.v_cache, kVCache.In(style), kVScale.In(style), kVOffset.In(style)},
                     &pipeline);
  if (!status.ok()) return status;
  return pipeline;
}

}  // namespace

Result<Plan> MakePlan(const QkvRmsNormRopeCacheSpec& spec, const PlanOptions& options) noexcept {
  return PlanFrom(spec, NameStyle::kMember, options, &MakePipeline);
}

template <>
Result<Plan> MakePlan(const BoundCall<QkvRmsNormRopeCacheSpec>& call,
                      const PlanOptions& options) noexcept {
  return PlanFrom(call.spec, call.names, options, &MakePipeline);
}

}  // namespace qkvfuse
