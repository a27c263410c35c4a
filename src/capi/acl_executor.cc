// The functions of aclnn/acl_meta.h on executors.
#include <string>

#include "capi/door.h"
#include "capi/executor.h"
#include "capi/recent_error.h"

namespace qkvfuse::capi {
namespace {

int CheckLive(bool is_live) {
  if (is_live) return ACLNN_SUCCESS;
  return Fail(ACLNN_ERR_INNER_NULLPTR, "executor: is null, or was consumed or destroyed");
}

int SetAddress(IndexSpace space, const aclOpExecutor* handle, size_t index, aclTensor* tensor,
               void* address) noexcept {
  return Guarded(ACLNN_ERR_INNER, [&]() -> int {
    if (tensor == nullptr) return Fail(ACLNN_ERR_INNER_NULLPTR, "tensor: is null");
    const std::shared_ptr<Executor> executor = FindExecutor(handle);
    if (const int code = CheckLive(executor != nullptr); code != ACLNN_SUCCESS) return code;
    return ReportStatus(executor->SetAddress(space, index, *tensor, address));
  });
}

}  // namespace
}  // namespace qkvfuse::capi

using namespace qkvfuse::capi;  // NOLINT: the functions below are the C face of this file

aclnnStatus aclSetAclOpExecutorRepeatable(aclOpExecutor* executor) {
  return CheckLive(MakeRepeatable(executor));
}

aclnnStatus aclDestroyAclOpExecutor(aclOpExecutor* executor) {
  return CheckLive(RemoveExecutor(executor));
}

aclnnStatus aclSetTensorAddr(aclOpExecutor* executor, const size_t index, aclTensor* tensor,
                             void* addr) {
  return SetAddress(IndexSpace::kAll, executor, index, tensor, addr);
}

aclnnStatus aclSetInputTensorAddr(aclOpExecutor* executor, const size_t index, aclTensor* tensor,
                                  void* addr) {
  return SetAddress(IndexSpace::kInputs, executor, index, tensor, addr);
}

aclnnStatus aclSetOutputTensorAddr(aclOpExecutor* executor, const size_t index, aclTensor* tensor,
                                   void* addr) {
  return SetAddress(IndexSpace::kOutputs, executor, index, tensor, addr);
}

aclnnStatus AclSetTensorAddr(aclOpExecutor* executor, const size_t index, aclTensor* tensor,
                             void* addr) {
  return aclSetTensorAddr(executor, index, tensor, addr);
}

aclnnStatus AclSetInputTensorAddr(aclOpExecutor* executor, const size_t index, aclTensor* tensor,
                                  void* addr) {
  return aclSetInputTensorAddr(executor, index, tensor, addr);
}

aclnnStatus AclSetOutputTensorAddr(aclOpExecutor* executor, const size_t index, aclTensor* tensor,
                                   void* addr) {
  return aclSetOutputTensorAddr(executor, index, tensor, addr);
}
