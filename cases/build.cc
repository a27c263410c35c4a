// Allocation of the tensors of a case, and their views on both sides.
#include <algorithm>

#include "cases/problem_memory.h"
#include "cases/strides.h"

namespace qkvfuse::cases {
namespace {

constexpr size_t kOutputMargin = 256;  // poisoned bytes on both sides of an output

StridedShape CacheShape(const Case& c, const CacheCase& cache, int64_t heads) {
  if (c.layout != Layout::kPaNz) {
    return StridedShape::Contiguous({BlockCount(c), c.block_size, heads, c.head_dim});
  }
  const int64_t chunk = ChunkOf(cache);
  return StridedShape::Contiguous({BlockCount(c), heads * c.head_dim / chunk, c.block_size, chunk});
}

StridedShape RowShape(const Case& c, int64_t heads) {
  return StridedShape::Contiguous({c.tokens.batch, c.tokens.sequence, heads, c.head_dim});
}

StridedShape ShapeOf(const Case& c, TensorId id) {
  switch (id) {
    case TensorId::kX:
      return RowShape(c, c.heads.total());
    case TensorId::kQGamma:
    case TensorId::kKGamma:
      return StridedShape::Contiguous({c.head_dim});
    case TensorId::kCos:
    case TensorId::kSin:
      return StridedShape::Contiguous({c.tokens.batch, c.tokens.sequence, c.head_dim});
    case TensorId::kSlots:
      return StridedShape::Contiguous(
          {c.slot_mode == SlotMode::kSlotPerToken ? c.tokens.total() : c.tokens.batch});
    case TensorId::kKScale:
    case TensorId::kKOffset:
      return StridedShape::Contiguous({c.heads.k, c.head_dim});
    case TensorId::kVScale:
    case TensorId::kVOffset:
      return StridedShape::Contiguous({c.heads.v, c.head_dim});
    case TensorId::kWeightScale:
    case TensorId::kBias:
      return StridedShape::Contiguous({c.heads.total(), c.head_dim});
    case TensorId::kTokenScale:
      return StridedShape::Contiguous({c.tokens.total()});
    case TensorId::kQOut:
    case TensorId::kQBeforeQuant:
      return RowShape(c, c.heads.q);
    case TensorId::kKOut:
      return RowShape(c, c.heads.k);
    case TensorId::kVOut:
      return RowShape(c, c.heads.v);
    case TensorId::kKCache:
      return CacheShape(c, c.k_cache, c.heads.k);
    case TensorId::kVCache:
      return CacheShape(c, c.v_cache, c.heads.v);
  }
  return {};
}

DType DTypeOf(const Case& c, TensorId id) {
  switch (id) {
    case TensorId::kX:
      return c.x_dtype;
    case TensorId::kSlots:
      return c.slot_dtype;
    case TensorId::kBias:
      return c.bias.value_or(DType::kFloat32);
    case TensorId::kKCache:
      return c.k_cache.dtype;
    case TensorId::kVCache:
      return c.v_cache.dtype;
    case TensorId::kKScale:
    case TensorId::kVScale:
    case TensorId::kKOffset:
    case TensorId::kVOffset:
    case TensorId::kWeightScale:
    case TensorId::kTokenScale:
      return DType::kFloat32;
    default:
      return c.dtype;
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
      } else if (c_.interleaved && id >= TensorId::kKCache) {
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
  t.q_gamma = data(TensorId::kQGamma);
  t.k_gamma = data(TensorId::kKGamma);
  t.cos = data(TensorId::kCos);
  t.sin = data(TensorId::kSin);
  t.slots = data(TensorId::kSlots);
  t.k_scale = data(TensorId::kKScale);
  t.v_scale = data(TensorId::kVScale);
  t.k_offset = data(TensorId::kKOffset);
  t.v_offset = data(TensorId::kVOffset);
  t.weight_scale = data(TensorId::kWeightScale);
  t.token_scale = data(TensorId::kTokenScale);
  t.bias = data(TensorId::kBias);
  t.q_out = data(TensorId::kQOut);
  t.q_before_quant = data(TensorId::kQBeforeQuant);
  t.k_out = data(TensorId::kKOut);
  t.v_out = data(TensorId::kVOut);
  t.k_cache = data(TensorId::kKCache);
  t.v_cache = data(TensorId::kVCache);
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
  memory.reference = ReferenceOf(memory);
}

}  // namespace qkvfuse::cases
