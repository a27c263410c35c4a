// QkvRmsNormRopeCache as a special case of the general operator.
#include "qkvfuse/qkv_rms_norm_rope_cache.hpp"

#include <utility>

#include "base/message.h"
#include "ops/fused_qkv.h"
#include "ops/qkv_rms_norm_rope_cache_names.h"

namespace qkvfuse {
namespace {

using namespace qnr;  // NOLINT(google-build-using-namespace): the argument names

using Spec = QkvRmsNormRopeCacheSpec;

OperandNames NamesIn(NameStyle style) {
  OperandNames names = MemberNames();
  for (const auto& [operand, name] : {std::pair{Operand::kX, kQkv},
                                      {Operand::kQGamma, kQGamma},
                                      {Operand::kKGamma, kKGamma},
                                      {Operand::kCos, kCos},
                                      {Operand::kSin, kSin},
                                      {Operand::kSlots, kIndex},
                                      {Operand::kQOut, kQOut},
                                      {Operand::kKCache, kKCache},
                                      {Operand::kVCache, kVCache},
                                      {Operand::kKScale, kKScale},
                                      {Operand::kVScale, kVScale},
                                      {Operand::kKOffset, kKOffset},
                                      {Operand::kVOffset, kVOffset},
                                      {Operand::kQBeforeQuant, kQBefore},
                                      {Operand::kKOut, kKBefore},
                                      {Operand::kVOut, kVBefore}}) {
    names[operand] = name.In(style);
  }
  return names;
}

Status CheckCacheType(const CacheSpec& cache, DType dtype, const char* name) {
  if (cache.dtype != DType::kInt8 && cache.dtype != dtype) {
    return Invalid(name, ": type is ", Name(cache.dtype), ", must be int8 or ", Name(dtype));
  }
  return CheckChannelScales(cache, name);
}

Status CheckSpec(const Spec& spec, NameStyle style) {
  if (!Is16Bit(spec.dtype)) {
    return Invalid("dtype: is ", Name(spec.dtype), ", must be fp16 or bf16");
  }
  Status status = CheckHeads(spec.heads, "heads", spec.head_dim, "head_dim");
  if (status.ok()) status = CheckEpsilon(spec.epsilon);
  if (status.ok()) status = CheckCacheType(spec.k_cache, spec.dtype, kKCache.In(style));
  if (status.ok()) status = CheckCacheType(spec.v_cache, spec.dtype, kVCache.In(style));
  return status;
}

FusedQkvSpec GeneralSpec(const Spec& spec) {
  FusedQkvSpec general;
  general.x_dtype = spec.dtype;
  general.heads = spec.heads;
  general.head_dim = spec.head_dim;
  general.epsilon = spec.epsilon;
  general.q_norm = {NormSpec::Kind::kPerHead, NormSpec::Gamma::kPlain, spec.dtype,
                    spec.q_gamma_shape};
  general.k_norm = general.q_norm;
  general.k_norm.gamma_shape = spec.k_gamma_shape;
  general.rope.dtype = spec.dtype;
  general.rope.cos_strides = spec.cos_strides;
  general.rope.sin_strides = spec.sin_strides;
  general.x_strides = spec.qkv_strides;
  general.k_cache = spec.k_cache;
  general.v_cache = spec.v_cache;
  general.slots = spec.slots;
  general.q_out = {spec.dtype, spec.q_out_strides};
  if (!spec.before_quant) return general;
  general.q_before_quant = {spec.dtype, spec.q_before_quant_strides};
  general.k_out = {spec.dtype, spec.k_out_strides};
  general.v_out = {spec.dtype, spec.v_out_strides};
  return general;
}

Result<Pipeline> MakePipeline(const Spec& spec, NameStyle style) {
  Status status = CheckSpec(spec, style);
  if (!status.ok()) return status;
  return MakeFusedQkvPipeline(GeneralSpec(spec), NamesIn(style), "QkvRmsNormRopeCache");
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
