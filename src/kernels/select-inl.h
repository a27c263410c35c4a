// Lookup in the list of fused kernels, kernels.inc, for one source and storage type.
#include "kernels/group-inl.h"

#if defined(QKVFUSE_KERNELS_SELECT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QKVFUSE_KERNELS_SELECT_INL_H_
#undef QKVFUSE_KERNELS_SELECT_INL_H_
#else
#define QKVFUSE_KERNELS_SELECT_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace qkvfuse::kernels {
namespace HWY_NAMESPACE {

enum class SourceFamily { k16Bit, kInt32 };

/// The kernels of the list line that matches the key, or null pointers.
template <SourceFamily kFamily, class SourceType, class Store>
SelectedKernels SelectLine(const KernelKey& key) {
#define QKVFUSE_KERNEL(FAMILY, TRANSFORM, SINK)                                            \
  if constexpr (kFamily == SourceFamily::FAMILY) {                                         \
    if (key.transform == Transform::TRANSFORM && key.sink == SinkKind::SINK) {             \
      SelectedKernels kernels =                                                            \
          KernelsForHeadDim<SourceType, Store, Transform::TRANSFORM, SinkKind::SINK>(key); \
      kernels.name = #FAMILY " " #TRANSFORM " " #SINK;                                     \
      return kernels;                                                                      \
    }                                                                                      \
  }
#include "kernels/kernels.inc"
#undef QKVFUSE_KERNEL
  return {};
}

}  // namespace HWY_NAMESPACE
}  // namespace qkvfuse::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
