// Sources: yield a head as pairs of fp32 vectors, 2*N consecutive channels at a time, in natural or
// even-odd lane order. A source knows nothing of what follows.
#include <type_traits>

#include "kernels/simd-inl.h"

#if defined(QKVFUSE_KERNELS_SOURCES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QKVFUSE_KERNELS_SOURCES_INL_H_
#undef QKVFUSE_KERNELS_SOURCES_INL_H_
#else
#define QKVFUSE_KERNELS_SOURCES_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace qkvfuse::kernels {
namespace HWY_NAMESPACE {

/// One head of one token, channels contiguous.
struct HeadInput {
  const void* data;
  const float* weight_scale;  // int32 sources only, of this head's first channel
  const void* bias;
  float token_scale;
};

struct FloatSource {
  using Element = float;
  template <LaneOrder kOrder, class D>
  static HWY_INLINE void LoadPair(D d, const HeadInput& head, int64_t channel, VecOf<D>& first,
                                  VecOf<D>& second) {
    const float* from = static_cast<const float*>(head.data) + channel;
    first = hn::LoadU(d, from);
    second = hn::LoadU(d, from + hn::Lanes(d));
#if HWY_TARGET != HWY_SCALAR
    if constexpr (kOrder == LaneOrder::kEvenOdd) {
      const auto natural = first;
      first = hn::ConcatEven(d, second, natural);
      second = hn::ConcatOdd(d, second, natural);
    }
#endif
  }
};

struct HalfSource {
  using Element = uint16_t;
  template <LaneOrder kOrder, class D>
  static HWY_INLINE void LoadPair(D d, const HeadInput& head, int64_t channel, VecOf<D>& first,
                                  VecOf<D>& second) {
    static_assert(kOrder == LaneOrder::kNatural);
    const uint16_t* from = static_cast<const uint16_t*>(head.data) + channel;
    first = LoadHalf(d, from);
    second = LoadHalf(d, from + hn::Lanes(d));
  }
};

struct BFloat16Source {
  using Element = uint16_t;
  template <LaneOrder kOrder, class D>
  static HWY_INLINE void LoadPair(D d, const HeadInput& head, int64_t channel, VecOf<D>& first,
                                  VecOf<D>& second) {
    const uint16_t* from = static_cast<const uint16_t*>(head.data) + channel;
    if constexpr (kOrder == LaneOrder::kEvenOdd) {
      const hn::RebindToUnsigned<D> du32;
      const hn::Repartition<uint16_t, D> du16;
      const auto both = hn::BitCast(du32, hn::LoadU(du16, from));
      first = hn::BitCast(d, hn::ShiftLeft<16>(both));
      second = hn::BitCast(d, hn::And(both, hn::Set(du32, 0xFFFF0000u)));
    } else {
      first = LoadBFloat16(d, from);
      second = LoadBFloat16(d, from + hn::Lanes(d));
    }
  }
};

enum class BiasKind { kNone, kInt32, kFloat };

/// Dequantises: int32 bias before the scales with two's-complement wrap, float bias after them;
/// weight scale first, then token scale; each operation rounded (docs/numerics.md, step 2).
template <BiasKind kBias>
struct Int32Source {
  using Element = int32_t;

  template <class D>
  static HWY_INLINE VecOf<D> LoadOne(D d, const HeadInput& head, int64_t channel) {
    const hn::RebindToSigned<D> di32;
    auto value = hn::LoadU(di32, static_cast<const int32_t*>(head.data) + channel);
    if constexpr (kBias == BiasKind::kInt32) {
      // Unsigned addition wraps without undefined behaviour on the scalar target too.
      const hn::RebindToUnsigned<D> du32;
      const auto bias = hn::LoadU(di32, static_cast<const int32_t*>(head.bias) + channel);
      value = hn::BitCast(di32, hn::Add(hn::BitCast(du32, value), hn::BitCast(du32, bias)));
    }
    auto y = hn::Mul(hn::ConvertTo(d, value), hn::LoadU(d, head.weight_scale + channel));
    // A token scale of 1 leaves every value as it is.
    y = hn::Mul(y, hn::Set(d, head.token_scale));
    if constexpr (kBias == BiasKind::kFloat) {
      y = hn::Add(y, hn::LoadU(d, static_cast<const float*>(head.bias) + channel));
    }
    return y;
  }

  template <LaneOrder kOrder, class D>
  static HWY_INLINE void LoadPair(D d, const HeadInput& head, int64_t channel, VecOf<D>& first,
                                  VecOf<D>& second) {
    static_assert(kOrder == LaneOrder::kNatural);
    first = LoadOne(d, head, channel);
    second = LoadOne(d, head, channel + static_cast<int64_t>(hn::Lanes(d)));
  }
};

/// The head `head` of token `token`; its channels must be contiguous.
template <class SourceType>
HWY_INLINE HeadInput InputOf(const Source& source, int64_t token, int64_t head, int64_t head_dim) {
  using Element = typename SourceType::Element;
  HeadInput input;
  input.data = static_cast<const Element*>(source.data) + token * source.token_stride +
               head * source.head_stride;
  const int64_t channel = head * head_dim;
  input.weight_scale = source.weight_scale == nullptr ? nullptr : source.weight_scale + channel;
  // Both kinds of bias have elements of four bytes.
  input.bias =
      source.bias == nullptr ? nullptr : static_cast<const int32_t*>(source.bias) + channel;
  input.token_scale = source.token_scale == nullptr ? 1.0f : source.token_scale[token];
  return input;
}

/// Goes on to the next head of the token.
template <class SourceType>
HWY_INLINE void NextHead(int64_t head_stride, int64_t head_dim, HeadInput& head) {
  using Element = typename SourceType::Element;
  head.data = static_cast<const Element*>(head.data) + head_stride;
  if constexpr (std::is_same_v<Element, int32_t>) {
    head.weight_scale += head_dim;
    if (head.bias != nullptr) head.bias = static_cast<const int32_t*>(head.bias) + head_dim;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace qkvfuse::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
