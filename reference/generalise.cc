// The operators of Ascend as special cases of the general one.
#include "reference/fused_problem.h"

namespace qkvfuse::reference {
namespace {

// The heads [first, first + heads) of the packed row.
FusedPart PartOf(const Problem& p, int64_t first, int64_t heads) {
  FusedPart part;
  part.x = p.x;
  part.x.shape.dims[2] = heads;
  part.x.data =
      static_cast<std::byte*>(p.x.data) + first * p.x.shape.strides[2] * SizeOf(p.x.dtype);
  part.first_channel = first * p.head_dim;
  return part;
}

FusedPart RotatedPart(const Problem& p, int64_t first, int64_t heads, const TensorView& gamma) {
  FusedPart part = PartOf(p, first, heads);
  part.has_rope = true;
  part.has_norm = p.has_norm;
  if (p.has_norm) part.gamma = gamma;
  return part;
}

FusedOutput Dense(const TensorView& data) {
  FusedOutput output;
  output.data = data;
  return output;
}

FusedOutput CacheOutput(const Problem& p, const Cache& cache) {
  FusedOutput output;
  output.data = cache.data;
  output.scale = cache.scale;
  output.offset = cache.offset;
  output.order = p.cache_order;
  return output;
}

}  // namespace

FusedProblem Generalise(const Problem& p) {
  FusedProblem general;
  general.batch = p.batch;
  general.sequence = p.sequence;
  general.epsilon = p.epsilon;
  auto& [q, k, v] = general.parts;
  q = RotatedPart(p, 0, p.q_heads, p.q_gamma);
  k = RotatedPart(p, p.q_heads, p.k_heads, p.k_gamma);
  v = PartOf(p, p.q_heads + p.k_heads, p.v_heads);
  q.dense[0] = Dense(p.q_out);
  q.dense[1] = Dense(p.q_before_quant);
  k.dense[0] = Dense(p.k_out);
  v.dense[0] = Dense(p.v_out);
  k.cache = CacheOutput(p, p.k_cache);
  v.cache = CacheOutput(p, p.v_cache);
  general.rope.rotary_dim = p.head_dim;
  general.rope.cos = p.cos;
  general.rope.sin = p.sin;
  general.weight_scale = p.weight_scale;
  general.token_scale = p.token_scale;
  general.bias = p.bias;
  general.slot_rule = p.slot_rule;
  general.slots = p.slots;
  const bool is_pa_nz = p.cache_order == CacheOrder::kPaNz;
  const TensorView& cache = p.k_cache.data.data != nullptr ? p.k_cache.data : p.v_cache.data;
  general.block_size = cache.shape.dims[is_pa_nz ? 2 : 1];
  return general;
}

}  // namespace qkvfuse::reference
