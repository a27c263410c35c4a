// Allocation of the tensors of a case, and their views on both sides.
#include <algorithm>

#include "cases/problem_memory.h"
#include "cases/strides.h"

namespace qkvfuse::cases {
namespace {

constexpr size_t kOutputMargin = 256;  // poisoned bytes on both sides of an output

StridedShape CacheShape(const Case& c, TensorId id) {
  const bool is_k = id == TensorId::kKCache;
  const CacheCase& cache = is_k ? c.k_cache : c.v_cache;
  const int64_t heads = is_k ? c.heads.k : c.heads.v;
  const int64_t head_dim = is_k ? c.head_dim : c.v_head_dim();
  const int64_t blocks = BlockCount(c);
  const int64_t rows = c.block_size;
  const int64_t x = SplitOf(cache);
  switch (c.layout) {
    case Layout::kPaNz: {
      const int64_t chunk = ChunkOf(cache);
      return StridedShape::Contiguous({blocks, heads * head_dim / chunk, rows, chunk});
    }
    case Layout::kPaged:
    case Layout::kContiguous:
      return StridedShape::Contiguous({blocks, rows, heads, head_dim});
    case Layout::kHeadsFirst:
      return StridedShape::Contiguous({blocks, heads, rows, head_dim});
    case Layout::kXSplit:
      if (!is_k) return StridedShape::Contiguous({blocks, heads, head_dim, rows});
      return StridedShape::Contiguous({blocks, heads, head_dim / x, rows, x});
    case Layout::kTransposed:
      return StridedShape::Contiguous({blocks, heads, head_dim, rows});
    case Layout::kShuffled:
      if (is_k) return StridedShape::Contiguous({blocks, heads, head_dim / x, rows, x});
      return StridedShape::Contiguous({blocks, heads, rows / x, head_dim, x});
  }
  return {};
}

StridedShape RowShape(const Case& c, int64_t heads, int64_t head_dim) {
  return StridedShape::Contiguous({c.tokens.batch, c.tokens.sequence, heads, head_dim});
}

/// Packed rows; v heads of another size make them one long head.
StridedShape PackedShape(const Case& c) {
  if (c.v_head_dim() == c.head_dim) return RowShape(c, c.heads.total(), c.head_dim);
  return RowShape(c, 1, c.channels());
}

StridedShape TableShape(const Case& c) {
  const bool is_joined = c.is_fused() && c.fused.table == RopeSpec::Table::kJoined;
  const bool half_width = c.is_fused() && c.fused.half_width;
  const int64_t entries = half_width && !is_joined ? c.rotary_dim() / 2 : c.rotary_dim();
  if (c.is_fused() && c.fused.table != RopeSpec::Table::kRowPerToken) {
    return StridedShape::Contiguous({c.fused.max_positions, entries});
  }
  return StridedShape::Contiguous({c.tokens.batch, c.tokens.sequence, entries});
}

StridedShape GammaShape(const Case& c, NormSpec::Kind kind, int64_t heads, int64_t head_dim) {
  if (!c.is_fused() || kind != NormSpec::Kind::kFullWidth) {
    return StridedShape::Contiguous({head_dim});
  }
  return StridedShape::Contiguous({heads, head_dim});
}

StridedShape SlotShape(const Case& c) {
  switch (c.slot_mode) {
    case SlotMode::kSlotPerToken:
      return StridedShape::Contiguous({c.tokens.total()});
    case SlotMode::kStartPerSequence:
      return StridedShape::Contiguous({c.tokens.batch});
    case SlotMode::kPageTable:
      return StridedShape::Contiguous({c.fused.sequences, PagesOf(c)});
  }
  return {};
}

StridedShape ScaleShape(const CacheCase& cache, int64_t heads, int64_t head_dim) {
  if (cache.granularity == ScaleGranularity::kTensor) return StridedShape::Contiguous({1});
  if (cache.granularity == ScaleGranularity::kHead) return StridedShape::Contiguous({heads});
  return StridedShape::Contiguous({heads, head_dim});
}

StridedShape ShapeOf(const Case& c, TensorId id) {
  const int64_t tokens = c.tokens.total();
  switch (id) {
    case TensorId::kX:
      return PackedShape(c);
    case TensorId::kQ:
      return RowShape(c, c.heads.q, c.head_dim);
    case TensorId::kK:
      return RowShape(c, c.heads.k, c.head_dim);
    case TensorId::kV:
      return RowShape(c, c.heads.v, c.v_head_dim());
    case TensorId::kQGamma:
      return GammaShape(c, c.fused.q_norm, c.heads.q, c.head_dim);
    case TensorId::kKGamma:
      return GammaShape(c, c.fused.k_norm, c.heads.k, c.head_dim);
    case TensorId::kVGamma:
      return GammaShape(c, c.fused.v_norm, c.heads.v, c.v_head_dim());
    case TensorId::kCos:
    case TensorId::kSin:
      return TableShape(c);
    case TensorId::kPositions:
      if (c.fused.sections == RopeSpec::Sections::kNone) return StridedShape::Contiguous({tokens});
      return StridedShape::Contiguous({3, tokens});
    case TensorId::kSlots:
      return SlotShape(c);
    case TensorId::kLengths:
      return StridedShape::Contiguous({c.fused.sequences});
    case TensorId::kRowOffsets:
      return StridedShape::Contiguous({c.fused.sequences + 1});
    case TensorId::kQScale:
    case TensorId::kQOffset:
      return ScaleShape(c.fused.q_out, c.heads.q, c.head_dim);
    case TensorId::kKScale:
    case TensorId::kKOffset:
      return ScaleShape(c.k_cache, c.heads.k, c.head_dim);
    case TensorId::kVScale:
    case TensorId::kVOffset:
      return ScaleShape(c.v_cache, c.heads.v, c.v_head_dim());
    case TensorId::kWeightScale:
    case TensorId::kBias:
      if (c.v_head_dim() != c.head_dim) return StridedShape::Contiguous({1, c.channels()});
      return StridedShape::Contiguous({c.heads.total(), c.head_dim});
    case TensorId::kTokenScale:
      return StridedShape::Contiguous({tokens});
    case TensorId::kQSums:
    case TensorId::kKSums:
      return StridedShape::Contiguous({tokens, c.fused.gathered_heads});
    case TensorId::kQOut:
    case TensorId::kQBeforeQuant:
      return RowShape(c, c.heads.q, c.head_dim);
    case TensorId::kKOut:
      return RowShape(c, c.heads.k, c.head_dim);
    case TensorId::kVOut:
      return RowShape(c, c.heads.v, c.v_head_dim());
    case TensorId::kQScaleOut:
      return StridedShape::Contiguous({c.tokens.batch, c.tokens.sequence, c.heads.q});
    case TensorId::kQHeadSums:
      return StridedShape::Contiguous({tokens, c.heads.q});
    case TensorId::kKHeadSums:
      return StridedShape::Contiguous({tokens, c.heads.k});
    case TensorId::kKCache:
    case TensorId::kVCache:
      return CacheShape(c, id);
    case TensorId::kKScaleCache:
      return StridedShape::Contiguous({BlockCount(c), c.block_size, c.heads.k});
    case TensorId::kVScaleCache:
      return StridedShape::Contiguous({BlockCount(c), c.block_size, c.heads.v});
  }
  return {};
}

DType DTypeOf(const Case& c, TensorId id) {
  switch (id) {
    case TensorId::kX:
    case TensorId::kQ:
    case TensorId::kK:
    case TensorId::kV:
      return c.x_dtype;
    case TensorId::kSlots:
    case TensorId::kLengths:
    case TensorId::kRowOffsets:
      return c.slot_dtype;
    case TensorId::kPositions:
      return c.fused.position_dtype;
    case TensorId::kBias:
      return c.bias.value_or(DType::kFloat32);
    case TensorId::kKCache:
      return c.k_cache.dtype;
    case TensorId::kVCache:
      return c.v_cache.dtype;
    case TensorId::kQGamma:
    case TensorId::kKGamma:
    case TensorId::kVGamma:
      return c.is_fused() ? c.fused.gamma_dtype : c.dtype;
    case TensorId::kCos:
    case TensorId::kSin:
      return c.is_fused() ? c.fused.table_dtype : c.dtype;
    case TensorId::kQOut:
      return c.is_fused() ? c.fused.q_out.dtype : c.dtype;
    case TensorId::kQBeforeQuant:
    case TensorId::kKOut:
    case TensorId::kVOut:
      return c.is_fused() ? c.fused.dense_dtype : c.dtype;
    default:
      return DType::kFloat32;  // scales, offsets and sums
  }
}

TensorView ViewOf(const Case& c, TensorId id, const Placement& place, const Buffer& buffer) {
  const DType dtype = DTypeOf(c, id);
  return {dtype, place.shape, buffer.data() + place.first * SizeOf(dtype)};
}

// Builds one case's tensors, inputs first.
class Builder {
 public:
  explicit Builder(ProblemMemory& memory) : memory_(memory), c_(memory.c) {}

  void Build() {
    for (size_t i = 0; i < kTensorCount; ++i) {
      const auto id = static_cast<TensorId>(i);
      if (!Has(c_, id)) continue;
      if (id < TensorId::kQOut) {
        AddInput(id);
      } else if (IsOnX(id)) {
        AddOnX(id);
      } else if (c_.interleaved && (id == TensorId::kKCache || id == TensorId::kVCache)) {
        AddInterleaved(id);
      } else {
        AddOutput(id);
      }
    }
  }

 private:
  [[nodiscard]] bool IsOnX(TensorId id) const {
    return (id == TensorId::kQOut && c_.in_place.q) || (id == TensorId::kKOut && c_.in_place.k) ||
           (id == TensorId::kVOut && c_.in_place.v);
  }

  [[nodiscard]] Placement PlaceOf(TensorId id, const StridedShape& shape) const {
    const int head_axis = std::max(shape.rank - 2, shape.rank == 2 ? 1 : 0);
    return Place(shape, c_.stride(id), head_axis);
  }

  size_t AddStorage(TensorId id, const Placement& place, const Buffer* x) {
    const auto bytes = static_cast<size_t>(place.elements * SizeOf(DTypeOf(c_, id)));
    const bool is_usual = memory_.placements.guard == Guard::kUsual;
    const BufferPlacement place_in_buffer =
        is_usual ? BufferPlacement{BufferPlacement::Side::kFront, kOutputMargin}
                 : memory_.placements.Of(id, DTypeOf(c_, id));
    memory_.outputs.push_back(
        std::make_unique<OutputStorage>(bytes, place_in_buffer, is_usual ? kOutputMargin : 0, x));
    return memory_.outputs.size() - 1;
  }

  void SetOutput(TensorId id, const Placement& place, size_t storage) {
    const OutputStorage& output = *memory_.outputs[storage];
    memory_.member(id) = {ViewOf(c_, id, place, output.library),
                          ViewOf(c_, id, place, output.reference), storage};
  }

  void AddInput(TensorId id) {
    const Placement place = PlaceOf(id, ShapeOf(c_, id));
    const auto bytes = static_cast<size_t>(place.elements * SizeOf(DTypeOf(c_, id)));
    memory_.inputs.push_back(
        std::make_unique<Buffer>(bytes, memory_.placements.Of(id, DTypeOf(c_, id))));
    const TensorView view = ViewOf(c_, id, place, *memory_.inputs.back());
    memory_.member(id) = {view, view};
    // The library's x is the storage that its in-place outputs change; the reference's is not.
    if (id != TensorId::kX || !c_.in_place.any()) return;
    const size_t storage = AddStorage(id, place, memory_.inputs.back().get());
    memory_.member(id).library = ViewOf(c_, id, place, memory_.outputs[storage]->library);
    x_storage_ = storage;
    x_place_ = place;
  }

  void AddOutput(TensorId id) {
    const Placement place = PlaceOf(id, ShapeOf(c_, id));
    SetOutput(id, place, AddStorage(id, place, nullptr));
  }

  void AddOnX(TensorId id) {
    Placement place = x_place_;
    const int64_t first_head = id == TensorId::kQOut   ? 0
                               : id == TensorId::kKOut ? c_.heads.q
                                                       : c_.heads.q + c_.heads.k;
    place.first += first_head * place.shape.strides[2];
    place.shape.dims[2] = ShapeOf(c_, id).dims[2];
    SetOutput(id, place, x_storage_);
  }

  // Rows (chunks in PA_NZ) of K and V alternate in one storage.
  void AddInterleaved(TensorId id) {
    StridedShape both = ShapeOf(c_, id);
    both.dims[1] *= 2;
    Placement place = PlaceOf(id, both);
    if (id == TensorId::kKCache) cache_storage_ = AddStorage(id, place, nullptr);
    if (id == TensorId::kVCache) place.first += place.shape.strides[1];
    place.shape.dims[1] /= 2;
    place.shape.strides[1] *= 2;
    SetOutput(id, place, cache_storage_);
  }

  ProblemMemory& memory_;
  const Case& c_;
  size_t x_storage_ = 0;
  Placement x_place_;
  size_t cache_storage_ = 0;
};

Tensors TensorsOf(const ProblemMemory& memory) {
  const auto data = [&](TensorId id) { return memory.member(id).library.data; };
  Tensors t;
  t.x = data(TensorId::kX);
  t.q = data(TensorId::kQ);
  t.k = data(TensorId::kK);
  t.v = data(TensorId::kV);
  t.q_gamma = data(TensorId::kQGamma);
  t.k_gamma = data(TensorId::kKGamma);
  t.v_gamma = data(TensorId::kVGamma);
  t.cos = data(TensorId::kCos);
  t.sin = data(TensorId::kSin);
  t.positions = data(TensorId::kPositions);
  t.slots = data(TensorId::kSlots);
  t.lengths = data(TensorId::kLengths);
  t.row_offsets = data(TensorId::kRowOffsets);
  t.q_scale = data(TensorId::kQScale);
  t.k_scale = data(TensorId::kKScale);
  t.v_scale = data(TensorId::kVScale);
  t.q_offset = data(TensorId::kQOffset);
  t.k_offset = data(TensorId::kKOffset);
  t.v_offset = data(TensorId::kVOffset);
  t.weight_scale = data(TensorId::kWeightScale);
  t.token_scale = data(TensorId::kTokenScale);
  t.bias = data(TensorId::kBias);
  t.q_sums = data(TensorId::kQSums);
  t.k_sums = data(TensorId::kKSums);
  t.q_out = data(TensorId::kQOut);
  t.q_before_quant = data(TensorId::kQBeforeQuant);
  t.k_out = data(TensorId::kKOut);
  t.v_out = data(TensorId::kVOut);
  t.q_scale_out = data(TensorId::kQScaleOut);
  t.q_head_sums = data(TensorId::kQHeadSums);
  t.k_head_sums = data(TensorId::kKHeadSums);
  t.k_cache = data(TensorId::kKCache);
  t.v_cache = data(TensorId::kVCache);
  t.k_scale_cache = data(TensorId::kKScaleCache);
  t.v_scale_cache = data(TensorId::kVScaleCache);
  return t;
}

reference::Problem ReferenceOf(const ProblemMemory& memory) {
  const Case& c = memory.c;
  const auto view = [&](TensorId id) { return memory.member(id).reference; };
  reference::Problem p;
  p.has_norm = c.is_qnr();
  p.epsilon = c.epsilon;
  p.batch = c.tokens.batch;
  p.sequence = c.tokens.sequence;
  p.q_heads = c.heads.q;
  p.k_heads = c.heads.k;
  p.v_heads = c.heads.v;
  p.head_dim = c.head_dim;
  p.x = view(TensorId::kX);
  p.cos = view(TensorId::kCos);
  p.sin = view(TensorId::kSin);
  p.q_gamma = view(TensorId::kQGamma);
  p.k_gamma = view(TensorId::kKGamma);
  p.weight_scale = view(TensorId::kWeightScale);
  p.token_scale = view(TensorId::kTokenScale);
  p.bias = view(TensorId::kBias);
  p.q_out = view(TensorId::kQOut);
  p.q_before_quant = view(TensorId::kQBeforeQuant);
  p.k_out = view(TensorId::kKOut);
  p.v_out = view(TensorId::kVOut);
  p.slot_rule = c.slot_mode == SlotMode::kSlotPerToken ? reference::SlotRule::kPerToken
                                                       : reference::SlotRule::kPerSequence;
  p.slots = view(TensorId::kSlots);
  p.cache_order =
      c.layout == Layout::kPaNz ? reference::CacheOrder::kPaNz : reference::CacheOrder::kNd;
  p.k_cache = {view(TensorId::kKCache), view(TensorId::kKScale), view(TensorId::kKOffset)};
  p.v_cache = {view(TensorId::kVCache), view(TensorId::kVScale), view(TensorId::kVOffset)};
  return p;
}

}  // namespace

void BuildTensors(ProblemMemory& memory) {
  Builder(memory).Build();
  memory.tensors = TensorsOf(memory);
  if (memory.c.is_fused()) {
    memory.fused_reference = FusedReferenceOf(memory);
  } else {
    memory.reference = ReferenceOf(memory);
  }
}

}  // namespace qkvfuse::cases
