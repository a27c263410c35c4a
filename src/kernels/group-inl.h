// Fused kernels: one head group of a tile of tokens, Measure (sums of squares of all heads, then
// their reciprocal roots together), then Emit (normalise, rotate, store).
#include "kernels/block-inl.h"
#include "kernels/coefficients-inl.h"
#include "kernels/emit-inl.h"
#include "kernels/norm-inl.h"
#include "kernels/tables-inl.h"

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

/// What the heads of a block are emitted from. `source` yields head h of the block's i-th token at
/// (token + i, head + h).
struct BlockSource {
  Source source;
  int64_t token;
  int64_t head;
  const float* inverse;      // [heads, tokens]; of a norm
  ReciprocalBounds* bounds;  // null where nothing is quantised
};

/// Where the heads of one token of a block are read and written: the first head's rows.
template <class Element>
struct TokenRows {
  const Element* source;
  float token_scale;
  bool is_skipped;  // by the cache
  uint16_t* store[2];
  int8_t* codes;
};

/// The rows of a block's i-th token.
template <class SourceType, SinkKind kSink>
HWY_INLINE TokenRows<typename SourceType::Element> RowsOfToken(const GroupTask& task,
                                                               const BlockSource& from, int64_t i,
                                                               int64_t token, int64_t head,
                                                               int64_t cache_row) {
  const HeadInput in = InputOf<SourceType>(from.source, from.token + i, from.head, 0);
  TokenRows<typename SourceType::Element> rows{};
  rows.source = static_cast<const typename SourceType::Element*>(in.data);
  rows.token_scale = in.token_scale;
  rows.is_skipped = cache_row == kSkippedRow;
  const int64_t row = rows.is_skipped ? 0 : cache_row;
  if constexpr (Stores(kSink)) {
    rows.store[0] = RowOf<uint16_t>(task.dense[0], token, row, head).data;
  }
  if constexpr (StoresTwice(kSink)) {
    rows.store[1] = RowOf<uint16_t>(task.dense[1], token, row, head).data;
  }
  if constexpr (Quantises(kSink)) rows.codes = RowOf<int8_t>(task.codes, token, row, head).data;
  return rows;
}

/// The strides from head to head of a group, and what does not change from token to token.
template <SinkKind kSink>
struct HeadSteps {
  int64_t source;
  int64_t store[2];
  int64_t codes;
  const int64_t* store_pieces[2];
  const int64_t* code_pieces;

  explicit HWY_INLINE HeadSteps(const GroupTask& task, const Source& from)
      : source(from.head_stride),
        store{task.dense[0].head_stride, task.dense[1].head_stride},
        codes(task.codes.head_stride),
        store_pieces{task.dense[0].pieces, task.dense[1].pieces},
        code_pieces(task.codes.pieces) {}

  /// The outputs of the h-th head of a block.
  template <class Element>
  [[nodiscard]] HWY_INLINE HeadOutput Of(const TokenRows<Element>& rows, int64_t h) const {
    HeadOutput out;
    if constexpr (Stores(kSink)) {
      out.store[0].data = rows.store[0] + h * store[0];
      out.store[0].pieces = store_pieces[0];
    }
    if constexpr (StoresTwice(kSink)) {
      out.store[1].data = rows.store[1] + h * store[1];
      out.store[1].pieces = store_pieces[1];
    }
    if constexpr (Quantises(kSink)) {
      out.codes.data = rows.codes + h * codes;
      out.codes.pieces = code_pieces;
    }
    return out;
  }
};

/// Brings a head that will be measured soon into the cache.
HWY_INLINE void FetchHead(const void* head, int64_t bytes) {
  constexpr int64_t kLineBytes = 64;
  for (int64_t at = 0; at < bytes; at += kLineBytes) {
    hwy::Prefetch(static_cast<const char*>(head) + at);
  }
}

/// Whether a reciprocal root is that of a finite sum of squares, and finite: its head's normalised
/// channels are then small, about the root of head_dim at most.
HWY_INLINE bool IsTameRoot(float root) { return root > 0 && root <= hwy::HighestValue<float>(); }

/// Emits a block, head by head, so that the tokens of a head share its bounds and, in a cache
/// that keeps the rows of a head together, write next to each other. cache_rows[i] is that of the
/// block's i-th token. kHeadDim is the head_dim where the kernel is made for one, else kAnyHeadDim.
template <class SourceType, class Store, Transform kTransform, SinkKind kSink, LaneOrder kOrder,
          int kLanes, int64_t kHeadDim>
HWY_INLINE void EmitBlock(const GroupTask& task, const Tile& tile, const Block& block,
                          const BlockSource& from, const int64_t* cache_rows) {
  using Element = typename SourceType::Element;
  // In locals, because stores of vectors may alias everything that is read through a reference.
  const HeadSteps<kSink> steps(task, from.source);
  const int64_t head_dim = kHeadDim == kAnyHeadDim ? task.head_dim : kHeadDim;
  const int64_t stride = CoefficientStep(kTransform, head_dim);
  const float* const coefficients = tile.coefficients + block.first * stride;
  const int64_t tokens = block.tokens;
  const int64_t heads = block.heads;
  const float* factor = from.inverse;
  TokenRows<Element> rows[kTileTokens];
  for (int64_t i = 0; i < tokens; ++i) {
    rows[i] = RowsOfToken<SourceType, kSink>(task, from, i, tile.first_token + block.first + i,
                                             block.first_head, cache_rows[i]);
  }
  // The same heads of the next block, if there is one.
  const bool fetches_ahead = from.token + 2 * tokens <= tile.prefetch_end;
  const int64_t ahead = tokens * from.source.token_stride;
  // Nothing that is stored can be NaN then.
  const bool has_tame_coefficients = tile.has_tame_coefficients;
  HeadInput head_input = InputOf<SourceType>(from.source, from.token, from.head, head_dim);
  for (int64_t h = 0; h < heads; ++h) {
    CodeScales scales;
    if constexpr (Quantises(kSink)) {
      const int64_t channel = (block.first_head + h) * head_dim;
      scales = ScalesOf<HasOffset(kSink)>(FloatTag<kLanes>(), task.scale + channel,
                                          HasOffset(kSink) ? task.offset + channel : nullptr,
                                          head_dim, from.bounds);
    }
    for (int64_t i = 0; i < tokens; ++i, ++factor) {
      const TokenRows<Element>& token = rows[i];
      HeadInput in = head_input;  // of the block's first token
      in.data = token.source + h * steps.source;
      in.token_scale = token.token_scale;
      const float root = kTransform == Transform::kNormRope ? *factor : 1.0f;
      const Coefficients at{coefficients + i * stride};
      if (fetches_ahead) {
        FetchHead(static_cast<const Element*>(in.data) + ahead,
                  head_dim * int64_t{sizeof(Element)});
      }
      if (HWY_LIKELY(!token.is_skipped)) {
        const HeadOutput out = steps.Of(token, h);
        if constexpr (kTransform == Transform::kNormRope && kOrder == LaneOrder::kEvenOdd) {
          using Finite = typename Store::Finite;
          if (HWY_LIKELY(has_tame_coefficients && IsTameRoot(root))) {
            HeadEmitter<SourceType, Finite, kTransform, kSink, kOrder, kLanes, kHeadDim>::Emit(
                head_dim, in, out, scales, root, at);
            continue;
          }
        }
        HeadEmitter<SourceType, Store, kTransform, kSink, kOrder, kLanes, kHeadDim>::Emit(
            head_dim, in, out, scales, root, at);
      } else if constexpr (HasDenseAndCache(kSink)) {
        // Only the dense output of a sink that also writes the cache is left.
        HeadEmitter<SourceType, Store, kTransform, SinkKind::kStore, kOrder, kLanes,
                    kHeadDim>::Emit(head_dim, in, steps.Of(token, h), scales, root, at);
      }
    }
    NextHead<SourceType>(steps.source, head_dim, head_input);
  }
}

/// kHeadDim is the head_dim where the kernel is made for one, which saves it the counting of its
/// loops, else kAnyHeadDim.
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
    const int64_t tokens = block.tokens;
    const int64_t heads = block.heads;
    const int64_t head_stride = task.source.head_stride;
    for (int64_t i = 0; i < tokens; ++i) {
      const int64_t token = tile.first_token + block.first + i;
      HeadInput in = InputOf<SourceType>(task.source, token, block.first_head, head_dim);
      for (int64_t h = 0; h < heads; ++h) {
        inverse[h * tokens + i] = SumOfSquares<SourceType, kOrder, kLanes>(in, head_dim);
        NextHead<SourceType>(head_stride, head_dim, in);
      }
    }
    ReciprocalRoots(inverse, block.heads * block.tokens, head_dim, task.epsilon);
  }
};

/// The kernels of one list line for a number of lanes.
template <class SourceType, class Store, Transform kTransform, SinkKind kSink, int kLanes,
          int64_t kHeadDim = kAnyHeadDim>
SelectedKernels KernelsOf(const KernelKey& key) {
  using Group = FusedGroup<SourceType, Store, kTransform, kSink, kLanes, kHeadDim>;
  using Table = std::conditional_t<Store::kDType == DType::kFloat16, HalfSource, BFloat16Source>;
  SelectedKernels kernels;
  kernels.group = &Group::Run;
  if constexpr (kTransform != Transform::kNone) {
    constexpr bool kHasGamma = kTransform == Transform::kNormRope;
    if (key.has_plain_table && key.table == Store::kDType) {
      kernels.coefficients = &BuildCoefficients<Table, Group::kOrder, kHasGamma, kLanes, kHeadDim>;
    } else {
      kernels.coefficients = &BuildFromTables<Group::kOrder, kHasGamma, kLanes>;
    }
  }
  return kernels;
}

/// The widest vectors of which two divide half a head.
template <class SourceType, class Store, Transform kTransform, SinkKind kSink>
SelectedKernels KernelsForHeadDim(const KernelKey& key) {
#if HWY_TARGET == HWY_SCALAR
  return KernelsOf<SourceType, Store, kTransform, kSink, 1>(key);
#else
  if (key.head_dim == kCommonHeadDim) {
    return KernelsOf<SourceType, Store, kTransform, kSink, kMaxLanes, kCommonHeadDim>(key);
  }
  if constexpr (kMaxLanes >= 16) {
    if (key.head_dim % 64 == 0) return KernelsOf<SourceType, Store, kTransform, kSink, 16>(key);
  }
  if constexpr (kMaxLanes >= 8) {
    if (key.head_dim % 32 == 0) return KernelsOf<SourceType, Store, kTransform, kSink, 8>(key);
  }
  return KernelsOf<SourceType, Store, kTransform, kSink, 4>(key);
#endif
}

}  // namespace HWY_NAMESPACE
}  // namespace qkvfuse::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
