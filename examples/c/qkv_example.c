/* aclnnQkvRmsNormRopeCache on two tokens, and what a refusal looks like: the first call has a block
 * size that an int8 cache cannot have, and the library says so; the second one is right. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "acl/acl.h"
#include "aclnnop/aclnn_qkv_rms_norm_rope_cache.h"

enum {
  kTokens = 2,
  kQHeads = 2,
  kKvHeads = 1,
  kHeads = kQHeads + 2 * kKvHeads,
  kHeadDim = 128,
  kChunk = 32, /* an int8 PA_NZ cache keeps 32 channels together */
  kBlocks = 4
};

/* On failure prints the library's sentence. Returns whether the call succeeded. */
static int Succeeded(int code, const char *call) {
  if (code == ACL_SUCCESS) return 1;
  const char *reason = aclGetRecentErrMsg();
  printf("%s: code %d, %s\n", call, code, reason == NULL ? "no reason given" : reason);
  return 0;
}

typedef struct {
  aclTensor *tensor;
  void *data;
} DeviceTensor;

/* A rank of 1 leaves cols out. Elements are zero bytes. A failure leaves tensor null, which the
 * operator then refuses by the argument's name. */
static DeviceTensor MakeZeros(aclDataType type, int64_t rows, int64_t cols, uint64_t rank) {
  const int64_t dims[] = {rows, cols};
  const size_t bytes = aclDataTypeSize(type) * (size_t)(rows * (rank == 1 ? 1 : cols));
  DeviceTensor result = {NULL, NULL};
  if (Succeeded(aclrtMalloc(&result.data, bytes, ACL_MEM_MALLOC_HUGE_FIRST), "aclrtMalloc") &&
      Succeeded(aclrtMemset(result.data, bytes, 0, bytes), "aclrtMemset")) {
    result.tensor =
        aclCreateTensor(dims, rank, type, NULL, 0, ACL_FORMAT_ND, dims, rank, result.data);
  }
  return result;
}

/* [kBlocks, kKvHeads*kHeadDim/kChunk, block_size, kChunk] */
static DeviceTensor MakeCache(int64_t block_size) {
  const int64_t dims[] = {kBlocks, kKvHeads * kHeadDim / kChunk, block_size, kChunk};
  DeviceTensor result = MakeZeros(ACL_INT8, dims[0] * dims[1], dims[2] * dims[3], 2);
  aclDestroyTensor(result.tensor);
  result.tensor = aclCreateTensor(dims, 4, ACL_INT8, NULL, 0, ACL_FORMAT_ND, dims, 4, result.data);
  return result;
}

typedef enum { kQkv, kQGamma, kKGamma, kCos, kSin, kIndex, kQOut, kKScale, kVScale, kInputs } Id;

static void MakeTensors(DeviceTensor *t) {
  t[kQkv] = MakeZeros(ACL_FLOAT16, kTokens, kHeads * kHeadDim, 2);
  t[kQGamma] = MakeZeros(ACL_FLOAT16, kHeadDim, 1, 1);
  t[kKGamma] = MakeZeros(ACL_FLOAT16, kHeadDim, 1, 1);
  t[kCos] = MakeZeros(ACL_FLOAT16, kTokens, kHeadDim, 2);
  t[kSin] = MakeZeros(ACL_FLOAT16, kTokens, kHeadDim, 2);
  t[kIndex] = MakeZeros(ACL_INT64, kTokens, 1, 1);
  t[kQOut] = MakeZeros(ACL_FLOAT16, kTokens, kQHeads * kHeadDim, 2);
  t[kKScale] = MakeZeros(ACL_FLOAT, kKvHeads, kHeadDim, 2);
  t[kVScale] = MakeZeros(ACL_FLOAT, kKvHeads, kHeadDim, 2);
}

/* qkv alternates 1, -1; gammas and cos are 1, sin is 0, scales are 1/64; token t has slot 5 + t. */
static void FillTensors(DeviceTensor *t) {
  const aclFloat16 one = aclFloatToFloat16(1.0f), minus_one = aclFloatToFloat16(-1.0f);
  for (int i = 0; i < kTokens * kHeads * kHeadDim; ++i) {
    ((aclFloat16 *)t[kQkv].data)[i] = i % 2 == 0 ? one : minus_one;
  }
  for (int i = 0; i < kHeadDim; ++i) {
    ((aclFloat16 *)t[kQGamma].data)[i] = one;
    ((aclFloat16 *)t[kKGamma].data)[i] = one;
    ((float *)t[kKScale].data)[i] = 1.0f / 64;
    ((float *)t[kVScale].data)[i] = 1.0f / 64;
  }
  for (int i = 0; i < kTokens * kHeadDim; ++i) ((aclFloat16 *)t[kCos].data)[i] = one;
  for (int i = 0; i < kTokens; ++i) ((int64_t *)t[kIndex].data)[i] = 5 + i;
}

/* Both phases. Returns whether they succeeded. */
static int RunOperator(DeviceTensor *t, aclTensor *k_cache, aclTensor *v_cache,
                       aclrtStream stream) {
  const int64_t size[] = {kTokens, 1, kHeads, kHeadDim}, heads[] = {kQHeads, kKvHeads, kKvHeads};
  aclIntArray *qkv_size = aclCreateIntArray(size, 4), *head_nums = aclCreateIntArray(heads, 3);
  char cache_mode[] = "PA_NZ";
  uint64_t workspace_bytes = 0;
  void *workspace = NULL;
  aclOpExecutor *executor = NULL;
  int succeeded =
      Succeeded(aclnnQkvRmsNormRopeCacheGetWorkspaceSize(
                    t[kQkv].tensor, t[kQGamma].tensor, t[kKGamma].tensor, t[kCos].tensor,
                    t[kSin].tensor, t[kIndex].tensor, t[kQOut].tensor, k_cache, v_cache,
                    t[kKScale].tensor, t[kVScale].tensor, NULL, NULL, qkv_size, head_nums, 1e-6,
                    cache_mode, NULL, NULL, NULL, &workspace_bytes, &executor),
                "aclnnQkvRmsNormRopeCacheGetWorkspaceSize");
  if (succeeded && workspace_bytes > 0) {
    succeeded = Succeeded(aclrtMalloc(&workspace, workspace_bytes, ACL_MEM_MALLOC_HUGE_FIRST),
                          "aclrtMalloc");
  }
  if (succeeded) {
    succeeded = Succeeded(aclnnQkvRmsNormRopeCache(workspace, workspace_bytes, executor, stream),
                          "aclnnQkvRmsNormRopeCache");
  }
  if (workspace != NULL) aclrtFree(workspace);
  aclDestroyIntArray(qkv_size);
  aclDestroyIntArray(head_nums);
  return succeeded;
}

/* Channel d of the only k head in a slot: chunks of 32 channels follow each other block by block.
 */
static int CacheCode(const int8_t *cache, int64_t block_size, int64_t slot, int d) {
  const int64_t chunks = kKvHeads * kHeadDim / kChunk;
  const int64_t row = (slot / block_size * chunks + d / kChunk) * block_size + slot % block_size;
  return cache[row * kChunk + d % kChunk];
}

int main(void) {
  const int64_t wrong_block_size = 24, block_size = 32;
  DeviceTensor tensors[kInputs];
  aclrtStream stream = NULL;
  if (!Succeeded(aclInit(NULL), "aclInit") || !Succeeded(aclrtSetDevice(0), "aclrtSetDevice") ||
      !Succeeded(aclrtCreateStream(&stream), "aclrtCreateStream")) {
    return EXIT_FAILURE;
  }
  MakeTensors(tensors);
  FillTensors(tensors);
  DeviceTensor wrong_cache = MakeCache(wrong_block_size);
  DeviceTensor k_cache = MakeCache(block_size), v_cache = MakeCache(block_size);

  printf("A block size of %d, which is refused:\n", (int)wrong_block_size);
  const int was_refused = !RunOperator(tensors, wrong_cache.tensor, wrong_cache.tensor, stream);
  printf("A block size of %d:\n", (int)block_size);
  int succeeded = was_refused && RunOperator(tensors, k_cache.tensor, v_cache.tensor, stream);

  /* The row's root mean square is 1, so k is 1, -1, ... and its codes are 64, -64, ... */
  const int even = CacheCode(k_cache.data, block_size, 6, 0);
  const int odd = CacheCode(k_cache.data, block_size, 6, 127);
  printf("kCache, slot 6: channel 0 has code %d, channel 127 has code %d\n", even, odd);
  succeeded = succeeded && even == 64 && odd == -64;

  for (int i = 0; i < kInputs; ++i) {
    aclDestroyTensor(tensors[i].tensor);
    aclrtFree(tensors[i].data);
  }
  DeviceTensor caches[] = {wrong_cache, k_cache, v_cache};
  for (int i = 0; i < 3; ++i) {
    aclDestroyTensor(caches[i].tensor);
    aclrtFree(caches[i].data);
  }
  aclrtDestroyStream(stream);
  aclrtResetDevice(0);
  aclFinalize();
  return succeeded ? EXIT_SUCCESS : EXIT_FAILURE;
}
