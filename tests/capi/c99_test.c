/* A C99 program on the aclnn door. It refers to every function of the headers, so that it links
 * only when all are exported to C, and checks what only C can ask for: enumerators out of range. */
#include <stdio.h>
#include <string.h>

#include "acl/acl.h"
#include "aclnn/aclnn_base.h"
#include "aclnnop/aclnn_dequant_rope_quant_kvcache.h"
#include "aclnnop/aclnn_qkv_rms_norm_rope_cache.h"

typedef void (*AnyFunction)(void);

#define FUNCTION(name) (AnyFunction) name
static const AnyFunction kFunctions[] = {
    FUNCTION(aclInit),
    FUNCTION(aclFinalize),
    FUNCTION(aclFinalizeReference),
    FUNCTION(aclGetRecentErrMsg),
    FUNCTION(aclDataTypeSize),
    FUNCTION(aclFloat16ToFloat),
    FUNCTION(aclFloatToFloat16),
    FUNCTION(aclrtMalloc),
    FUNCTION(aclrtMallocAlign32),
    FUNCTION(aclrtMallocHost),
    FUNCTION(aclrtFree),
    FUNCTION(aclrtFreeHost),
    FUNCTION(aclrtMemcpy),
    FUNCTION(aclrtMemcpyAsync),
    FUNCTION(aclrtMemset),
    FUNCTION(aclrtSetDevice),
    FUNCTION(aclrtResetDevice),
    FUNCTION(aclrtGetDevice),
    FUNCTION(aclrtGetDeviceCount),
    FUNCTION(aclrtSynchronizeDevice),
    FUNCTION(aclrtGetSocName),
    FUNCTION(aclrtCreateContext),
    FUNCTION(aclrtDestroyContext),
    FUNCTION(aclrtSetCurrentContext),
    FUNCTION(aclrtGetCurrentContext),
    FUNCTION(aclrtCreateStream),
    FUNCTION(aclrtDestroyStream),
    FUNCTION(aclrtSynchronizeStream),
    FUNCTION(aclnnInit),
    FUNCTION(aclnnFinalize),
    FUNCTION(aclCreateTensor),
    FUNCTION(aclCreateScalar),
    FUNCTION(aclCreateIntArray),
    FUNCTION(aclCreateFloatArray),
    FUNCTION(aclCreateBoolArray),
    FUNCTION(aclCreateTensorList),
    FUNCTION(aclCreateScalarList),
    FUNCTION(aclDestroyTensor),
    FUNCTION(aclDestroyScalar),
    FUNCTION(aclDestroyIntArray),
    FUNCTION(aclDestroyFloatArray),
    FUNCTION(aclDestroyBoolArray),
    FUNCTION(aclDestroyTensorList),
    FUNCTION(aclDestroyScalarList),
    FUNCTION(aclGetViewShape),
    FUNCTION(aclGetStorageShape),
    FUNCTION(aclGetViewStrides),
    FUNCTION(aclGetViewOffset),
    FUNCTION(aclGetFormat),
    FUNCTION(aclGetDataType),
    FUNCTION(aclGetIntArraySize),
    FUNCTION(aclGetFloatArraySize),
    FUNCTION(aclGetBoolArraySize),
    FUNCTION(aclGetTensorListSize),
    FUNCTION(aclGetScalarListSize),
    FUNCTION(aclInitTensor),
    FUNCTION(aclSetRawTensorAddr),
    FUNCTION(aclGetRawTensorAddr),
    FUNCTION(aclSetAclOpExecutorRepeatable),
    FUNCTION(aclDestroyAclOpExecutor),
    FUNCTION(aclSetTensorAddr),
    FUNCTION(aclSetInputTensorAddr),
    FUNCTION(aclSetOutputTensorAddr),
    FUNCTION(AclSetTensorAddr),
    FUNCTION(AclSetInputTensorAddr),
    FUNCTION(AclSetOutputTensorAddr),
    FUNCTION(aclnnQkvRmsNormRopeCacheGetWorkspaceSize),
    FUNCTION(aclnnQkvRmsNormRopeCache),
    FUNCTION(aclnnDequantRopeQuantKvcacheGetWorkspaceSize),
    FUNCTION(aclnnDequantRopeQuantKvcache),
};

static int failures = 0;

static void Expect(int holds, const char *claim) {
  if (holds) return;
  ++failures;
  printf("not so: %s\n", claim);
}

int main(void) {
  char target[4] = "zzz";
  for (size_t i = 0; i < sizeof(kFunctions) / sizeof(kFunctions[0]); ++i) {
    Expect(kFunctions[i] != NULL, "every function has an address");
  }
  Expect(aclrtMemcpy(target, 4, "abc", 4, (aclrtMemcpyKind)8) == ACL_ERROR_INVALID_PARAM,
         "an unknown kind of copy is refused");
  Expect(strcmp(target, "zzz") == 0, "and copies nothing");
  Expect(aclDataTypeSize((aclDataType)99) == 0, "an unknown type has no size");
  Expect(aclrtDestroyStream(target) == ACL_ERROR_RT_INVALID_HANDLE, "107017");
  Expect(aclGetRecentErrMsg() != NULL, "a failure leaves a sentence");
  Expect(ACL_BF16 == 27 && ACL_FORMAT_ND == 2 && ACL_MEMCPY_DEVICE_TO_HOST == 2, "values");
  Expect(ACLNN_ERR_PARAM_INVALID == 161002 && ACL_ERROR_REPEAT_FINALIZE == 100037, "codes");
  return failures == 0 ? 0 : 1;
}
