// The vector vocabulary of the kernels: the only file that includes Highway. Owns what Highway
// leaves open between targets: fused multiply-add, conversions that round to nearest even, int8
// codes. Every function here gives the same bits on every target.
#include <cmath>
#include <cstdint>

#include "base/half.h"
#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "kernels/kernels.h"

/// On the lambda of an inner loop: as a function it would reload all that it refers to every time.
#ifndef QKVFUSE_LAMBDA
#define QKVFUSE_LAMBDA HWY_ATTR __attribute__((always_inline))
#endif

#if defined(QKVFUSE_KERNELS_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QKVFUSE_KERNELS_SIMD_INL_H_
#undef QKVFUSE_KERNELS_SIMD_INL_H_
#else
#define QKVFUSE_KERNELS_SIMD_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace qkvfuse::kernels {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

template <class D>
using VecOf = hn::Vec<D>;

/// kLanes floats, or fewer where the target has fewer.
template <int kLanes>
using FloatTag = hn::CappedTag<float, static_cast<size_t>(kLanes)>;

/// Lanes of the widest vectors that the kernels use on this target.
#if HWY_TARGET == HWY_SCALAR
inline constexpr int kMaxLanes = 1;
#elif HWY_TARGET <= HWY_AVX3
inline constexpr int kMaxLanes = 16;
#elif HWY_TARGET == HWY_AVX2
inline constexpr int kMaxLanes = 8;
#else
inline constexpr int kMaxLanes = 4;  // NEON, and what SVE guarantees
#endif

/// a*b + c with one rounding.
template <class D, class V>
HWY_INLINE V Fma(D d, V a, V b, V c) {
#if HWY_TARGET == HWY_SCALAR
  return hn::Set(d, std::fma(hn::GetLane(a), hn::GetLane(b), hn::GetLane(c)));
#else
  (void)d;
  return hn::MulAdd(a, b, c);
#endif
}

/// a*b - c with one rounding: fma(a, b, -c), the sign of a zero included.
template <class D, class V>
HWY_INLINE V FmaSub(D d, V a, V b, V c) {
#if HWY_TARGET == HWY_SCALAR || !HWY_ARCH_X86
  return Fma(d, a, b, hn::Neg(c));
#else
  (void)d;
  return hn::MulSub(a, b, c);
#endif
}

// Widening.

template <class D>
HWY_INLINE VecOf<D> LoadBFloat16(D d, const uint16_t* from) {
  const hn::RebindToUnsigned<D> du32;
  const hn::Rebind<uint16_t, D> du16;
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(du32, hn::LoadU(du16, from))));
}

template <class D>
HWY_INLINE VecOf<D> LoadHalf(D d, const uint16_t* from) {
#if HWY_TARGET == HWY_SCALAR
  return hn::Set(d, FloatFromHalf(*from));
#else
  const hn::Rebind<uint16_t, D> du16;
  const hn::Rebind<hwy::float16_t, D> df16;
  return hn::PromoteTo(d, hn::BitCast(df16, hn::LoadU(du16, from)));
#endif
}

// Narrowing, to nearest even.

/// fp32 bits rounded to a multiple of 2^16: the upper halves are the bfloat16 values.
template <class D>
HWY_INLINE hn::Vec<hn::RebindToUnsigned<D>> RoundToBFloat16(D d, VecOf<D> value) {
  const hn::RebindToUnsigned<D> du32;
  const auto bits = hn::BitCast(du32, value);
  const auto lowest_kept = hn::And(hn::ShiftRight<16>(bits), hn::Set(du32, 1u));
  const auto rounded = hn::Add(bits, hn::Add(lowest_kept, hn::Set(du32, 0x7FFFu)));
  const auto quiet = hn::Or(bits, hn::Set(du32, 0x400000u));
  const auto is_nan = hn::RebindMask(du32, hn::IsNaN(value));
  (void)d;
  return hn::IfThenElse(is_nan, quiet, rounded);
}

/// (a + b + 1) / 2 without overflow.
template <class D, class V>
HWY_INLINE V RoundedAverage(D d, V a, V b) {
  (void)d;
#if HWY_TARGET == HWY_SVE
  // Without SVE2, Highway 1.0.3 adds in the 16 bits of a lane and loses the carry.
  return hn::Sub(hn::Or(a, b), hn::ShiftRight<1>(hn::Xor(a, b)));
#else
  return hn::AverageRound(a, b);
#endif
}

/// Whether a store leaves its line in the caches or goes past them; the latter needs whole vectors
/// and an aligned address.
enum class StoreHint { kKeep, kStream };

template <StoreHint kHint, class D>
HWY_INLINE void StoreWords(D d, VecOf<D> words, uint16_t* to) {
  if constexpr (kHint == StoreHint::kStream && hn::MaxLanes(D()) * sizeof(uint16_t) >= 16) {
    hn::Stream(words, d, to);
  } else {
    hn::StoreU(words, d, to);
  }
}

template <StoreHint kHint = StoreHint::kKeep, class D>
HWY_INLINE void StoreHalf(D d, VecOf<D> value, uint16_t* to) {
#if HWY_TARGET == HWY_SCALAR
  *to = HalfFromFloat(hn::GetLane(value));
  (void)d;
#else
  const hn::Rebind<uint16_t, D> du16;
  const hn::Rebind<hwy::float16_t, D> df16;
  (void)d;
  StoreWords<kHint>(du16, hn::BitCast(du16, hn::DemoteTo(df16, value)), to);
#endif
}

template <StoreHint kHint = StoreHint::kKeep, class D>
HWY_INLINE void StoreBFloat16(D d, VecOf<D> value, uint16_t* to) {
#if HWY_TARGET == HWY_SCALAR
  *to = BFloat16FromFloat(hn::GetLane(value));
  (void)d;
#else
  const hn::RebindToSigned<D> di32;
  const hn::Rebind<int16_t, D> di16;
  const hn::Rebind<uint16_t, D> du16;
  // The arithmetic shift leaves values of 16 signed bits, which the saturating demotion keeps.
  const auto upper = hn::ShiftRight<16>(hn::BitCast(di32, RoundToBFloat16(d, value)));
  StoreWords<kHint>(du16, hn::BitCast(du16, hn::DemoteTo(di16, upper)), to);
#endif
}

// Int8.

/// Adding 1.5 * 2^23 rounds a small float to an integer in the low bits, ties to even.
inline constexpr float kRounder = 12582912.0f;
inline constexpr int32_t kRounderBits = 0x4B400000;

/// Codes of z: NaN gives 0, then clamp to [-128, 127], then round half to even.
template <class D>
HWY_INLINE hn::Vec<hn::RebindToSigned<D>> CodesOf(D d, VecOf<D> z) {
  const hn::RebindToSigned<D> di32;
  const auto number = hn::IfThenZeroElse(hn::IsNaN(z), z);
  const auto clamped = hn::Min(hn::Max(number, hn::Set(d, -128.0f)), hn::Set(d, 127.0f));
  const auto rounded = hn::Add(clamped, hn::Set(d, kRounder));
  return hn::Sub(hn::BitCast(di32, rounded), hn::Set(di32, kRounderBits));
}

/// Stores codes, saturated to [-128, 127].
template <class D>
HWY_INLINE void StoreCodes(D d, hn::Vec<hn::RebindToSigned<D>> codes, int8_t* to) {
  const hn::Rebind<int8_t, D> di8;
  (void)d;
  hn::StoreU(hn::DemoteTo(di8, codes), di8, to);
}

/// The same for a pair of vectors.
template <class D>
HWY_INLINE void StoreCodePair(D d, hn::Vec<hn::RebindToSigned<D>> first,
                              hn::Vec<hn::RebindToSigned<D>> second, int8_t* to,
                              int8_t* to_second) {
#if HWY_TARGET == HWY_AVX2
  if constexpr (hn::MaxLanes(D()) == 8) {
    // Packing two vectors at once leaves groups of four codes in the order 0, 2, 1, 3.
    const hn::Repartition<int16_t, D> di16;
    const hn::Rebind<int8_t, decltype(di16)> di8;
    const hn::Repartition<int32_t, decltype(di8)> groups;
    const auto words = hn::ReorderDemote2To(di16, first, second);
    const auto bytes = hn::BitCast(groups, hn::DemoteTo(di8, words));
    alignas(16) static constexpr int32_t kOrder[4] = {0, 2, 1, 3};
    const auto ordered = hn::TableLookupLanes(bytes, hn::SetTableIndices(groups, kOrder));
    hn::StoreU(hn::BitCast(di8, ordered), di8, to);
    return;
  }
#endif
  StoreCodes(d, first, to);
  StoreCodes(d, second, to_second);
}

}  // namespace HWY_NAMESPACE
}  // namespace qkvfuse::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
