// Fused kernels for int32 heads, dequantised on the way, stored as fp16 or bf16.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/fused_int32.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "kernels/select-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qkvfuse::kernels {
namespace HWY_NAMESPACE {

template <BiasKind kBias>
SelectedKernels SelectForBias(const KernelKey& key) {
  if (key.store == DType::kFloat16) {
    return SelectLine<SourceFamily::kInt32, Int32Source<kBias>, HalfStore>(key);
  }
  return SelectLine<SourceFamily::kInt32, Int32Source<kBias>, BFloat16Store>(key);
}

SelectedKernels SelectInt32(const KernelKey& key) {
  switch (key.source) {
    case SourceKind::kInt32NoBias:
      return SelectForBias<BiasKind::kNone>(key);
    case SourceKind::kInt32IntBias:
      return SelectForBias<BiasKind::kInt32>(key);
    case SourceKind::kInt32FloatBias:
      return SelectForBias<BiasKind::kFloat>(key);
    default:
      return {};
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace qkvfuse::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "kernels/dispatch.h"

namespace qkvfuse::kernels {

HWY_EXPORT(SelectInt32);

SelectedKernels SelectFusedInt32(int64_t target, const KernelKey& key) {
  return HWY_DISPATCH_TABLE(SelectInt32)[DispatchIndex(target)](key);
}

}  // namespace qkvfuse::kernels
#endif  // HWY_ONCE
