// The Spec of the C++ door for a case.
#include "cases/places.h"

namespace qkvfuse::cases {
QkvRmsNormRopeCacheSpec Problem::QnrSpec() const {
  const Case& c = memory_->c;
  const Places places(*memory_);
  QkvRmsNormRopeCacheSpec spec;
  spec.dtype = c.dtype;
  spec.heads = c.heads;
  spec.head_dim = c.head_dim;
  spec.epsilon = c.epsilon;
  spec.k_cache = places.Cache(TensorId::kKCache, c.k_cache);
  spec.v_cache = places.Cache(TensorId::kVCache, c.v_cache);
  spec.slots = places.Slots();
  spec.before_quant = c.dense_kv;
  spec.qkv_strides = places.Row(TensorId::kX);
  spec.cos_strides = places.Row(TensorId::kCos);
  spec.sin_strides = places.Row(TensorId::kSin);
  spec.q_out_strides = places.Row(TensorId::kQOut);
  spec.q_before_quant_strides = places.Row(TensorId::kQBeforeQuant);
  spec.k_out_strides = places.Row(TensorId::kKOut);
  spec.v_out_strides = places.Row(TensorId::kVOut);
  spec.q_gamma_shape = places.Parameter(TensorId::kQGamma);
  spec.k_gamma_shape = places.Parameter(TensorId::kKGamma);
  return spec;
}

DequantRopeQuantKvcacheSpec Problem::DrqSpec() const {
  const Case& c = memory_->c;
  const Places places(*memory_);
  DequantRopeQuantKvcacheSpec spec;
  spec.x_dtype = c.x_dtype;
  spec.dtype = c.dtype;
  spec.heads = c.heads;
  spec.head_dim = c.head_dim;
  spec.k_cache = places.Cache(TensorId::kKCache, c.k_cache);
  spec.v_cache = places.Cache(TensorId::kVCache, c.v_cache);
  spec.slots = places.Slots();
  spec.kv_output = c.dense_kv;
  spec.has_token_scale = c.token_scale;
  spec.bias = c.bias;
  spec.x_strides = places.Row(TensorId::kX);
  spec.cos_strides = places.Row(TensorId::kCos);
  spec.sin_strides = places.Row(TensorId::kSin);
  spec.q_out_strides = places.Row(TensorId::kQOut);
  spec.k_out_strides = places.Row(TensorId::kKOut);
  spec.v_out_strides = places.Row(TensorId::kVOut);
  spec.weight_scale_shape = places.Parameter(TensorId::kWeightScale);
  spec.token_scale_shape = places.Parameter(TensorId::kTokenScale);
  spec.bias_shape = places.Parameter(TensorId::kBias);
  return spec;
}

Result<Plan> Problem::MakePlan() const {
  const Case& c = memory_->c;
  return MakePlan({c.strict, c.path, c.target});
}

Result<Plan> Problem::MakePlan(const PlanOptions& options) const {
  const Case& c = memory_->c;
  if (c.is_fused() && c.fused.measures) return MakeMeasurePlan(FusedSpec(), options);
  if (c.is_fused()) return qkvfuse::MakePlan(FusedSpec(), options);
  if (c.is_qnr()) return qkvfuse::MakePlan(QnrSpec(), options);
  return qkvfuse::MakePlan(DrqSpec(), options);
}

}  // namespace qkvfuse::cases
