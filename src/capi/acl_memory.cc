// Host stand-ins of ACL's memory functions: aligned allocation with slack, copy and fill.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>

#include "acl/acl_rt.h"
#include "capi/live_handles.h"
#include "capi/recent_error.h"
#include "capi/streams.h"

namespace qkvfuse::capi {
namespace {

constexpr size_t kAlignment = 64;
constexpr size_t kPadding = 32;  // programs rely on the slack that ACL adds to device memory

LiveHandles& DeviceMemory() {
  static auto& memory = *new LiveHandles;
  return memory;
}

LiveHandles& HostMemory() {
  static auto& memory = *new LiveHandles;
  return memory;
}

struct Request {
  LiveHandles& live;
  const char* name;  // of the pointer parameter
  size_t padding = 0;
};

int Allocate(const Request& request, void** address, size_t size) {
  if (address == nullptr) {
    return Fail(ACL_ERROR_INVALID_PARAM, std::string(request.name) + ": is null");
  }
  if (size == 0) return Fail(ACL_ERROR_INVALID_PARAM, "size: is 0; at least 1 byte is allowed");
  if (size > std::numeric_limits<size_t>::max() - request.padding - kAlignment) {
    return Fail(ACL_ERROR_INVALID_PARAM, "size: " + std::to_string(size) + " overflows");
  }
  // aligned_alloc wants a multiple of the alignment, which is one of ACL's 32 as well.
  const size_t bytes = (size + request.padding + kAlignment - 1) / kAlignment * kAlignment;
  void* memory = std::aligned_alloc(kAlignment, bytes);
  if (memory == nullptr) {
    return Fail(ACL_ERROR_BAD_ALLOC, "size: no memory for " + std::to_string(size) + " bytes");
  }
  try {
    request.live.Add(memory);
  } catch (...) {
    std::free(memory);
    throw;
  }
  *address = memory;
  return ACL_SUCCESS;
}

int Release(const Request& request, void* address) {
  const std::string name = request.name;
  if (address == nullptr) return Fail(ACL_ERROR_INVALID_PARAM, name + ": is null");
  if (!request.live.Remove(address)) {
    return Fail(ACL_ERROR_RT_PARAM_INVALID,
                name + ": is not an address that the allocation function gave, or is freed");
  }
  std::free(address);
  return ACL_SUCCESS;
}

int CheckCount(const char* limit_name, size_t limit, size_t count) {
  if (count <= limit) return ACL_SUCCESS;
  return Fail(ACL_ERROR_RT_PARAM_INVALID, "count: " + std::to_string(count) + " is more than " +
                                              limit_name + ", " + std::to_string(limit));
}

struct CopyRequest {
  void* dst;
  size_t dst_bytes;
  const void* src;
  size_t count;
  aclrtMemcpyKind kind;
};

int Copy(const CopyRequest& copy) {
  if (copy.count == 0) return ACL_SUCCESS;
  if (copy.dst == nullptr) return Fail(ACL_ERROR_INVALID_PARAM, "dst: is null");
  if (copy.src == nullptr) return Fail(ACL_ERROR_INVALID_PARAM, "src: is null");
  const int kind = static_cast<int>(copy.kind);
  if (kind < ACL_MEMCPY_HOST_TO_HOST || kind > ACL_MEMCPY_INTER_DEVICE_TO_DEVICE) {
    return Fail(ACL_ERROR_INVALID_PARAM, "kind: " + std::to_string(kind) + " is not in 0..7");
  }
  if (const int code = CheckCount("destMax", copy.dst_bytes, copy.count); code != ACL_SUCCESS) {
    return code;
  }
  std::memmove(copy.dst, copy.src, copy.count);
  return ACL_SUCCESS;
}

template <typename Body>
int GuardedMemory(Body&& body) noexcept {
  return Guarded(ACL_ERROR_BAD_ALLOC, std::forward<Body>(body));
}

}  // namespace
}  // namespace qkvfuse::capi

using namespace qkvfuse::capi;  // NOLINT: the functions below are the C face of this file

aclError aclrtMalloc(void** devPtr, size_t size, aclrtMemMallocPolicy /*policy*/) {
  return GuardedMemory([=] {
    return Allocate({DeviceMemory(), "devPtr", kPadding}, devPtr, size);
  });
}

aclError aclrtMallocAlign32(void** devPtr, size_t size, aclrtMemMallocPolicy /*policy*/) {
  return GuardedMemory([=] { return Allocate({DeviceMemory(), "devPtr"}, devPtr, size); });
}

aclError aclrtMallocHost(void** hostPtr, size_t size) {
  return GuardedMemory([=] {
    return Allocate({HostMemory(), "hostPtr", kPadding}, hostPtr, size);
  });
}

aclError aclrtFree(void* devPtr) {
  return GuardedMemory([=] { return Release({DeviceMemory(), "devPtr"}, devPtr); });
}

aclError aclrtFreeHost(void* hostPtr) {
  return GuardedMemory([=] { return Release({HostMemory(), "hostPtr"}, hostPtr); });
}

aclError aclrtMemcpy(void* dst, size_t destMax, const void* src, size_t count,
                     aclrtMemcpyKind kind) {
  return GuardedMemory([&] { return Copy({dst, destMax, src, count, kind}); });
}

aclError aclrtMemcpyAsync(void* dst, size_t destMax, const void* src, size_t count,
                          aclrtMemcpyKind kind, aclrtStream stream) {
  return GuardedMemory([&] {
    const int code = CheckStream(stream);
    return code == ACL_SUCCESS ? Copy({dst, destMax, src, count, kind}) : code;
  });
}

aclError aclrtMemset(void* devPtr, size_t maxCount, int32_t value, size_t count) {
  return GuardedMemory([&] {
    if (devPtr == nullptr) return Fail(ACL_ERROR_INVALID_PARAM, "devPtr: is null");
    const int code = CheckCount("maxCount", maxCount, count);
    if (code == ACL_SUCCESS) std::memset(devPtr, value, count);
    return code;
  });
}
