// The Spec of the C++ door for a case.
#include <optional>

#include "cases/problem_memory.h"

namespace qkvfuse::cases {
namespace {

TokenStrides RowStrides(const StridedShape& shape) {
  const auto& st = shape.strides;
  if (shape.rank == 3) return {st[0], st[1], 0, st[2]};
  return {st[0], st[1], st[2], st[3]};
}

// What a Spec says about the places of a case's tensors: nothing where they are packed.
class Places {
 public:
  explicit Places(const ProblemMemory& memory) : memory_(memory), c_(memory.c) {}

  [[nodiscard]] std::optional<TokenStrides> Row(TensorId id) const {
    if (!Has(c_, id) || (IsPacked(id) && !c_.in_place.any())) return std::nullopt;
    return RowStrides(Shape(id));
  }

  [[nodiscard]] StridedShape Parameter(TensorId id) const {
    return IsPacked(id) ? StridedShape{} : Shape(id);
  }

  [[nodiscard]] CacheSpec Cache(TensorId id, const CacheCase& cache) const {
    const bool is_k = id == TensorId::kKCache;
    CacheSpec spec;
    spec.dtype = cache.dtype;
    spec.has_offset = cache.has_offset;
    spec.layout = Preset(cache, is_k ? c_.heads.k : c_.heads.v);
    if (!IsPacked(id) || c_.interleaved) SetStrides(Shape(id), spec.layout);
    spec.scale_shape = Parameter(is_k ? TensorId::kKScale : TensorId::kVScale);
    spec.offset_shape = Parameter(is_k ? TensorId::kKOffset : TensorId::kVOffset);
    return spec;
  }

  [[nodiscard]] SlotSpec Slots() const {
    return {c_.slot_mode, c_.slot_dtype, Shape(TensorId::kSlots).strides[0]};
  }

 private:
  [[nodiscard]] bool IsPacked(TensorId id) const { return c_.stride(id) == StridePattern::kPacked; }
  [[nodiscard]] const StridedShape& Shape(TensorId id) const {
    return memory_.member(id).library.shape;
  }

  [[nodiscard]] CacheLayout Preset(const CacheCase& cache, int64_t heads) const {
    const int64_t blocks = BlockCount(c_);
    switch (c_.layout) {
      case Layout::kPaNz:
        return PaNz(blocks, c_.block_size, heads, c_.head_dim, ChunkOf(cache));
      case Layout::kPaged:
        return PagedNhd(blocks, c_.block_size, heads, c_.head_dim);
      case Layout::kContiguous:
        return ContiguousBsnd(blocks, c_.block_size, heads, c_.head_dim);
    }
    return {};
  }

  void SetStrides(const StridedShape& shape, CacheLayout& layout) const {
    const auto& st = shape.strides;
    layout.block_stride = st[0];
    layout.channel_stride = st[3];
    layout.name = "strided";
    if (c_.layout == Layout::kPaNz) {
      layout.channel_chunk_stride = st[1];
      layout.row_stride = st[2];
      layout.head_stride = st[1] * (c_.head_dim / shape.dims[3]);
    } else {
      layout.row_stride = st[1];
      layout.head_stride = st[2];
    }
  }

  const ProblemMemory& memory_;
  const Case& c_;
};

}  // namespace

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
  if (memory_->c.is_qnr()) return qkvfuse::MakePlan(QnrSpec(), options);
  return qkvfuse::MakePlan(DrqSpec(), options);
}

}  // namespace qkvfuse::cases
