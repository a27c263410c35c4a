// Host stand-ins of the ACL runtime: start and end, the one device, contexts and streams. Every
// call is synchronous, so a stream is no more than an identity.
#include <cstdint>
#include <memory>
#include <mutex>

#include "acl/acl.h"
#include "aclnn/aclnn_base.h"
#include "capi/live_handles.h"
#include "capi/recent_error.h"
#include "capi/streams.h"

namespace qkvfuse::capi {
namespace {

constexpr int32_t kDevice = 0;  // the host

struct References {
  std::mutex mutex;
  uint64_t count = 0;
};

// Never destroyed: programs may call from destructors of their own static objects.
References& AclReferences() {
  static auto& references = *new References;
  return references;
}

LiveHandles& Contexts() {
  static auto& contexts = *new LiveHandles;
  return contexts;
}

LiveHandles& Streams() {
  static auto& streams = *new LiveHandles;
  return streams;
}

// What aclrtSetDevice makes current.
char default_context;
thread_local const void* current_context = nullptr;

bool HasContext() {
  return current_context == &default_context ||
         (current_context != nullptr && Contexts().Contains(current_context));
}

int CheckDevice(int32_t device) {
  if (device == kDevice) return ACL_SUCCESS;
  return Fail(ACL_ERROR_RT_INVALID_DEVICEID,
              "deviceId: " + std::to_string(device) + " is not a device; the only one is 0");
}

// The address of a byte of its own is what makes a handle unique.
int CreateHandle(LiveHandles& live, void** handle, const char* null_message) {
  if (handle == nullptr) return Fail(ACL_ERROR_INVALID_PARAM, null_message);
  auto identity = std::make_unique<char>();
  live.Add(identity.get());
  *handle = identity.release();
  return ACL_SUCCESS;
}

int DestroyHandle(LiveHandles& live, void* handle, const char* null_message,
                  const char* dead_message) {
  if (handle == nullptr) return Fail(ACL_ERROR_INVALID_PARAM, null_message);
  if (!live.Remove(handle)) return Fail(ACL_ERROR_RT_INVALID_HANDLE, dead_message);
  delete static_cast<char*>(handle);
  return ACL_SUCCESS;
}

template <typename Body>
int GuardedRuntime(Body&& body) noexcept {
  return Guarded(ACL_ERROR_BAD_ALLOC, std::forward<Body>(body));
}

constexpr const char* kNullStream = "stream: is null";
constexpr const char* kDeadStream =
    "stream: is not a live stream; pass one that aclrtCreateStream gave and that is not destroyed";
constexpr const char* kNullContext = "context: is null";
constexpr const char* kDeadContext =
    "context: is not a live context; pass one that aclrtCreateContext gave and that is not "
    "destroyed";

}  // namespace

int CheckStream(const void* stream) {
  if (stream == nullptr || Streams().Contains(stream)) return ACL_SUCCESS;
  return Fail(ACL_ERROR_RT_INVALID_HANDLE, kDeadStream);
}

}  // namespace qkvfuse::capi

using namespace qkvfuse::capi;  // NOLINT: the functions below are the C face of this file

aclError aclInit(const char* /*configPath*/) {
  return GuardedRuntime([] {
    References& references = AclReferences();
    const std::lock_guard lock(references.mutex);
    if (references.count++ == 0) return ACL_SUCCESS;
    return Fail(ACL_ERROR_REPEAT_INITIALIZE, "aclInit: ACL is initialised already");
  });
}

aclError aclFinalize() {
  return GuardedRuntime([] {
    References& references = AclReferences();
    const std::lock_guard lock(references.mutex);
    if (references.count == 0) {
      return Fail(ACL_ERROR_REPEAT_FINALIZE, "aclFinalize: ACL is not initialised");
    }
    references.count = 0;
    return ACL_SUCCESS;
  });
}

aclError aclFinalizeReference(uint64_t* refCount) {
  return GuardedRuntime([refCount] {
    References& references = AclReferences();
    const std::lock_guard lock(references.mutex);
    const bool had_one = references.count != 0;
    if (had_one) --references.count;
    if (refCount != nullptr) *refCount = references.count;
    if (had_one) return ACL_SUCCESS;
    return Fail(ACL_ERROR_REPEAT_FINALIZE, "aclFinalizeReference: ACL is not initialised");
  });
}

aclnnStatus aclnnInit(const char* /*configPath*/) { return ACLNN_SUCCESS; }

aclnnStatus aclnnFinalize() { return ACLNN_SUCCESS; }

aclError aclrtSetDevice(int32_t deviceId) {
  return GuardedRuntime([deviceId] {
    const int code = CheckDevice(deviceId);
    if (code == ACL_SUCCESS) current_context = &default_context;
    return code;
  });
}

aclError aclrtResetDevice(int32_t deviceId) {
  return GuardedRuntime([deviceId] {
    const int code = CheckDevice(deviceId);
    if (code == ACL_SUCCESS) current_context = nullptr;
    return code;
  });
}

aclError aclrtGetDevice(int32_t* deviceId) {
  return GuardedRuntime([deviceId] {
    if (deviceId == nullptr) return Fail(ACL_ERROR_INVALID_PARAM, "deviceId: is null");
    if (!HasContext()) {
      return Fail(ACL_ERROR_RT_CONTEXT_NULL,
                  "aclrtGetDevice: this thread has no device; call aclrtSetDevice first");
    }
    *deviceId = kDevice;
    return ACL_SUCCESS;
  });
}

aclError aclrtGetDeviceCount(uint32_t* count) {
  if (count == nullptr) return Fail(ACL_ERROR_INVALID_PARAM, "count: is null");
  *count = 1;
  return ACL_SUCCESS;
}

aclError aclrtSynchronizeDevice() { return ACL_SUCCESS; }

const char* aclrtGetSocName() { return "host"; }

aclError aclrtCreateContext(aclrtContext* context, int32_t deviceId) {
  return GuardedRuntime([context, deviceId] {
    if (context != nullptr) {
      if (const int code = CheckDevice(deviceId); code != ACL_SUCCESS) return code;
    }
    const int code = CreateHandle(Contexts(), context, kNullContext);
    if (code == ACL_SUCCESS) current_context = *context;
    return code;
  });
}

aclError aclrtDestroyContext(aclrtContext context) {
  return GuardedRuntime([context] {
    const int code = DestroyHandle(Contexts(), context, kNullContext, kDeadContext);
    if (code == ACL_SUCCESS && current_context == context) current_context = nullptr;
    return code;
  });
}

aclError aclrtSetCurrentContext(aclrtContext context) {
  return GuardedRuntime([context] {
    if (context == nullptr) return Fail(ACL_ERROR_INVALID_PARAM, kNullContext);
    if (context != &default_context && !Contexts().Contains(context)) {
      return Fail(ACL_ERROR_RT_INVALID_HANDLE, kDeadContext);
    }
    current_context = context;
    return ACL_SUCCESS;
  });
}

aclError aclrtGetCurrentContext(aclrtContext* context) {
  return GuardedRuntime([context] {
    if (context == nullptr) return Fail(ACL_ERROR_INVALID_PARAM, kNullContext);
    if (!HasContext()) {
      return Fail(ACL_ERROR_RT_CONTEXT_NULL, "aclrtGetCurrentContext: this thread has no context");
    }
    *context = const_cast<void*>(current_context);
    return ACL_SUCCESS;
  });
}

aclError aclrtCreateStream(aclrtStream* stream) {
  return GuardedRuntime([stream] { return CreateHandle(Streams(), stream, kNullStream); });
}

aclError aclrtDestroyStream(aclrtStream stream) {
  return GuardedRuntime(
      [stream] { return DestroyHandle(Streams(), stream, kNullStream, kDeadStream); });
}

aclError aclrtSynchronizeStream(aclrtStream stream) {
  return GuardedRuntime([stream] { return CheckStream(stream); });
}
