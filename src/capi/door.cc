// The parts of the two phases that know no operator.
#include "capi/door.h"

#include <cstdlib>
#include <string>
#include <string_view>

namespace qkvfuse::capi {

int ClearResults(const PhaseOneResults& results) noexcept {
  if (results.workspace_size != nullptr) *results.workspace_size = 0;
  if (results.executor != nullptr) *results.executor = nullptr;
  if (results.workspace_size == nullptr) {
    return Fail(ACLNN_ERR_PARAM_NULLPTR, "workspaceSize: is null, must point to a uint64_t");
  }
  if (results.executor == nullptr) {
    return Fail(ACLNN_ERR_PARAM_NULLPTR, "executor: is null, must point to a handle");
  }
  return ACLNN_SUCCESS;
}

int ReportStatus(const Status& status) noexcept {
  switch (status.code()) {
    case StatusCode::kOk:
      return ACLNN_SUCCESS;
    case StatusCode::kNullArgument:
      return Fail(ACLNN_ERR_PARAM_NULLPTR, status.message());
    case StatusCode::kInvalidArgument:
    case StatusCode::kInvalidType:
      return Fail(ACLNN_ERR_PARAM_INVALID, status.message());
    case StatusCode::kOutOfMemory:
      break;
  }
  const std::string_view sentence = status.message();
  return Fail(ACLNN_ERR_INNER, sentence.empty() ? "not enough memory" : sentence);
}

bool StrictFromEnvironment() noexcept {
  const char* strict = std::getenv("QKVFUSE_STRICT");
  return strict != nullptr && std::string_view(strict) == "1";
}

Integers IntegersOf(const aclIntArray* array) noexcept {
  static constexpr int64_t kNothing = 0;
  if (array == nullptr) return {};
  const auto count = static_cast<int64_t>(array->values.size());
  return {count == 0 ? &kNothing : array->values.data(), count};
}

int RunPhaseTwo(const OperatorName& name, void* workspace, uint64_t workspace_size,
                const aclOpExecutor* handle) noexcept {
  return Guarded(ACLNN_ERR_INNER, [&]() -> int {
    if (handle == nullptr) {
      return Fail(ACLNN_ERR_PARAM_NULLPTR, "executor: is null, must be one of phase 1");
    }
    const std::shared_ptr<Executor> executor = ClaimExecutor(handle);
    if (executor == nullptr) {
      return Fail(ACLNN_ERR_PARAM_NULLPTR,
                  "executor: was consumed or destroyed; phase 2 runs an executor once unless "
                  "aclSetAclOpExecutorRepeatable was called");
    }
    if (!executor->BelongsTo(name)) {
      return Fail(ACLNN_ERR_PARAM_INVALID,
                  std::string("executor: was made by another operator than ") + name.text);
    }
    if (workspace == nullptr && workspace_size > 0) {
      return Fail(ACLNN_ERR_PARAM_NULLPTR, "workspace: is null although workspaceSize is not 0");
    }
    if (workspace_size < executor->workspace_bytes()) {
      return Fail(ACLNN_ERR_PARAM_INVALID,
                  "workspaceSize: " + std::to_string(workspace_size) + " is less than the " +
                      std::to_string(executor->workspace_bytes()) + " bytes of phase 1");
    }
    return ReportStatus(executor->Run({workspace, workspace_size}));
  });
}

}  // namespace qkvfuse::capi
