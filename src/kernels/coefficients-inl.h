// Coefficients of the rotation: per token and part, gamma folded into cos and sin once, each
// product rounded (docs/numerics.md, step 4). How they are built differs; how they are read does
// not: blocks of cl, sl, ch, sh (rope-inl.h) in the lane order of the group kernel.
#include "kernels/sources-inl.h"

#if defined(QKVFUSE_KERNELS_COEFFICIENTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QKVFUSE_KERNELS_COEFFICIENTS_INL_H_
#undef QKVFUSE_KERNELS_COEFFICIENTS_INL_H_
#else
#define QKVFUSE_KERNELS_COEFFICIENTS_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace qkvfuse::kernels {
namespace HWY_NAMESPACE {

/// One of the four coefficients of a pair of vectors; `to` is its place in the first one's block.
/// `largest` grows to the size of the products, as integers, in which NaN is larger than all
/// numbers.
template <class D>
HWY_INLINE void StoreProduct(D d, VecOf<D> table0, VecOf<D> table1, VecOf<D> gamma0,
                             VecOf<D> gamma1, float* to, hn::Vec<hn::RebindToSigned<D>>& largest) {
  const hn::RebindToSigned<D> di32;
  const auto product0 = hn::Mul(gamma0, table0);
  const auto product1 = hn::Mul(gamma1, table1);
  hn::StoreU(product0, d, to);
  hn::StoreU(product1, d, to + 4 * hn::Lanes(d));
  largest = hn::Max(
      largest, hn::Max(hn::BitCast(di32, hn::Abs(product0)), hn::BitCast(di32, hn::Abs(product1))));
}

/// Builds the coefficients of `tokens` tokens from contiguous rows of a table of type Table.
template <class Table, LaneOrder kOrder, bool kHasGamma, int kLanes, int64_t kHeadDim>
bool BuildCoefficients(const CoefficientTask& task, const TableRows& rows, int64_t tokens,
                       float* coefficients) {
  const FloatTag<kLanes> d;
  const int64_t head_dim = kHeadDim == kAnyHeadDim ? task.rotary_dim : kHeadDim;
  const int64_t half = head_dim / 2;
  const int64_t stride = CoefficientStride(head_dim);
  const HeadInput gamma{task.gamma, nullptr, nullptr, 1.0f};
  const hn::RebindToSigned<decltype(d)> di32;
  auto largest = hn::Zero(di32);
  VecOf<decltype(d)> c0, c1, g0, g1, h0, h1;
  for (int64_t i = 0; i < tokens; ++i) {
    using Element = typename Table::Element;
    const HeadInput cos{static_cast<const Element*>(task.cos) + rows.cos[0][i], nullptr, nullptr,
                        1.0f};
    const HeadInput sin{static_cast<const Element*>(task.sin) + rows.sin[0][i], nullptr, nullptr,
                        1.0f};
    float* const to = coefficients + i * 4 * stride;
    for (int64_t j = 0; j < half; j += 2 * kLanes) {
      if constexpr (kHasGamma) {
        FloatSource::LoadPair<kOrder>(d, gamma, j, g0, g1);
        FloatSource::LoadPair<kOrder>(d, gamma, j + half, h0, h1);
      } else {
        // A product with 1 leaves every value as it is.
        g0 = g1 = h0 = h1 = hn::Set(d, 1.0f);
      }
      Table::template LoadPair<kOrder>(d, cos, j, c0, c1);
      StoreProduct(d, c0, c1, g0, g1, to + 4 * j, largest);
      Table::template LoadPair<kOrder>(d, sin, j, c0, c1);
      StoreProduct(d, c0, c1, h0, h1, to + 4 * j + kLanes, largest);
      Table::template LoadPair<kOrder>(d, cos, j + half, c0, c1);
      StoreProduct(d, c0, c1, h0, h1, to + 4 * j + 2 * kLanes, largest);
      Table::template LoadPair<kOrder>(d, sin, j + half, c0, c1);
      StoreProduct(d, c0, c1, g0, g1, to + 4 * j + 3 * kLanes, largest);
    }
  }
  return hn::AllFalse(di32, hn::Gt(largest, hn::BitCast(di32, hn::Set(d, kTameCoefficient))));
}

}  // namespace HWY_NAMESPACE
}  // namespace qkvfuse::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
