// Fused kernels for fp16 heads.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/fused_half.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "kernels/select-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qkvfuse::kernels {
namespace HWY_NAMESPACE {

SelectedKernels SelectHalf(const KernelKey& key) {
  return SelectLine<SourceFamily::k16Bit, HalfSource, HalfStore>(key);
}

}  // namespace HWY_NAMESPACE
}  // namespace qkvfuse::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "kernels/dispatch.h"

namespace qkvfuse::kernels {

HWY_EXPORT(SelectHalf);

SelectedKernels SelectFusedHalf(int64_t target, const KernelKey& key) {
  return HWY_DISPATCH_TABLE(SelectHalf)[DispatchIndex(target)](key);
}

}  // namespace qkvfuse::kernels
#endif  // HWY_ONCE
