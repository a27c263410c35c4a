// Fused kernels: one head group of a tile of tokens, Measure (sums of squares of all heads, then
// their reciprocal roots together), then Emit (normalise, rotate, store). Channels are contiguous
// and half a head is a multiple of two vectors, so there are no tails.
#include "kernels/block-inl.h"
#include "kernels/coefficients-inl.h"
#include "kernels/emit-inl.h"
#include "kernels/norm-inl.h"

#if defined(QKVFUSE_KERNELS_GROUP_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QKVFUSE_KERNELS_GROUP_INL_H_
#undef QKVFUSE_KERNELS_GROUP_INL_H_
#else
#define QKVFUSE_KERNELS_GROUP_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace qkvfuse::kernels {
namespace HWY_NAMESPACE {

/// Nearly all models of today have it.
inline constexpr int64_t kCommonHeadDim = 128;

/// The destinations of a group.
template <SinkKind kSink>
struct Outputs {
  Destination store[2];
  Destination codes;

  explicit HWY_INLINE Outputs(const GroupTask& task) {
    if constexpr (Stores(kSink)) store[0] = task.dense[0];
    if constexpr (StoresTwice(kSink)) store[1] = task.dense[1];
    if constexpr (Quantises(kSink)) codes = task.codes;
  }

  /// The rows of one head that a token's sink writes.
  template <SinkKind kTokenSink>
  [[nodiscard]] HWY_INLINE HeadOutput Of(int64_t token, int64_t row, int64_t head) const {
    HeadOutput out;
    if constexpr (Stores(kTokenSink)) out.store[0] = RowOf<uint16_t>(store[0], token, row, head);
    if constexpr (StoresTwice(kTokenSink)) {
      out.store[1] = RowOf<uint16_t>(store[1], token, row, head);
    }
    if constexpr (Quantises(kTokenSink)) out.codes = RowOf<int8_t>(codes, token, row, head);
    return out;
  }
};

/// kHeadDim is the head_dim where the kernel is made for one, which saves it the counting of its
/// loops, else kAnyHeadDim.
/// What the heads of a block are emitted from. `source` yields head h of the block's i-th token at
/// (token + i, head + h).
struct BlockSource {
  Source source;
  int64_t token;
  int64_t head;
  const float* inverse;      // [heads, tokens]; of a norm
  ReciprocalBounds* bounds;  // null where nothing is quantised
};

/// Brings a head that will be measured soon into the cache.
template <class SourceType>
HWY_INLINE void FetchHead(const Source& source, int64_t token, int64_t head, int64_t head_dim) {
  constexpr int64_t kLineBytes = 64;
  const char* const data =
      static_cast<const char*>(InputOf<SourceType>(source, token, head, head_dim).data);
  const int64_t bytes = head_dim * int64_t{sizeof(typename SourceType::Element)};
  for (int64_t at = 0; at < bytes; at += kLineBytes) hwy::Prefetch(data + at);
}

/// Emits a block, head by head, so that the tokens of a head share its bounds and, in a cache
/// that keeps the rows of a head together, write next to each other. cache_rows[i] is that of the
/// block's i-th token.
template <class SourceType, class Store, Transform kTransform, SinkKind kSink, LaneOrder kOrder,
          int kLanes, int64_t kHeadDim>
HWY_INLINE void EmitBlock(const GroupTask& task, const Tile& tile, const Block& block,
                          const BlockSource& from, const int64_t* cache_rows) {
  // Copies, because stores of vectors may alias everything that is read through a reference.
  const Source source = from.source;
  const Outputs<kSink> outputs(task);
  const int64_t head_dim = kHeadDim == kAnyHeadDim ? task.head_dim : kHeadDim;
  const int64_t stride = 4 * CoefficientStride(head_dim);
  const float* const coefficients = tile.coefficients + block.first * stride;
  const float* const inverse = from.inverse;
  const int64_t first_token = tile.first_token + block.first;
  const int64_t source_token = from.token;
  const int64_t tokens = block.tokens;
  // The same heads of the next block.
  const bool fetches_ahead = source_token + 2 * tokens <= tile.prefetch_end;
  for (int64_t h = 0; h < block.heads; ++h) {
    const int64_t head = block.first_head + h;
    CodeScales scales;
    if constexpr (Quantises(kSink)) {
      scales = ScalesOf<HasOffset(kSink)>(
          FloatTag<kLanes>(), task.scale + head * head_dim,
          HasOffset(kSink) ? task.offset + head * head_dim : nullptr, head_dim, from.bounds);
    }
    for (int64_t i = 0; i < tokens; ++i) {
      const HeadInput in = InputOf<SourceType>(source, source_token + i, from.head + h, head_dim);
      const float factor = kTransform == Transform::kNormRope ? inverse[h * tokens + i] : 1.0f;
      const Coefficients at{coefficients + i * stride};
      const int64_t row = cache_rows[i];
      if (fetches_ahead) {
        FetchHead<SourceType>(source, source_token + tokens + i, from.head + h, head_dim);
      }
      if (HWY_LIKELY(row != kSkippedRow)) {
        HeadEmitter<SourceType, Store, kTransform, kSink, kOrder, kLanes, kHeadDim>::Emit(
            head_dim, in, outputs.template Of<kSink>(first_token + i, row, head), scales, factor,
            at);
      } else if constexpr (HasDenseAndCache(kSink)) {
        // Only the dense output of a sink that also writes the cache is left.
        constexpr SinkKind kDense = SinkKind::kStore;
        HeadEmitter<SourceType, Store, kTransform, kDense, kOrder, kLanes, kHeadDim>::Emit(
            head_dim, in, outputs.template Of<kDense>(first_token + i, row, head), scales, factor,
            at);
      }
    }
  }
}

template <class SourceType, class Store, Transform kTransform, SinkKind kSink, int kLanes,
          int64_t kHeadDim>
struct FusedGroup {
  // Only bfloat16 gains from even-odd order, and only on its way to 16-bit sinks.
  static constexpr LaneOrder kOrder =
      std::is_same_v<SourceType, BFloat16Source> && !Quantises(kSink) && kLanes > 1
          ? LaneOrder::kEvenOdd
          : LaneOrder::kNatural;

  static void Run(const GroupTask& task, const Tile& tile) {
    const int64_t head_bytes = HeadDim(task) * int64_t{sizeof(typename SourceType::Element)};
    // The tokens of a head share its bounds, and the lines of a cache that keeps pieces of a
    // head's rows together.
    const bool writes_cache =
        Quantises(kSink) || kSink == SinkKind::kStoreTwice || task.dense[0].is_cache;
    const BlockShape shape = writes_cache ? BlockShape::kManyTokens : BlockShape::kManyHeads;
    // Out here, because a kernel that sees them stored would keep them all in vectors, and spill.
    std::conditional_t<Quantises(kSink), ReciprocalBounds, char> bounds;
    ForEachBlock(shape, tile, head_bytes, [&](const Block& block) HWY_ATTR {
      HWY_ALIGN float inverse[kBlockHeads];  // [heads, tokens]
      if constexpr (kTransform == Transform::kNormRope) {
        Measure(task, tile, block, inverse);
      }
      const BlockSource from{task.source, tile.first_token + block.first, block.first_head, inverse,
                             BoundsIn(bounds)};
      EmitBlock<SourceType, Store, kTransform, kSink, kOrder, kLanes, kHeadDim>(
          task, tile, block, from, tile.cache_rows + block.first);
    });
  }

 private:
  static HWY_INLINE ReciprocalBounds* BoundsIn(ReciprocalBounds& bounds) { return &bounds; }
  static HWY_INLINE ReciprocalBounds* BoundsIn(char&) { return nullptr; }

  static HWY_INLINE int64_t HeadDim(const GroupTask& task) {
    return kHeadDim == kAnyHeadDim ? task.head_dim : kHeadDim;
  }

  static HWY_INLINE void Measure(const GroupTask& task, const Tile& tile, const Block& block,
                                 float* inverse) {
    const int64_t head_dim = HeadDim(task);
    for (int64_t i = 0; i < block.tokens; ++i) {
      const int64_t token = tile.first_token + block.first + i;
      for (int64_t head = 0; head < block.heads; ++head) {
        const HeadInput in =
            InputOf<SourceType>(task.source, token, block.first_head + head, head_dim);
        inverse[head * block.tokens + i] = SumOfSquares<SourceType, kOrder, kLanes>(in, head_dim);
      }
    }
    ReciprocalRoots(inverse, block.heads * block.tokens, head_dim, task.epsilon);
  }
};

/// The kernels of one list line for a number of lanes.
template <class SourceType, class Store, Transform kTransform, SinkKind kSink, int kLanes,
          int64_t kHeadDim = kAnyHeadDim>
SelectedKernels KernelsOf() {
  using Group = FusedGroup<SourceType, Store, kTransform, kSink, kLanes, kHeadDim>;
  using Table = std::conditional_t<Store::kDType == DType::kFloat16, HalfSource, BFloat16Source>;
  SelectedKernels kernels;
  kernels.group = &Group::Run;
  if constexpr (kTransform != Transform::kNone) {
    kernels.coefficients = &BuildCoefficients<Table, Group::kOrder,
                                              kTransform == Transform::kNormRope, kLanes, kHeadDim>;
  }
  return kernels;
}

/// The widest vectors of which two divide half a head.
template <class SourceType, class Store, Transform kTransform, SinkKind kSink>
SelectedKernels KernelsForHeadDim(int64_t head_dim) {
#if HWY_TARGET == HWY_SCALAR
  (void)head_dim;
  return KernelsOf<SourceType, Store, kTransform, kSink, 1>();
#else
  if (head_dim == kCommonHeadDim) {
    return KernelsOf<SourceType, Store, kTransform, kSink, kMaxLanes, kCommonHeadDim>();
  }
  if constexpr (kMaxLanes >= 16) {
    if (head_dim % 64 == 0) return KernelsOf<SourceType, Store, kTransform, kSink, 16>();
  }
  if constexpr (kMaxLanes >= 8) {
    if (head_dim % 32 == 0) return KernelsOf<SourceType, Store, kTransform, kSink, 8>();
  }
  return KernelsOf<SourceType, Store, kTransform, kSink, 4>();
#endif
}

}  // namespace HWY_NAMESPACE
}  // namespace qkvfuse::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
