// Picks among the files of fused kernels by the source's type.
#include "kernels/kernels.h"

namespace qkvfuse::kernels {

SelectedKernels SelectFused(int64_t target, const KernelKey& key) {
  if (key.head_dim % kPieceChannels != 0) return {};
  switch (key.source) {
    case SourceKind::kHalf:
      if (key.store != DType::kFloat16) return {};
      return SelectFusedHalf(target, key);
    case SourceKind::kBFloat16:
      if (key.store != DType::kBFloat16) return {};
      return SelectFusedBFloat16(target, key);
    case SourceKind::kInt32NoBias:
    case SourceKind::kInt32IntBias:
    case SourceKind::kInt32FloatBias:
      return SelectFusedInt32(target, key);
    default:
      break;
  }
  return {};
}

}  // namespace qkvfuse::kernels
