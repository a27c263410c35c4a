// Int8 codes of a head, code = round(clamp(y/scale + offset)), without its divisions where products
// with bounds of the reciprocal give the same code (docs/numerics.md, step 5;
// docs/decisions/0011-codes-from-reciprocals.md).
#include <limits>

#include "kernels/simd-inl.h"

#if defined(QKVFUSE_KERNELS_QUANTISE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QKVFUSE_KERNELS_QUANTISE_INL_H_
#undef QKVFUSE_KERNELS_QUANTISE_INL_H_
#else
#define QKVFUSE_KERNELS_QUANTISE_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace qkvfuse::kernels {
namespace HWY_NAMESPACE {

/// What the codes of one head are computed from; each array from the head's first channel on.
struct CodeScales {
  const float* scale = nullptr;
  const float* offset = nullptr;
  // Bounds of 1/scale: y*below and y*above enclose the rounded y/scale. NaN where there are none.
  const float* below = nullptr;
  const float* above = nullptr;
};

/// Room for the bounds of a head.
struct ReciprocalBounds {
  HWY_ALIGN float below[kMaxPaddedChannels];
  HWY_ALIGN float above[kMaxPaddedChannels];
};

/// 1/s with a relative error below 2^-22, for |s| from 2^-126 to 2^120. For a subnormal s it may
/// also be infinite or NaN; what larger and infinite ones give must not be used. Its bits differ
/// between processors; no code does.
template <class D>
HWY_INLINE VecOf<D> NearReciprocal(D d, VecOf<D> s) {
  const auto one = hn::Set(d, 1.0f);
#if HWY_TARGET == HWY_SCALAR
  return hn::Div(one, s);
#else
  // A step squares the error: of 1.5 * 2^-12 on x86, of 2^-8 elsewhere.
  constexpr int kSteps = HWY_ARCH_X86 ? 1 : 2;
  auto reciprocal = hn::ApproximateReciprocal(s);
  for (int step = 0; step < kSteps; ++step) {
    const auto error = hn::NegMulAdd(s, reciprocal, one);
    reciprocal = hn::MulAdd(error, reciprocal, reciprocal);
  }
  return reciprocal;
#endif
}

/// The scales of a head of `count` channels, a multiple of the lanes, with their bounds.
template <bool kHasOffset, class D>
HWY_INLINE CodeScales ScalesOf(D d, const float* scale, const float* offset, int64_t count,
                               ReciprocalBounds* bounds) {
  const hn::RebindToSigned<D> di32;
  // As integers, in which NaN is larger than all numbers.
  auto largest = hn::Zero(di32);
  auto furthest = hn::Zero(di32);
  const auto margin = hn::Set(d, 0x1p-21f);
  for (int64_t i = 0; i < count; i += static_cast<int64_t>(hn::Lanes(d))) {
    const auto s = hn::LoadU(d, scale + i);
    largest = hn::Max(largest, hn::BitCast(di32, hn::Abs(s)));
    if constexpr (kHasOffset) {
      furthest = hn::Max(furthest, hn::BitCast(di32, hn::Abs(hn::LoadU(d, offset + i))));
    }
    const auto reciprocal = NearReciprocal(d, s);
    hn::StoreU(hn::NegMulAdd(reciprocal, margin, reciprocal), d, bounds->below + i);
    hn::StoreU(hn::MulAdd(reciprocal, margin, reciprocal), d, bounds->above + i);
  }
  const auto is_outside =
      hn::Or(hn::Gt(largest, hn::BitCast(di32, hn::Set(d, 0x1p120f))),
             hn::Gt(furthest, hn::BitCast(di32, hn::Set(d, std::numeric_limits<float>::max()))));
  if (HWY_UNLIKELY(!hn::AllFalse(di32, is_outside))) {
    for (int64_t i = 0; i < count; ++i) {
      bounds->below[i] = bounds->above[i] = std::numeric_limits<float>::quiet_NaN();
    }
  }
  return {scale, offset, bounds->below, bounds->above};
}

/// The larger of two; the second where the first is NaN.
template <class D>
HWY_INLINE VecOf<D> LargerOrSecond(D d, VecOf<D> first, VecOf<D> second) {
  (void)d;
#if HWY_ARCH_X86 && HWY_TARGET != HWY_SCALAR
  return hn::Max(first, second);
#else
  return hn::IfThenElse(hn::Gt(first, second), first, second);
#endif
}

/// y times a bound, plus the offset, rounded to an integer in the low bits of 1.5 * 2^23.
template <bool kHasOffset, class D>
HWY_INLINE VecOf<D> RoundedQuotient(D d, VecOf<D> y, const float* bound, const float* offset) {
  const auto rounder = hn::Set(d, kRounder);
  const auto reciprocal = hn::LoadU(d, bound);
  if constexpr (!kHasOffset) return Fma(d, y, reciprocal, rounder);
  return hn::Add(Fma(d, y, reciprocal, hn::LoadU(d, offset)), rounder);
}

/// The code of y, not yet saturated, and whether both bounds give it: rounding never changes the
/// order of two numbers, so what lies between them gives it, too.
template <bool kHasOffset, class D>
HWY_INLINE hn::Mask<hn::RebindToSigned<D>> CertainCode(D d, VecOf<D> y, const CodeScales& scales,
                                                       int64_t channel,
                                                       hn::Vec<hn::RebindToSigned<D>>& code) {
  const hn::RebindToSigned<D> di32;
  const float* const offset = kHasOffset ? scales.offset + channel : nullptr;
  const auto one = RoundedQuotient<kHasOffset>(d, y, scales.below + channel, offset);
  const auto other = RoundedQuotient<kHasOffset>(d, y, scales.above + channel, offset);
  // Raised on one side only: what is far below all codes, or NaN, is not certain.
  const auto raised = hn::BitCast(di32, LargerOrSecond(d, one, hn::Set(d, kRounder - 0x1p20f)));
  code = hn::Sub(raised, hn::Set(di32, kRounderBits));
  return hn::Eq(raised, hn::BitCast(di32, other));
}

/// The code of y by division.
template <bool kHasOffset, class D>
HWY_INLINE hn::Vec<hn::RebindToSigned<D>> DividedCode(D d, VecOf<D> y, const CodeScales& scales,
                                                      int64_t channel) {
  auto z = hn::Div(y, hn::LoadU(d, scales.scale + channel));
  if constexpr (kHasOffset) z = hn::Add(z, hn::LoadU(d, scales.offset + channel));
  return CodesOf(d, z);
}

/// The codes of the pair that begins at `channel`, not yet saturated.
template <bool kHasOffset, class D>
HWY_INLINE void CodePair(D d, VecOf<D> first, VecOf<D> second, const CodeScales& scales,
                         int64_t channel, hn::Vec<hn::RebindToSigned<D>>& code0,
                         hn::Vec<hn::RebindToSigned<D>>& code1) {
  constexpr int64_t kLanes = static_cast<int64_t>(hn::MaxLanes(D()));
  const hn::RebindToSigned<D> di32;
  const auto is_certain0 = CertainCode<kHasOffset>(d, first, scales, channel, code0);
  const auto is_certain1 = CertainCode<kHasOffset>(d, second, scales, channel + kLanes, code1);
  if (HWY_LIKELY(hn::AllTrue(di32, hn::And(is_certain0, is_certain1)))) return;
  code0 = DividedCode<kHasOffset>(d, first, scales, channel);
  code1 = DividedCode<kHasOffset>(d, second, scales, channel + kLanes);
}

}  // namespace HWY_NAMESPACE
}  // namespace qkvfuse::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
