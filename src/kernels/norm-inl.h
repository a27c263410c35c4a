// RMSNorm: the sum of squares in sixteen accumulators and a fixed tree, whatever the vector width,
// and the reciprocal roots of all heads together (docs/numerics.md, step 3).
#include "kernels/sources-inl.h"

#if defined(QKVFUSE_KERNELS_NORM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QKVFUSE_KERNELS_NORM_INL_H_
#undef QKVFUSE_KERNELS_NORM_INL_H_
#else
#define QKVFUSE_KERNELS_NORM_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace qkvfuse::kernels {
namespace HWY_NAMESPACE {

#if HWY_TARGET != HWY_SCALAR

/// Lane 0 of the tree's last levels over a vector of four: l + (l+2), then 0 + 1.
template <class D>
HWY_INLINE float SumOfFour(D d, VecOf<D> v) {
  (void)d;
  const auto two = hn::Add(v, hn::Shuffle1032(v));
  return hn::GetLane(hn::Add(two, hn::Shuffle2301(two)));
}

/// The same two levels where the vector holds accumulators of one parity: l + (l+4), l + (l+2).
template <class D>
HWY_INLINE VecOf<D> SumOfParity(D d, VecOf<D> v) {
  (void)d;
  const auto two = hn::Add(v, hn::Shuffle1032(v));
  return hn::Add(two, hn::Shuffle2301(two));
}

template <class D>
HWY_INLINE VecOf<hn::Half<D>> AddHalves(D d, VecOf<D> v) {
  const hn::Half<D> half;
  return hn::Add(hn::LowerHalf(half, v), hn::UpperHalf(half, v));
}

/// Accumulates with vectors of 4: lane l of accumulator k holds acc[4*k + l], or in even-odd order
/// (e0, o0, e1, o1) acc[8*k + 2*l + parity].
template <class SourceType, LaneOrder kOrder, class Head>
HWY_INLINE float SumOfSquares4(const Head& head, int64_t head_dim) {
  const FloatTag<4> d;
  auto acc0 = hn::Zero(d), acc1 = hn::Zero(d), acc2 = hn::Zero(d), acc3 = hn::Zero(d);
  VecOf<decltype(d)> a, b;
  for (int64_t channel = 0; channel < head_dim; channel += 16) {
    SourceType::template LoadPair<kOrder>(d, head, channel, a, b);
    acc0 = Fma(d, a, a, acc0);
    acc1 = Fma(d, b, b, acc1);
    SourceType::template LoadPair<kOrder>(d, head, channel + 8, a, b);
    acc2 = Fma(d, a, a, acc2);
    acc3 = Fma(d, b, b, acc3);
  }
  const auto first = hn::Add(acc0, acc2);  // l + (l+8)
  const auto second = hn::Add(acc1, acc3);
  if constexpr (kOrder == LaneOrder::kEvenOdd) {
    return hn::GetLane(hn::Add(SumOfParity(d, first), SumOfParity(d, second)));
  }
  return SumOfFour(d, hn::Add(first, second));  // l + (l+4)
}

/// Accumulates with vectors of 8: acc[0..7] and acc[8..15], or the even and the odd ones. Two steps
/// a turn, which halves the cost of the loop; a head of an odd number of steps has one left.
template <class SourceType, LaneOrder kOrder, class Head>
HWY_INLINE float SumOfSquares8(const Head& head, int64_t head_dim) {
  const FloatTag<8> d;
  const hn::Half<decltype(d)> d4;
  auto acc0 = hn::Zero(d), acc1 = hn::Zero(d);
  const auto accumulate = [&](int64_t channel) QKVFUSE_LAMBDA {
    VecOf<decltype(d)> a, b;
    SourceType::template LoadPair<kOrder>(d, head, channel, a, b);
    acc0 = Fma(d, a, a, acc0);
    acc1 = Fma(d, b, b, acc1);
  };
  int64_t channel = 0;
  for (; channel + 32 <= head_dim; channel += 32) {
    accumulate(channel);
    accumulate(channel + 16);
  }
  if (channel < head_dim) accumulate(channel);
  if constexpr (kOrder == LaneOrder::kEvenOdd) {
    const auto even = SumOfParity(d4, AddHalves(d, acc0));
    const auto odd = SumOfParity(d4, AddHalves(d, acc1));
    return hn::GetLane(hn::Add(even, odd));
  }
  return SumOfFour(d4, AddHalves(d, hn::Add(acc0, acc1)));
}

/// Accumulates with vectors of 16, natural order: one accumulator vector.
template <class SourceType, class Head>
HWY_INLINE float SumOfSquares16(const Head& head, int64_t head_dim) {
  const FloatTag<16> d;
  const hn::Half<decltype(d)> d8;
  auto acc = hn::Zero(d);
  VecOf<decltype(d)> a, b;
  for (int64_t channel = 0; channel < head_dim; channel += 32) {
    SourceType::template LoadPair<LaneOrder::kNatural>(d, head, channel, a, b);
    acc = Fma(d, a, a, acc);
    acc = Fma(d, b, b, acc);
  }
  return SumOfFour(hn::Half<decltype(d8)>(), AddHalves(d8, AddHalves(d, acc)));
}

#else  // HWY_SCALAR

template <class SourceType, class Head>
HWY_INLINE float SumOfSquares1(const Head& head, int64_t head_dim) {
  const FloatTag<1> d;
  float acc[16] = {};
  VecOf<decltype(d)> a, b;
  for (int64_t channel = 0; channel < head_dim; channel += 2) {
    SourceType::template LoadPair<LaneOrder::kNatural>(d, head, channel, a, b);
    float& first = acc[channel % 16];
    float& second = acc[channel % 16 + 1];
    first = std::fma(hn::GetLane(a), hn::GetLane(a), first);
    second = std::fma(hn::GetLane(b), hn::GetLane(b), second);
  }
  for (int distance = 8; distance >= 1; distance /= 2) {
    for (int lane = 0; lane < distance; ++lane) acc[lane] += acc[lane + distance];
  }
  return acc[0];
}

#endif  // HWY_SCALAR

/// Sum of squares of a head (what the source loads from); head_dim is a multiple of 16, of 32 with
/// 16 lanes.
template <class SourceType, LaneOrder kOrder, int kLanes, class Head>
HWY_INLINE float SumOfSquares(const Head& head, int64_t head_dim) {
#if HWY_TARGET == HWY_SCALAR
  return SumOfSquares1<SourceType>(head, head_dim);
#else
  if constexpr (kLanes >= 16 && kOrder == LaneOrder::kNatural) {
    return SumOfSquares16<SourceType>(head, head_dim);
  } else if constexpr (kLanes >= 8) {
    return SumOfSquares8<SourceType, kOrder>(head, head_dim);
  } else {
    return SumOfSquares4<SourceType, kOrder>(head, head_dim);
  }
#endif
}

/// sums[i] = 1 / sqrt(sums[i] / head_dim + epsilon) for i < heads. `sums` has room for a multiple
/// of 16, whose rest is overwritten.
HWY_INLINE void ReciprocalRoots(float* sums, int64_t heads, int64_t head_dim, float epsilon) {
  const FloatTag<kMaxLanes> d;
  const auto count = hn::Set(d, static_cast<float>(head_dim));
  // The same bits for a power of two, without the division.
  const bool is_power_of_two = (head_dim & (head_dim - 1)) == 0;
  const auto reciprocal_count = hn::Div(hn::Set(d, 1.0f), count);
  const auto eps = hn::Set(d, epsilon);
  const auto one = hn::Set(d, 1.0f);
  for (int64_t i = 0; i < heads; i += kMaxLanes) {
    const auto sum = hn::LoadU(d, sums + i);
    const auto mean = is_power_of_two ? hn::Mul(sum, reciprocal_count) : hn::Div(sum, count);
    hn::StoreU(hn::Div(one, hn::Sqrt(hn::Add(mean, eps))), d, sums + i);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace qkvfuse::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
