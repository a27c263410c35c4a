// The host stand-ins of the ACL runtime: each code that acl/acl_rt.h and acl/acl.h promise.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <thread>

#include "acl/acl.h"

namespace {

constexpr auto kPolicy = ACL_MEM_MALLOC_HUGE_FIRST;
constexpr auto kKind = ACL_MEMCPY_HOST_TO_DEVICE;

TEST(AclProcess, CountsReferencesAndReportsRepeats) {
  EXPECT_EQ(aclFinalize(), ACL_ERROR_REPEAT_FINALIZE);
  EXPECT_EQ(aclInit(nullptr), ACL_SUCCESS);
  EXPECT_EQ(aclInit(nullptr), ACL_ERROR_REPEAT_INITIALIZE);
  EXPECT_EQ(aclInit("no such file"), ACL_ERROR_REPEAT_INITIALIZE);
  uint64_t left = 99;
  EXPECT_EQ(aclFinalizeReference(&left), ACL_SUCCESS);
  EXPECT_EQ(left, 2u);
  EXPECT_EQ(aclFinalize(), ACL_SUCCESS);
  EXPECT_EQ(aclFinalize(), ACL_ERROR_REPEAT_FINALIZE);
  EXPECT_EQ(aclFinalizeReference(&left), ACL_ERROR_REPEAT_FINALIZE);
  EXPECT_EQ(left, 0u);
  EXPECT_EQ(aclInit(nullptr), ACL_SUCCESS);
  EXPECT_EQ(aclFinalizeReference(nullptr), ACL_SUCCESS);
  EXPECT_EQ(aclFinalize(), ACL_ERROR_REPEAT_FINALIZE);
}

TEST(AclDevice, ThereIsOneAndAThreadChoosesIt) {
  uint32_t count = 0;
  EXPECT_EQ(aclrtGetDeviceCount(&count), ACL_SUCCESS);
  EXPECT_EQ(count, 1u);
  EXPECT_EQ(aclrtGetDeviceCount(nullptr), ACL_ERROR_INVALID_PARAM);
  EXPECT_EQ(aclrtSetDevice(1), ACL_ERROR_RT_INVALID_DEVICEID);
  EXPECT_EQ(aclrtSetDevice(-1), ACL_ERROR_RT_INVALID_DEVICEID);
  EXPECT_EQ(aclrtResetDevice(7), ACL_ERROR_RT_INVALID_DEVICEID);
  int32_t device = 99;
  EXPECT_EQ(aclrtGetDevice(&device), ACL_ERROR_RT_CONTEXT_NULL);
  EXPECT_EQ(device, 99);
  EXPECT_EQ(aclrtSetDevice(0), ACL_SUCCESS);
  EXPECT_EQ(aclrtGetDevice(&device), ACL_SUCCESS);
  EXPECT_EQ(device, 0);
  EXPECT_EQ(aclrtGetDevice(nullptr), ACL_ERROR_INVALID_PARAM);
  std::thread([] {
    int32_t other = 0;
    EXPECT_EQ(aclrtGetDevice(&other), ACL_ERROR_RT_CONTEXT_NULL);
  }).join();
  EXPECT_EQ(aclrtResetDevice(0), ACL_SUCCESS);
  EXPECT_EQ(aclrtGetDevice(&device), ACL_ERROR_RT_CONTEXT_NULL);
  EXPECT_EQ(aclrtSynchronizeDevice(), ACL_SUCCESS);
  EXPECT_STRNE(aclrtGetSocName(), "");
}

TEST(AclContext, BecomesCurrentAndMayBeStale) {
  aclrtContext context = nullptr;
  EXPECT_EQ(aclrtGetCurrentContext(&context), ACL_ERROR_RT_CONTEXT_NULL);
  EXPECT_EQ(aclrtCreateContext(nullptr, 0), ACL_ERROR_INVALID_PARAM);
  EXPECT_EQ(aclrtCreateContext(&context, 3), ACL_ERROR_RT_INVALID_DEVICEID);
  EXPECT_EQ(aclrtCreateContext(&context, 0), ACL_SUCCESS);
  aclrtContext current = nullptr;
  EXPECT_EQ(aclrtGetCurrentContext(&current), ACL_SUCCESS);
  EXPECT_EQ(current, context);
  int32_t device = 99;
  EXPECT_EQ(aclrtGetDevice(&device), ACL_SUCCESS);
  EXPECT_EQ(aclrtSetCurrentContext(nullptr), ACL_ERROR_INVALID_PARAM);
  EXPECT_EQ(aclrtSetCurrentContext(&device), ACL_ERROR_RT_INVALID_HANDLE);
  EXPECT_EQ(aclrtSetCurrentContext(context), ACL_SUCCESS);
  EXPECT_EQ(aclrtDestroyContext(nullptr), ACL_ERROR_INVALID_PARAM);
  EXPECT_EQ(aclrtDestroyContext(context), ACL_SUCCESS);
  EXPECT_EQ(aclrtDestroyContext(context), ACL_ERROR_RT_INVALID_HANDLE);
  EXPECT_EQ(aclrtGetDevice(&device), ACL_ERROR_RT_CONTEXT_NULL);
}

TEST(AclContext, IsCurrentToOneThreadAndEndsForAll) {
  std::thread([] {
    aclrtContext first = nullptr;
    aclrtContext second = nullptr;
    aclrtContext current = nullptr;
    ASSERT_EQ(aclrtCreateContext(&first, 0), ACL_SUCCESS);
    ASSERT_EQ(aclrtCreateContext(&second, 0), ACL_SUCCESS);
    EXPECT_EQ(aclrtGetCurrentContext(nullptr), ACL_ERROR_INVALID_PARAM);
    EXPECT_EQ(aclrtDestroyContext(first), ACL_SUCCESS);
    EXPECT_EQ(aclrtGetCurrentContext(&current), ACL_SUCCESS);
    EXPECT_EQ(current, second);
    std::thread([second] { EXPECT_EQ(aclrtDestroyContext(second), ACL_SUCCESS); }).join();
    EXPECT_EQ(aclrtGetCurrentContext(&current), ACL_ERROR_RT_CONTEXT_NULL);
    EXPECT_EQ(aclrtSetDevice(0), ACL_SUCCESS);
    EXPECT_EQ(aclrtGetCurrentContext(&current), ACL_SUCCESS);
    EXPECT_EQ(aclrtSetCurrentContext(current), ACL_SUCCESS);
    EXPECT_EQ(aclrtResetDevice(0), ACL_SUCCESS);
  }).join();
}

TEST(AclStream, NullIsTheDefaultAndUnknownOnesAreRefused) {
  aclrtStream stream = nullptr;
  EXPECT_EQ(aclrtCreateStream(nullptr), ACL_ERROR_INVALID_PARAM);
  EXPECT_EQ(aclrtCreateStream(&stream), ACL_SUCCESS);
  EXPECT_NE(stream, nullptr);
  EXPECT_EQ(aclrtSynchronizeStream(stream), ACL_SUCCESS);
  EXPECT_EQ(aclrtSynchronizeStream(nullptr), ACL_SUCCESS);
  EXPECT_EQ(aclrtDestroyStream(nullptr), ACL_ERROR_INVALID_PARAM);
  EXPECT_EQ(aclrtDestroyStream(stream), ACL_SUCCESS);
  EXPECT_EQ(aclrtDestroyStream(stream), ACL_ERROR_RT_INVALID_HANDLE);
  EXPECT_EQ(aclrtSynchronizeStream(stream), ACL_ERROR_RT_INVALID_HANDLE);
  EXPECT_NE(std::string(aclGetRecentErrMsg()).find("stream"), std::string::npos);
}

using Malloc = aclError (*)(void**, size_t);
using Free = aclError (*)(void*);
struct Allocator {
  Malloc allocate;
  Free release;
  size_t slack;
};

class AclMemory : public testing::TestWithParam<Allocator> {};

TEST_P(AclMemory, IsAlignedHasSlackAndIsFreedOnce) {
  const auto& [allocate, release, slack] = GetParam();
  for (const size_t size : {1u, 31u, 32u, 33u, 64u, 1000u, 100000u}) {
    void* memory = nullptr;
    ASSERT_EQ(allocate(&memory, size), ACL_SUCCESS);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(memory) % 64, 0u);
    std::memset(memory, 1, (size + slack + 31) / 32 * 32);  // the sanitizer builds watch this
    EXPECT_EQ(release(memory), ACL_SUCCESS);
    EXPECT_EQ(release(memory), ACL_ERROR_RT_PARAM_INVALID);
  }
}

TEST_P(AclMemory, RefusesWhatItCannotGive) {
  const auto& [allocate, release, slack] = GetParam();
  void* memory = &memory;
  EXPECT_EQ(allocate(nullptr, 8), ACL_ERROR_INVALID_PARAM);
  EXPECT_EQ(allocate(&memory, 0), ACL_ERROR_INVALID_PARAM);
  EXPECT_EQ(allocate(&memory, std::numeric_limits<size_t>::max()), ACL_ERROR_INVALID_PARAM);
  EXPECT_EQ(allocate(&memory, std::numeric_limits<size_t>::max() / 2), ACL_ERROR_BAD_ALLOC);
  EXPECT_EQ(memory, &memory);
  EXPECT_EQ(release(nullptr), ACL_ERROR_INVALID_PARAM);
  EXPECT_EQ(release(&memory), ACL_ERROR_RT_PARAM_INVALID);
}

INSTANTIATE_TEST_SUITE_P(
    All, AclMemory,
    testing::Values(Allocator{[](void** p, size_t n) { return aclrtMalloc(p, n, kPolicy); },
                              aclrtFree, 32},
                    Allocator{[](void** p, size_t n) { return aclrtMallocAlign32(p, n, kPolicy); },
                              aclrtFree, 0},
                    Allocator{aclrtMallocHost, aclrtFreeHost, 32}));

TEST(AclMemory, HostAndDeviceMemoryAreNotMixed) {
  void* memory = nullptr;
  ASSERT_EQ(aclrtMallocHost(&memory, 8), ACL_SUCCESS);
  EXPECT_EQ(aclrtFree(memory), ACL_ERROR_RT_PARAM_INVALID);
  EXPECT_EQ(aclrtFreeHost(memory), ACL_SUCCESS);
}

TEST(AclMemcpy, CopiesOrSaysWhyNot) {
  const char source[] = "abcdef";
  char target[8] = "zzzzzzz";
  EXPECT_EQ(aclrtMemcpy(target, 7, source, 3, kKind), ACL_SUCCESS);
  EXPECT_STREQ(target, "abczzzz");
  EXPECT_EQ(aclrtMemcpy(nullptr, 0, nullptr, 0, kKind), ACL_SUCCESS);
  EXPECT_EQ(aclrtMemcpy(nullptr, 7, source, 3, kKind), ACL_ERROR_INVALID_PARAM);
  EXPECT_EQ(aclrtMemcpy(target, 7, nullptr, 3, kKind), ACL_ERROR_INVALID_PARAM);
  EXPECT_EQ(aclrtMemcpy(target, 2, source, 3, kKind), ACL_ERROR_RT_PARAM_INVALID);
  EXPECT_STREQ(target, "abczzzz");
  EXPECT_EQ(aclrtMemcpy(target + 1, 7, target, 3, ACL_MEMCPY_DEVICE_TO_DEVICE), ACL_SUCCESS);
  EXPECT_STREQ(target, "aabczzz");
}

TEST(AclMemcpy, AsyncLooksAtItsStreamToo) {
  const char source[] = "abc";
  char target[4] = "";
  EXPECT_EQ(aclrtMemcpyAsync(target, 4, source, 4, kKind, nullptr), ACL_SUCCESS);
  EXPECT_STREQ(target, "abc");
  EXPECT_EQ(aclrtMemcpyAsync(target, 4, source, 4, kKind, target), ACL_ERROR_RT_INVALID_HANDLE);
  EXPECT_EQ(aclrtMemcpyAsync(target, 3, source, 4, kKind, nullptr), ACL_ERROR_RT_PARAM_INVALID);
}

TEST(AclMemset, FillsOrSaysWhyNot) {
  char target[4] = "zzz";
  EXPECT_EQ(aclrtMemset(target, 3, 'a', 2), ACL_SUCCESS);
  EXPECT_STREQ(target, "aaz");
  EXPECT_EQ(aclrtMemset(nullptr, 3, 'a', 2), ACL_ERROR_INVALID_PARAM);
  EXPECT_EQ(aclrtMemset(target, 1, 'b', 2), ACL_ERROR_RT_PARAM_INVALID);
  EXPECT_STREQ(target, "aaz");
}

TEST(AclErrorMessage, BelongsToItsThreadAndStays) {
  std::thread([] {
    EXPECT_EQ(aclGetRecentErrMsg(), nullptr);
    EXPECT_EQ(aclrtFree(nullptr), ACL_ERROR_INVALID_PARAM);
    const std::string message = aclGetRecentErrMsg();
    EXPECT_NE(message.find("devPtr"), std::string::npos);
    EXPECT_EQ(aclrtSynchronizeDevice(), ACL_SUCCESS);
    std::thread([] { EXPECT_EQ(aclGetRecentErrMsg(), nullptr); }).join();
    EXPECT_EQ(aclGetRecentErrMsg(), message);
  }).join();
}

TEST(AclTypes, HaveTheirSizes) {
  const std::pair<aclDataType, size_t> sizes[] = {
      {ACL_DT_UNDEFINED, 0}, {ACL_FLOAT, 4},
      {ACL_FLOAT16, 2},      {ACL_BF16, 2},
      {ACL_INT8, 1},         {ACL_INT32, 4},
      {ACL_INT64, 8},        {ACL_DOUBLE, 8},
      {ACL_BOOL, 1},         {ACL_COMPLEX128, 16},
      {ACL_FLOAT8_E5M2, 1},  {ACL_INT4, 0},
      {ACL_STRING, 0},       {static_cast<aclDataType>(5), 0}};
  for (const auto& [type, bytes] : sizes) EXPECT_EQ(aclDataTypeSize(type), bytes) << type;
}

TEST(AclHalf, ConvertsAndSaturates) {
  EXPECT_EQ(aclFloat16ToFloat(0x3C00), 1.0f);
  EXPECT_EQ(aclFloat16ToFloat(0x8001), -std::ldexp(1.0f, -24));
  EXPECT_EQ(aclFloat16ToFloat(0x7C00), 65504.0f);
  EXPECT_EQ(aclFloat16ToFloat(0xFE00), -65504.0f);
  EXPECT_EQ(aclFloatToFloat16(-2.0f), 0xC000);
  EXPECT_EQ(aclFloatToFloat16(1.0f + std::ldexp(1.0f, -11)), 0x3C00);
  EXPECT_EQ(aclFloatToFloat16(1e9f), 0x7BFF);
  EXPECT_EQ(aclFloatToFloat16(-std::numeric_limits<float>::infinity()), 0xFBFF);
  EXPECT_EQ(aclFloatToFloat16(std::numeric_limits<float>::quiet_NaN()), 0x7BFF);
}

}  // namespace
