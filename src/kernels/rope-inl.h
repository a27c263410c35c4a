// RoPE, halves: rotates channel j of the lower half with channel j of the upper half, one fused
// multiply-add each (docs/numerics.md, step 4).
#include "kernels/simd-inl.h"

#if defined(QKVFUSE_KERNELS_ROPE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QKVFUSE_KERNELS_ROPE_INL_H_
#undef QKVFUSE_KERNELS_ROPE_INL_H_
#else
#define QKVFUSE_KERNELS_ROPE_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace qkvfuse::kernels {
namespace HWY_NAMESPACE {

/// The coefficients of one token, in blocks of the kernel's N lanes: [half / N][cl, sl, ch, sh][N].
struct Coefficients {
  const float* data;
};

/// lo = fma(a, cl, -(b*sl)), hi = fma(b, ch, a*sh) for the lanes that begin at j.
template <class D>
HWY_INLINE void Rotate(D d, Coefficients coefficients, int64_t j, VecOf<D> a, VecOf<D> b,
                       VecOf<D>& lo, VecOf<D>& hi) {
  constexpr int64_t kLanes = static_cast<int64_t>(hn::MaxLanes(D()));
  const float* const at = coefficients.data + 4 * j;
  const auto cl = hn::LoadU(d, at);
  const auto sl = hn::LoadU(d, at + kLanes);
  const auto ch = hn::LoadU(d, at + 2 * kLanes);
  const auto sh = hn::LoadU(d, at + 3 * kLanes);
  lo = FmaSub(d, a, cl, hn::Mul(b, sl));
  hi = Fma(d, b, ch, hn::Mul(a, sh));
}

}  // namespace HWY_NAMESPACE
}  // namespace qkvfuse::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
