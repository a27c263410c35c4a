// Int8 codes of a head, code = round(clamp(y/scale + offset)), without its divisions where a
// multiplication by the reciprocal provably gives the same code (docs/numerics.md, step 5;
// docs/decisions/0011-codes-from-reciprocals.md).
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
  const float* reciprocal = nullptr;
  /// Bits of the largest distance from a code at which a quotient's code is certain; below 0, none
  /// is, and all are divided.
  int32_t certain = -1;
};

/// 1/s with a relative error below 2^-22, for |s| from 2^-126 to 2^120; not a finite number where
/// |s| is smaller. Its bits differ between processors; no code does.
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

/// Fills `reciprocal` with near reciprocals of the scales. Returns `certain`: below 0 when some
/// scale or offset is outside of what the proof allows.
template <bool kHasOffset, class D>
HWY_INLINE int32_t MakeReciprocals(D d, const float* scale, const float* offset, int64_t count,
                                   float* reciprocal) {
  const hn::RebindToSigned<D> di32;
  // As integers, in which a NaN is larger than all numbers. No scale is too small: where its
  // reciprocal is not a number, no quotient's distance from a code is one, and it is divided.
  auto largest = hn::Zero(di32);
  auto furthest = hn::Zero(di32);
  for (int64_t i = 0; i < count; i += static_cast<int64_t>(hn::Lanes(d))) {
    const auto s = hn::LoadU(d, scale + i);
    largest = hn::Max(largest, hn::BitCast(di32, hn::Abs(s)));
    if constexpr (kHasOffset) {
      furthest = hn::Max(furthest, hn::BitCast(di32, hn::Abs(hn::LoadU(d, offset + i))));
    }
    hn::StoreU(NearReciprocal(d, s), d, reciprocal + i);
  }
  const auto is_outside = hn::Or(hn::Gt(largest, hn::BitCast(di32, hn::Set(d, 0x1p120f))),
                                 hn::Gt(furthest, hn::BitCast(di32, hn::Set(d, 1024.0f))));
  if (!hn::AllFalse(di32, is_outside)) return -1;
  // The bits of 0.5 - 2^-11 and 0.5 - 2^-14, one unit short.
  return kHasOffset ? 0x3EFFBFFF : 0x3EFFF7FF;
}

/// The scales of a head; `reciprocals` has room for one.
template <bool kHasOffset, int kLanes>
HWY_INLINE CodeScales ScalesOf(const GroupTask& task, int64_t head, int64_t head_dim,
                               float* reciprocals) {
  CodeScales scales;
  scales.scale = task.scale + head * head_dim;
  if constexpr (kHasOffset) scales.offset = task.offset + head * head_dim;
  scales.reciprocal = reciprocals;
  scales.certain = MakeReciprocals<kHasOffset>(FloatTag<kLanes>(), scales.scale, scales.offset,
                                               head_dim, reciprocals);
  return scales;
}

/// The code of y from the reciprocal, not yet saturated, and the bits of its distance from the
/// quotient that was rounded to it.
template <bool kHasOffset, class D>
HWY_INLINE void NearbyCode(D d, VecOf<D> y, const CodeScales& scales, int64_t channel,
                           hn::Vec<hn::RebindToSigned<D>>& code,
                           hn::Vec<hn::RebindToSigned<D>>& distance) {
  const hn::RebindToSigned<D> di32;
  const auto reciprocal = hn::LoadU(d, scales.reciprocal + channel);
  const auto rounder = hn::Set(d, kRounder);
  // Far below the smallest code, and where a code is still a small number above kRounderBits.
  const auto lowest = hn::Set(d, kRounder - 0x1p20f);
  VecOf<D> rounded, off;
  if constexpr (kHasOffset) {
    const auto z = Fma(d, y, reciprocal, hn::LoadU(d, scales.offset + channel));
    rounded = hn::Max(hn::Add(z, rounder), lowest);
    off = hn::Sub(z, hn::Sub(rounded, rounder));
  } else {
    rounded = hn::Max(Fma(d, y, reciprocal, rounder), lowest);
    off = FmaSub(d, y, reciprocal, hn::Sub(rounded, rounder));
  }
  code = hn::Sub(hn::BitCast(di32, rounded), hn::Set(di32, kRounderBits));
  distance = hn::BitCast(di32, hn::Abs(off));
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
  hn::Vec<decltype(di32)> distance0, distance1;
  NearbyCode<kHasOffset>(d, first, scales, channel, code0, distance0);
  NearbyCode<kHasOffset>(d, second, scales, channel + kLanes, code1, distance1);
  // As integers, so that the distance of a NaN is the largest.
  const auto is_uncertain = hn::Gt(hn::Max(distance0, distance1), hn::Set(di32, scales.certain));
  if (HWY_LIKELY(hn::AllFalse(di32, is_uncertain))) return;
  code0 = DividedCode<kHasOffset>(d, first, scales, channel);
  code1 = DividedCode<kHasOffset>(d, second, scales, channel + kLanes);
}

}  // namespace HWY_NAMESPACE
}  // namespace qkvfuse::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
