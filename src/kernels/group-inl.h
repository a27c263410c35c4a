// Fused kernels: one head group of a tile of tokens, Measure (sums of squares of all heads, then
// their reciprocal roots together), then Emit (normalise, rotate, store). Channels are contiguous
// and half a head is a multiple of two vectors, so there are no tails.
#include "kernels/coefficients-inl.h"
#include "kernels/norm-inl.h"
#include "kernels/rope-inl.h"
#include "kernels/sinks-inl.h"

#if defined(QKVFUSE_KERNELS_GROUP_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QKVFUSE_KERNELS_GROUP_INL_H_
#undef QKVFUSE_KERNELS_GROUP_INL_H_
#else
#define QKVFUSE_KERNELS_GROUP_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace qkvfuse::kernels {
namespace HWY_NAMESPACE {

/// Heads that are measured together; their rows stay in L1 until they are emitted.
inline constexpr int64_t kHeadBatch = 32;

template <class SourceType, class Store, Transform kTransform, SinkKind kSink, int kLanes>
struct FusedGroup {
  // Only bfloat16 gains from even-odd order, and only on its way to 16-bit sinks.
  static constexpr LaneOrder kOrder =
      std::is_same_v<SourceType, BFloat16Source> && !Quantises(kSink) && kLanes > 1
          ? LaneOrder::kEvenOdd
          : LaneOrder::kNatural;
  static constexpr bool kCopiesBits =
      kTransform == Transform::kNone && sizeof(typename SourceType::Element) == sizeof(uint16_t);
  using D = FloatTag<kLanes>;

  static void Run(const GroupTask& task, const Tile& tile) {
    for (int64_t i = 0; i < tile.tokens; ++i) {
      const int64_t token = tile.first_token + i;
      const int64_t row = tile.cache_rows[i];
      const Coefficients coefficients{tile.coefficients + i * 4 * CoefficientStride(task.head_dim),
                                      CoefficientStride(task.head_dim)};
      if (row != kSkippedRow) {
        RunToken<kSink>(task, tile, token, row, coefficients);
        continue;
      }
      // Only the dense output of a sink that also writes the cache is left.
      if constexpr (Stores(kSink) && kSink != SinkKind::kStore) {
        RunToken<SinkKind::kStore>(task, tile, token, row, coefficients);
      }
    }
  }

 private:
  template <SinkKind kTokenSink>
  static HWY_INLINE void RunToken(const GroupTask& task, const Tile& tile, int64_t token,
                                  int64_t row, Coefficients coefficients) {
    HWY_ALIGN float inverse[kHeadBatch];
    const int64_t end = tile.first_head + tile.heads;
    for (int64_t first = tile.first_head; first < end; first += kHeadBatch) {
      const int64_t heads = HWY_MIN(kHeadBatch, end - first);
      if constexpr (kTransform == Transform::kNormRope) {
        Measure(task, token, first, heads, inverse);
      }
      for (int64_t head = 0; head < heads; ++head) {
        const HeadInput in = InputOf<SourceType>(task.source, token, first + head, task.head_dim);
        const HeadOutput out = OutputOf<kTokenSink>(task, token, row, first + head);
        EmitHead<kTokenSink>(task, in, out, inverse[head], coefficients);
      }
    }
  }

  static HWY_INLINE void Measure(const GroupTask& task, int64_t token, int64_t first, int64_t heads,
                                 float* inverse) {
    for (int64_t head = 0; head < heads; ++head) {
      const HeadInput in = InputOf<SourceType>(task.source, token, first + head, task.head_dim);
      inverse[head] = SumOfSquares<SourceType, kOrder, kLanes>(in, task.head_dim);
    }
    ReciprocalRoots(inverse, heads, task.head_dim, task.epsilon);
  }

  template <SinkKind kTokenSink>
  static HWY_INLINE HeadOutput OutputOf(const GroupTask& task, int64_t token, int64_t row,
                                        int64_t head) {
    HeadOutput out;
    if constexpr (Stores(kTokenSink)) {
      out.store[0] = RowOf<uint16_t>(task.dense[0], token, row, head);
    }
    if constexpr (StoresTwice(kTokenSink)) {
      out.store[1] = RowOf<uint16_t>(task.dense[1], token, row, head);
    }
    if constexpr (Quantises(kTokenSink)) {
      out.codes = RowOf<int8_t>(task.codes, token, row, head);
      out.scale = task.scale + head * task.head_dim;
      if constexpr (HasOffset(kTokenSink)) out.offset = task.offset + head * task.head_dim;
    }
    return out;
  }

  template <SinkKind kTokenSink>
  static HWY_INLINE void EmitHead(const GroupTask& task, const HeadInput& in, const HeadOutput& out,
                                  float inverse, Coefficients coefficients) {
    if constexpr (kTransform == Transform::kNone) {
      EmitPlain<kTokenSink>(task, in, out);
    } else {
      EmitRotated<kTokenSink>(task, in, out, inverse, coefficients);
    }
  }

  template <SinkKind kTokenSink>
  static HWY_INLINE void EmitPlain(const GroupTask& task, const HeadInput& in,
                                   const HeadOutput& out) {
    const D d;
    VecOf<D> a, b;
    for (int64_t channel = 0; channel < task.head_dim; channel += 2 * kLanes) {
      if constexpr (kCopiesBits && Stores(kTokenSink)) {
        CopyPair(d, in, out, channel);
        if constexpr (Quantises(kTokenSink)) {
          constexpr SinkKind kCodes =
              HasOffset(kTokenSink) ? SinkKind::kInt8Offset : SinkKind::kInt8;
          SourceType::template LoadPair<kOrder>(d, in, channel, a, b);
          SinkPair<Store, kCodes, kOrder>(d, a, b, out, channel);
        }
      } else {
        SourceType::template LoadPair<kOrder>(d, in, channel, a, b);
        SinkPair<Store, kTokenSink, kOrder>(d, a, b, out, channel);
      }
    }
  }

  template <SinkKind kTokenSink>
  static HWY_INLINE void EmitRotated(const GroupTask& task, const HeadInput& in,
                                     const HeadOutput& out, float inverse,
                                     Coefficients coefficients) {
    const D d;
    const int64_t half = task.head_dim / 2;
    VecOf<D> a0, a1, b0, b1, lo0, lo1, hi0, hi1;
    const auto factor = hn::Set(d, kTransform == Transform::kNormRope ? inverse : 1.0f);
    for (int64_t j = 0; j < half; j += 2 * kLanes) {
      SourceType::template LoadPair<kOrder>(d, in, j, a0, a1);
      SourceType::template LoadPair<kOrder>(d, in, j + half, b0, b1);
      if constexpr (kTransform == Transform::kNormRope) {
        a0 = hn::Mul(a0, factor);
        a1 = hn::Mul(a1, factor);
        b0 = hn::Mul(b0, factor);
        b1 = hn::Mul(b1, factor);
      }
      Rotate(d, coefficients, j, a0, b0, lo0, hi0);
      Rotate(d, coefficients, j + kLanes, a1, b1, lo1, hi1);
      SinkPair<Store, kTokenSink, kOrder>(d, lo0, lo1, out, j);
      SinkPair<Store, kTokenSink, kOrder>(d, hi0, hi1, out, j + half);
    }
  }
};

/// The kernels of one list line for a number of lanes.
template <class SourceType, class Store, Transform kTransform, SinkKind kSink, int kLanes>
SelectedKernels KernelsOf() {
  using Group = FusedGroup<SourceType, Store, kTransform, kSink, kLanes>;
  using Table = std::conditional_t<Store::kDType == DType::kFloat16, HalfSource, BFloat16Source>;
  SelectedKernels kernels;
  kernels.group = &Group::Run;
  if constexpr (kTransform != Transform::kNone) {
    kernels.coefficients =
        &BuildCoefficients<Table, Group::kOrder, kTransform == Transform::kNormRope, kLanes>;
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
