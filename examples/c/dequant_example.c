/* aclnnDequantRopeQuantKvcache on a row small enough to follow by hand, checked against the numbers
 * that the formulas give: one token, two q heads, one k and one v head of 32 channels, int32 x.
 *
 * Every x is 1, both scales and the bias are 2: y = 1*2*2 + 2 = 6. cos and sin are the smallest
 * half, 2^-24: lo = 6*c - 6*s = 0 and hi = 6*c + 6*s = 12*2^-24, whose bits are 0x000C. The cache
 * codes are round(y / 2 + 2): 2 for k, whose y is next to 0, and 5 for v, whose y is 6. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "acl/acl.h"
#include "aclnnop/aclnn_dequant_rope_quant_kvcache.h"

enum {
  kHeadDim = 32,
  kQHeads = 2,
  kKvHeads = 1,
  kRow = (kQHeads + 2 * kKvHeads) * kHeadDim,
  kCacheRows = 128,
  kCacheElements = kCacheRows * kKvHeads * kHeadDim
};

/* Ends the program when a call failed. */
static void Expect(int code, const char *call) {
  if (code == ACL_SUCCESS) return;
  const char *reason = aclGetRecentErrMsg();
  fprintf(stderr, "%s failed with %d: %s\n", call, code, reason == NULL ? "no reason" : reason);
  exit(EXIT_FAILURE);
}

typedef struct {
  aclTensor *tensor;
  void *data;
  size_t bytes;
} DeviceTensor;

/* A tensor in device memory, every element a copy of *value. */
static DeviceTensor MakeFilled(aclDataType type, const int64_t *dims, uint64_t rank,
                               const void *value) {
  const size_t element_bytes = aclDataTypeSize(type);
  DeviceTensor result = {NULL, NULL, element_bytes};
  for (uint64_t i = 0; i < rank; ++i) result.bytes *= (size_t)dims[i];
  Expect(aclrtMalloc(&result.data, result.bytes, ACL_MEM_MALLOC_HUGE_FIRST), "aclrtMalloc");
  for (size_t at = 0; at < result.bytes; at += element_bytes) {
    Expect(aclrtMemcpy((char *)result.data + at, element_bytes, value, element_bytes,
                       ACL_MEMCPY_HOST_TO_DEVICE),
           "aclrtMemcpy");
  }
  result.tensor =
      aclCreateTensor(dims, rank, type, NULL, 0, ACL_FORMAT_ND, dims, rank, result.data);
  Expect(result.tensor == NULL ? ACL_ERROR_BAD_ALLOC : ACL_SUCCESS, "aclCreateTensor");
  return result;
}

static void Release(DeviceTensor *tensors, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    aclDestroyTensor(tensors[i].tensor);
    aclrtFree(tensors[i].data);
  }
}

/* Counts the elements of [begin, end) that are not `expected`, and reports the first. */
static int CompareCodes(const char *name, const int8_t *codes, int begin, int end, int expected) {
  int wrong = 0;
  for (int i = begin; i < end; ++i) {
    if (codes[i] == expected) continue;
    if (wrong++ == 0) printf("%s[%d] is %d, expected %d\n", name, i, codes[i], expected);
  }
  return wrong;
}

static int CompareHalves(const char *name, const uint16_t *bits, int begin, int end,
                         uint16_t expected) {
  int wrong = 0;
  for (int i = begin; i < end; ++i) {
    if (bits[i] == expected) continue;
    if (wrong++ == 0) {
      printf("%s[%d] has bits 0x%04X, expected 0x%04X\n", name, i, (unsigned)bits[i],
             (unsigned)expected);
    }
  }
  return wrong;
}

/* The first row has the code, the other rows still hold 6. */
static int CheckCache(const char *name, const DeviceTensor *cache, int code) {
  int8_t host[kCacheElements];
  Expect(aclrtMemcpy(host, sizeof(host), cache->data, cache->bytes, ACL_MEMCPY_DEVICE_TO_HOST),
         "aclrtMemcpy");
  return CompareCodes(name, host, 0, kHeadDim, code) +
         CompareCodes(name, host, kHeadDim, kCacheElements, 6);
}

/* Each head's lower half has the bits `low`, its upper half `high`. */
static int CheckDense(const char *name, const DeviceTensor *dense, int heads, uint16_t low,
                      uint16_t high) {
  uint16_t host[kQHeads * kHeadDim];
  int wrong = 0;
  Expect(aclrtMemcpy(host, sizeof(host), dense->data, dense->bytes, ACL_MEMCPY_DEVICE_TO_HOST),
         "aclrtMemcpy");
  for (int head = 0; head < heads; ++head) {
    const int begin = head * kHeadDim;
    wrong += CompareHalves(name, host, begin, begin + kHeadDim / 2, low);
    wrong += CompareHalves(name, host, begin + kHeadDim / 2, begin + kHeadDim, high);
  }
  return wrong;
}

typedef enum {
  kX,
  kCos,
  kSin,
  kKCache,
  kVCache,
  kIndices,
  kScaleK,
  kScaleV,
  kOffsetK,
  kOffsetV,
  kWeightScale,
  kActivationScale,
  kBias,
  kQOut,
  kKOut,
  kVOut,
  kTensors
} TensorId;

static void MakeTensors(DeviceTensor *t) {
  const int64_t x[] = {1, 1, kRow}, rope[] = {1, 1, 1, kHeadDim}, token[] = {1}, row[] = {kRow};
  const int64_t cache[] = {1, kCacheRows, kKvHeads, kHeadDim}, scale[] = {kKvHeads, kHeadDim};
  const int64_t q[] = {1, 1, kQHeads, kHeadDim}, kv[] = {1, 1, kKvHeads, kHeadDim};
  const int32_t one = 1, zero = 0;
  const uint16_t smallest_half = 0x0001, filler = 0xFFFF;
  const int8_t six = 6;
  const float two = 2.0f;
  t[kX] = MakeFilled(ACL_INT32, x, 3, &one);
  t[kCos] = MakeFilled(ACL_FLOAT16, rope, 4, &smallest_half);
  t[kSin] = MakeFilled(ACL_FLOAT16, rope, 4, &smallest_half);
  t[kKCache] = MakeFilled(ACL_INT8, cache, 4, &six);
  t[kVCache] = MakeFilled(ACL_INT8, cache, 4, &six);
  t[kIndices] = MakeFilled(ACL_INT32, token, 1, &zero);
  for (int id = kScaleK; id <= kOffsetV; ++id) t[id] = MakeFilled(ACL_FLOAT, scale, 2, &two);
  t[kWeightScale] = MakeFilled(ACL_FLOAT, row, 1, &two);
  t[kActivationScale] = MakeFilled(ACL_FLOAT, token, 1, &two);
  t[kBias] = MakeFilled(ACL_FLOAT, row, 1, &two);
  t[kQOut] = MakeFilled(ACL_FLOAT16, q, 4, &filler);
  t[kKOut] = MakeFilled(ACL_FLOAT16, kv, 4, &filler);
  t[kVOut] = MakeFilled(ACL_FLOAT16, kv, 4, &filler);
}

static void RunOperator(DeviceTensor *t, aclrtStream stream) {
  const int64_t splits[] = {kQHeads * kHeadDim, kKvHeads * kHeadDim, kKvHeads * kHeadDim};
  aclIntArray *size_splits = aclCreateIntArray(splits, 3);
  char quant_mode[] = "static", layout[] = "BSND", cache_mode[] = "contiguous";
  uint64_t workspace_bytes = 0;
  void *workspace = NULL;
  aclOpExecutor *executor = NULL;

  Expect(aclnnDequantRopeQuantKvcacheGetWorkspaceSize(
             t[kX].tensor, t[kCos].tensor, t[kSin].tensor, t[kKCache].tensor, t[kVCache].tensor,
             t[kIndices].tensor, t[kScaleK].tensor, t[kScaleV].tensor, t[kOffsetK].tensor,
             t[kOffsetV].tensor, t[kWeightScale].tensor, t[kActivationScale].tensor,
             t[kBias].tensor, size_splits, quant_mode, layout, /*kvOutput=*/true, cache_mode,
             t[kQOut].tensor, t[kKOut].tensor, t[kVOut].tensor, &workspace_bytes, &executor),
         "aclnnDequantRopeQuantKvcacheGetWorkspaceSize");
  if (workspace_bytes > 0) {
    Expect(aclrtMalloc(&workspace, workspace_bytes, ACL_MEM_MALLOC_HUGE_FIRST), "aclrtMalloc");
  }
  Expect(aclnnDequantRopeQuantKvcache(workspace, workspace_bytes, executor, stream),
         "aclnnDequantRopeQuantKvcache");
  Expect(aclrtSynchronizeStream(stream), "aclrtSynchronizeStream");
  if (workspace != NULL) aclrtFree(workspace);
  aclDestroyIntArray(size_splits);
}

int main(void) {
  const uint16_t twelve_units = 0x000C, six = 0x4600; /* 12*2^-24 and 6.0 as halves */
  DeviceTensor tensors[kTensors];
  aclrtStream stream = NULL;
  int wrong = 0;

  Expect(aclInit(NULL), "aclInit");
  Expect(aclrtSetDevice(0), "aclrtSetDevice");
  Expect(aclrtCreateStream(&stream), "aclrtCreateStream");
  MakeTensors(tensors);
  RunOperator(tensors, stream);

  wrong += CheckCache("kCache", &tensors[kKCache], 2);
  wrong += CheckCache("vCache", &tensors[kVCache], 5);
  wrong += CheckDense("qOut", &tensors[kQOut], kQHeads, 0, twelve_units);
  wrong += CheckDense("kOut", &tensors[kKOut], kKvHeads, 0, twelve_units);
  wrong += CheckDense("vOut", &tensors[kVOut], kKvHeads, six, six);

  Release(tensors, kTensors);
  Expect(aclrtDestroyStream(stream), "aclrtDestroyStream");
  Expect(aclrtResetDevice(0), "aclrtResetDevice");
  Expect(aclFinalize(), "aclFinalize");
  printf(wrong == 0 ? "all elements as expected\n" : "%d elements differ\n", wrong);
  return wrong == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
