// The two phases of an aclnn operator, once for all operators: an operator is a table of its tensor
// parameters and the Bind of its arguments.
#pragma once

#include <array>
#include <cstdint>
#include <utility>

#include "capi/acl_objects.h"
#include "capi/executor.h"
#include "capi/plan_cache.h"
#include "capi/recent_error.h"
#include "capi/tensor_view.h"
#include "qkvfuse/specs.hpp"

namespace qkvfuse::capi {

/// A row of an operator's table: a parameter and the argument of Bind that it becomes.
template <typename Arguments>
struct ArgumentRow : Parameter {
  const TensorView* Arguments::*view;
};

template <typename Arguments>
using ArgumentTable = std::array<ArgumentRow<Arguments>, kParameters>;

/// The tensors of a call, in the order of the table.
using ArgumentTensors = std::array<const aclTensor*, kParameters>;

/// Where phase 1 puts its results.
struct PhaseOneResults {
  uint64_t* workspace_size;
  aclOpExecutor** executor;
};

/// Refuses null ones, and sets the others to 0 and null: what they stay on refusal.
[[nodiscard]] int ClearResults(const PhaseOneResults& results) noexcept;

/// The aclnnStatus of a Status; the sentence of a refusal is recorded.
[[nodiscard]] int ReportStatus(const Status& status) noexcept;

/// Lenient unless the environment variable QKVFUSE_STRICT is 1.
[[nodiscard]] bool StrictFromEnvironment() noexcept;

/// Present also when it has no elements, which is a wrong length and not an absent argument.
[[nodiscard]] Integers IntegersOf(const aclIntArray* array) noexcept;

/// Phase 2 of every operator.
[[nodiscard]] int RunPhaseTwo(const OperatorName& name, void* workspace, uint64_t workspace_size,
                              const aclOpExecutor* handle) noexcept;

/// The views of the tensors that are there; `arguments` points into `views`. Returns the first
/// refusal of one, and goes on: an argument that is null comes before it.
template <typename Arguments>
[[nodiscard]] Status MakeViews(const ArgumentTable<Arguments>& table,
                               const ArgumentTensors& tensors,
                               std::array<TensorView, kParameters>& views, Arguments& arguments) {
  Status first;
  for (size_t i = 0; i < kParameters; ++i) {
    if (tensors[i] == nullptr) continue;
    Status status = ViewOf(table[i].name, *tensors[i], &views[i]);
    if (first.ok()) first = std::move(status);
    arguments.*table[i].view = &views[i];
  }
  return first;
}

template <typename Arguments>
void AttachTensors(const ArgumentTable<Arguments>& table, const ArgumentTensors& tensors,
                   const std::array<TensorView, kParameters>& views, Executor& executor) noexcept {
  for (size_t i = 0; i < kParameters; ++i) {
    if (tensors[i] == nullptr) continue;
    executor.Attach(i, table[i], *tensors[i], views[i]);
  }
}

/// Phase 1 after the operator has filled the arguments that are not tensors.
template <typename Arguments>
[[nodiscard]] int RunPhaseOne(const OperatorName& name, const ArgumentTable<Arguments>& table,
                              const ArgumentTensors& tensors, Arguments arguments,
                              const PhaseOneResults& results) {
  std::array<TensorView, kParameters> views;
  const Status viewed = MakeViews(table, tensors, views, arguments);
  const auto call = Bind(arguments, {NameStyle::kCamelCase, /*device_limits=*/true});
  const bool has_null = !call.ok() && call.status().code() == StatusCode::kNullArgument;
  if (!viewed.ok() && !has_null) return ReportStatus(viewed);
  if (!call.ok()) return ReportStatus(call.status());
  auto plan = KeptPlan(*call, StrictFromEnvironment());
  if (!plan.ok()) return ReportStatus(plan.status());
  if (Status status = plan->CheckExtents(call->tokens); !status.ok()) return ReportStatus(status);
  const uint64_t workspace_bytes = plan->WorkspaceBytes(call->tokens);
  auto executor = std::make_shared<Executor>(
      name, Executor::Call{std::move(plan).value(), call->tokens, workspace_bytes});
  AttachTensors(table, tensors, views, *executor);
  *results.executor = RegisterExecutor(std::move(executor));
  *results.workspace_size = workspace_bytes;
  return ACLNN_SUCCESS;
}

}  // namespace qkvfuse::capi
