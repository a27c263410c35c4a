/* aclnnQkvRmsNormRopeCache: packed qkv -> RMSNorm and RoPE on q and k -> qOut, and k and v into a
 * PA_NZ cache, 16-bit or int8. T = B*S, N = Nq+Nk+Nv, D = 128; D0 = 32 for an int8 cache, 16 for a
 * 16-bit one. Shapes, rules and deviations: docs/operators/qkv_rms_norm_rope_cache.md. */
#ifndef QKVFUSE_ACL_ACLNNOP_ACLNN_QKV_RMS_NORM_ROPE_CACHE_H_
#define QKVFUSE_ACL_ACLNNOP_ACLNN_QKV_RMS_NORM_ROPE_CACHE_H_

#include "aclnn/aclnn_base.h"
#include "aclnn_util.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Phase 1: checks everything that needs no data, and makes an executor.
 *   qkv [T, N*D] fp16 or bf16; qGamma, kGamma [D]; cos, sin [T, D]; index [T] int64; qOut [T, Nq*D]
 *   kCache, vCache [blocks, Nk*D/D0, block size, D0], int8 or the type of qkv
 *   kScale, vScale, kOffset, vOffset [Nk, D] fp32, with an int8 cache
 *   qkvSize {B, S, N, D}; headNums {Nq, Nk, Nv}; cacheMode null or "PA_NZ"
 *   q/k/vOutBeforeQuant [T, Nq*D], [T, Nk*D], [T, Nv*D], all or none
 * 161001: a required argument is null. 161002: anything else that is wrong. On refusal *executor is
 * null, *workspaceSize 0 and aclGetRecentErrMsg names the argument. */
ACLNN_API aclnnStatus aclnnQkvRmsNormRopeCacheGetWorkspaceSize(
    const aclTensor *qkv, const aclTensor *qGamma, const aclTensor *kGamma, const aclTensor *cos,
    const aclTensor *sin, const aclTensor *index, aclTensor *qOut, aclTensor *kCache,
    aclTensor *vCache, const aclTensor *kScaleOptional, const aclTensor *vScaleOptional,
    const aclTensor *kOffsetOptional, const aclTensor *vOffsetOptional, const aclIntArray *qkvSize,
    const aclIntArray *headNums, double epsilon, char *cacheModeOptional,
    const aclTensor *qOutBeforeQuant, const aclTensor *kOutBeforeQuant,
    const aclTensor *vOutBeforeQuant, uint64_t *workspaceSize, aclOpExecutor **executor);

/* Phase 2: checks addresses, slots and scales, then computes; nothing is written on refusal.
 * Consumes the executor, also on refusal, unless it is repeatable. Complete when it returns; the
 * stream is not used. 161001: executor null, consumed or destroyed, workspace null with a size
 * above 0, or null data. 161002: workspace too small, or data that is refused. */
ACLNN_API aclnnStatus aclnnQkvRmsNormRopeCache(void *workspace, uint64_t workspaceSize,
                                               aclOpExecutor *executor, aclrtStream stream);

#ifdef __cplusplus
}
#endif

#endif /* QKVFUSE_ACL_ACLNNOP_ACLNN_QKV_RMS_NORM_ROPE_CACHE_H_ */
