/* aclnnDequantRopeQuantKvcache: packed x, dequantised when it is int32 -> RoPE on q and k -> qOut,
 * and k and v into an int8 cache. T = B*S, H = (Nq+2*Nkv)*D. Shapes, rules and deviations:
 * docs/operators/dequant_rope_quant_kvcache.md. */
#ifndef QKVFUSE_ACL_ACLNNOP_ACLNN_DEQUANT_ROPE_QUANT_KVCACHE_H_
#define QKVFUSE_ACL_ACLNNOP_ACLNN_DEQUANT_ROPE_QUANT_KVCACHE_H_

#include "aclnn/acl_meta.h"
#include "aclnn_util.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Phase 1: checks everything that needs no data, and makes an executor.
 *   x [B, S, H] or [B, H] fp16, bf16 or int32; cos, sin [B, S, 1, D] or [B, D] fp16 or bf16
 *   kCacheRef, vCacheRef [C1, C2, Nkv, D] int8; indices int32, contiguous [B], page [T]
 *   scaleK, scaleV, offsetK, offsetV: Nkv*D elements fp32
 *   weightScale (with int32 x), bias: H elements; activationScale: T elements
 *   sizeSplits {Nq*D, Nkv*D, Nkv*D}; quantMode null or "static"; layout null or "BSND";
 *   cacheMode null, "contiguous" or "page"
 *   qOut [B, S, Nq, D] or [B, Nq, D]; kOut, vOut [B, S, Nkv, D] or [B, Nkv, D], with kvOutput
 * 161001: a required argument is null. 161002: anything else that is wrong. On refusal *executor is
 * null, *workspaceSize 0 and aclGetRecentErrMsg names the argument. */
ACLNN_API aclnnStatus aclnnDequantRopeQuantKvcacheGetWorkspaceSize(
    const aclTensor *x, const aclTensor *cos, const aclTensor *sin, aclTensor *kCacheRef,
    aclTensor *vCacheRef, const aclTensor *indices, const aclTensor *scaleK,
    const aclTensor *scaleV, const aclTensor *offsetKOptional, const aclTensor *offsetVOptional,
    const aclTensor *weightScaleOptional, const aclTensor *activationScaleOptional,
    const aclTensor *biasOptional, const aclIntArray *sizeSplits, char *quantModeOptional,
    char *layoutOptional, bool kvOutput, char *cacheModeOptional, const aclTensor *qOut,
    const aclTensor *kOut, const aclTensor *vOut, uint64_t *workspaceSize,
    aclOpExecutor **executor);

/* Phase 2: checks addresses, indices and scales, then computes; nothing is written on refusal.
 * Consumes the executor, also on refusal, unless it is repeatable. Complete when it returns; the
 * stream is not used. 161001: executor null, consumed or destroyed, workspace null with a size
 * above 0, or null data. 161002: workspace too small, or data that is refused. */
ACLNN_API aclnnStatus aclnnDequantRopeQuantKvcache(void *workspace, uint64_t workspaceSize,
                                                   aclOpExecutor *executor,
                                                   const aclrtStream stream);

#ifdef __cplusplus
}
#endif

#endif /* QKVFUSE_ACL_ACLNNOP_ACLNN_DEQUANT_ROPE_QUANT_KVCACHE_H_ */
