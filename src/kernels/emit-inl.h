// Emit: one head of one token from its source through norm and rotation to its sinks. Channels are
// contiguous and half a head is a multiple of two vectors, so there are no tails.
#include <utility>

#include "kernels/rope-inl.h"
#include "kernels/sinks-inl.h"

#if defined(QKVFUSE_KERNELS_EMIT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QKVFUSE_KERNELS_EMIT_INL_H_
#undef QKVFUSE_KERNELS_EMIT_INL_H_
#else
#define QKVFUSE_KERNELS_EMIT_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace qkvfuse::kernels {
namespace HWY_NAMESPACE {

/// Calls step(0), step(1), ... `count` times; one after another without a loop where kCount, the
/// count if it is known, is not 0.
template <int64_t kCount, class Step>
HWY_INLINE void ForEachPair(int64_t count, const Step& step) {
  if constexpr (kCount == 0) {
    for (int64_t pair = 0; pair < count; ++pair) step(pair);
  } else {
    (void)count;
    [&]<int64_t... kPair>(std::integer_sequence<int64_t, kPair...>) QKVFUSE_LAMBDA {
      (step(kPair), ...);
    }
    (std::make_integer_sequence<int64_t, kCount>());
  }
}

/// kOrder is the order of lanes that the source yields and the coefficients are in.
/// kHeadDim is the head_dim or kAnyHeadDim.
template <class SourceType, class Store, Transform kTransform, SinkKind kSink, LaneOrder kOrder,
          int kLanes, int64_t kHeadDim = kAnyHeadDim>
struct HeadEmitter {
  using D = FloatTag<kLanes>;
  static constexpr bool kCopiesBits =
      kTransform == Transform::kNone && sizeof(typename SourceType::Element) == sizeof(uint16_t);

  static HWY_INLINE void Emit(int64_t head_dim, const HeadInput& in, const HeadOutput& out,
                              const CodeScales& scales, float factor, Coefficients coefficients) {
    if constexpr (kTransform == Transform::kNone) {
      Plain(head_dim, in, out, scales);
    } else {
      Rotated(head_dim, in, out, scales, factor, coefficients);
    }
  }

  static HWY_INLINE void Plain(int64_t head_dim, const HeadInput& in, const HeadOutput& out,
                               const CodeScales& scales) {
    const D d;
    ForEachPair<kHeadDim / (2 * kLanes)>(head_dim / (2 * kLanes), [&](int64_t pair) QKVFUSE_LAMBDA {
      VecOf<D> a, b;
      if constexpr (kCopiesBits && Stores(kSink)) {
        CopyPair(d, in, out, pair);
        if constexpr (Quantises(kSink)) {
          constexpr SinkKind kCodes = HasOffset(kSink) ? SinkKind::kInt8Offset : SinkKind::kInt8;
          SourceType::template LoadPair<kOrder>(d, in, pair * 2 * kLanes, a, b);
          SinkPair<Store, kCodes, kOrder>(d, a, b, out, scales, pair);
        }
      } else {
        SourceType::template LoadPair<kOrder>(d, in, pair * 2 * kLanes, a, b);
        SinkPair<Store, kSink, kOrder>(d, a, b, out, scales, pair);
      }
    });
  }

  static HWY_INLINE void Rotated(int64_t head_dim, const HeadInput& in, const HeadOutput& out,
                                 const CodeScales& scales, float factor,
                                 Coefficients coefficients) {
    const D d;
    const int64_t half = head_dim / 2;
    const int64_t pairs = half / (2 * kLanes);
    const auto f = hn::Set(d, factor);
    ForEachPair<kHeadDim / (4 * kLanes)>(pairs, [&](int64_t pair) QKVFUSE_LAMBDA {
      VecOf<D> a0, a1, b0, b1, lo0, lo1, hi0, hi1;
      const int64_t j = pair * 2 * kLanes;
      SourceType::template LoadPair<kOrder>(d, in, j, a0, a1);
      SourceType::template LoadPair<kOrder>(d, in, j + half, b0, b1);
      if constexpr (kTransform == Transform::kNormRope) {
        a0 = hn::Mul(a0, f);
        a1 = hn::Mul(a1, f);
        b0 = hn::Mul(b0, f);
        b1 = hn::Mul(b1, f);
      }
      Rotate(d, coefficients, j, a0, b0, lo0, hi0);
      Rotate(d, coefficients, j + kLanes, a1, b1, lo1, hi1);
      SinkPair<Store, kSink, kOrder>(d, lo0, lo1, out, scales, pair);
      SinkPair<Store, kSink, kOrder>(d, hi0, hi1, out, scales, pair + pairs);
    });
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace qkvfuse::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
