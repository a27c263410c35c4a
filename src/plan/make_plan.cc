// Pipeline -> Plan: checks what all operators share, selects kernels per head group and lays out
// the workspace.
#include <array>

#include "base/checked_math.h"
#include "base/log.h"
#include "base/message.h"
#include "plan/cache_layout.h"
#include "plan/check_data.h"
#include "plan/operand_view.h"
#include "plan/parameters.h"
#include "plan/plan_impl.h"
#include "plan/select_kernels.h"
#include "plan/workspace.h"

namespace qkvfuse::internal {
namespace {

Status CheckStrides(const Pipeline& pipeline, Operand operand) {
  const OperandSpec& spec = pipeline.of(operand);
  if (spec.role != Role::kParameter && spec.role != Role::kTokenParameter) return {};
  if (spec.shape.rank < 0 || spec.shape.rank > kMaxRank) {
    return Invalid(spec.name, ": has ", spec.shape.rank, " dimensions, must have from 0 to ",
                   kMaxRank);
  }
  int64_t count = 1;
  for (int axis = 0; axis < spec.shape.rank; ++axis) {
    const int64_t size = spec.shape.dims[static_cast<size_t>(axis)];
    if (size < 0 || !CheckedMul(count, size, &count)) {
      return Invalid(spec.name, ": dimension ", axis, " is ", size,
                     ", sizes must be 0 or more and their product below 2^63");
    }
  }
  if (spec.shape.rank > 0 && count < spec.count) {
    return Invalid(spec.name, ": has ", count, " elements, must have at least ", spec.count);
  }
  return {};
}

/// Checks of operands that need no token counts.
Status CheckOperands(const Pipeline& pipeline) {
  for (size_t i = 0; i < kOperandCount; ++i) {
    const auto operand = static_cast<Operand>(i);
    const OperandSpec& spec = pipeline.of(operand);
    Status status = CheckStrides(pipeline, operand);
    if (status.ok() && spec.role == Role::kCache) {
      status = CheckLayout(spec.layout, spec.name, spec.channels);
    }
    const bool has_fixed_size =
        spec.role == Role::kCache || spec.role == Role::kParameter || spec.role == Role::kTable;
    if (status.ok() && has_fixed_size) {
      status = CheckOperandExtent(pipeline, operand, TokenCount(0));
    }
    if (!status.ok()) return status;
  }
  if (!pipeline.has_caches()) return {};
  const OperandSpec& k = pipeline.of(Operand::kKCache);
  const OperandSpec& v = pipeline.of(Operand::kVCache);
  if (k.layout.blocks != v.layout.blocks || k.layout.block_size != v.layout.block_size) {
    return Invalid(v.name, ": has ", v.layout.blocks, " blocks of ", v.layout.block_size,
                   " rows, must have those of ", k.name, ", ", k.layout.blocks, " blocks of ",
                   k.layout.block_size);
  }
  return {};
}

void LayOutWorkspace(PlanImpl* plan) {
  int64_t next = 64;  // the header's line
  for (size_t i = 0; i < kOperandCount; ++i) {
    const auto operand = static_cast<Operand>(i);
    const OperandSpec& spec = plan->pipeline.of(operand);
    const bool is_parameter = spec.role == Role::kParameter || spec.role == Role::kTokenParameter;
    if (spec.role != Role::kUnused) plan->used.Add(operand);
    int64_t& offset = plan->workspace.parameters[operand];
    offset = is_parameter && NeedsPacking(spec) ? next : -1;
    if (offset >= 0) next += (spec.count * 4 + 63) / 64 * 64;
  }
  plan->workspace.fixed_bytes = next;
}

/// Looks once at what few calls are larger than, so that those need not look.
void CheckCommonExtents(PlanImpl* plan) {
  constexpr int64_t kTokens = 65536;
  plan->sequences_follow = true;
  for (const OperandSpec& spec : plan->pipeline.operands.items) {
    if (spec.role == Role::kRows && spec.strides.batch != TokenStrides::kFollows) {
      plan->sequences_follow = false;
    }
  }
  const bool is_ragged = plan->pipeline.slots.mode == SlotMode::kPageTable;
  const TokenCount one(is_ragged ? TokenCount::Ragged(kTokens, kTokens) : TokenCount(kTokens));
  const bool one_sequence = CheckRowExtents(*plan, one).ok();
  const bool many = !plan->sequences_follow || CheckRowExtents(*plan, TokenCount(kTokens, 1)).ok();
  plan->checked_tokens = one_sequence && many ? kTokens : 0;
}

/// The caller's names need not outlive MakePlan.
void KeepLayoutNames(PlanImpl* plan) {
  constexpr std::array kCaches = {Operand::kKCache, Operand::kVCache, Operand::kKScaleCache,
                                  Operand::kVScaleCache};
  static_assert(kCaches.size() == std::tuple_size_v<decltype(plan->layout_names)>);
  for (size_t i = 0; i < kCaches.size(); ++i) {
    const char*& name = plan->pipeline.operands[kCaches[i]].layout.name;
    plan->layout_names[i] = name == nullptr ? "" : name;
    name = plan->layout_names[i].c_str();
  }
}

/// Whether a group's gamma is part of its coefficients.
bool FoldsGamma(const HeadGroup& group) {
  return group.gamma && !group.norms_full_width && !group.norms_after_rope;
}

Result<Plan> BuildChecked(const Pipeline& pipeline, const PlanOptions& options) {
  Status status = CheckOperands(pipeline);
  if (!status.ok()) return status;
  const auto target = ChooseTarget(options);
  if (!target.ok()) return target.status();
  const auto path = ChoosePath(options);
  if (!path.ok()) return path.status();
  auto plan = std::make_shared<PlanImpl>();
  plan->pipeline = pipeline;
  KeepLayoutNames(plan.get());
  plan->pipeline.strict = options.strict;
  plan->target = *target;
  plan->parameters = kernels::SelectParameterFunctions(target->id);
  for (size_t g = 0; g < plan->groups.size(); ++g) {
    GroupKernels& group = plan->groups[g];
    status = SelectKernels(plan->pipeline, *target, *path, g, &group);
    if (!status.ok()) return status;
    const GroupKernels* const before = g > 0 ? &plan->groups[g - 1] : nullptr;
    group.folds_gamma = FoldsGamma(plan->pipeline.groups[g]);
    group.shares_coefficients = before != nullptr && group.coefficients == before->coefficients &&
                                !group.folds_gamma && !before->folds_gamma;
  }
  LayOutWorkspace(plan.get());
  plan->regions.Make(plan->pipeline);
  CheckCommonExtents(plan.get());
  return Plan(std::move(plan));
}

}  // namespace

Result<Plan> BuildPlan(const Pipeline& pipeline, const PlanOptions& options) {
  Result<Plan> plan = BuildChecked(pipeline, options);
  if (plan.ok() && LogWants(LogKind::kPlan)) LogLines(plan->Describe(TokenCount(1)));
  return plan;
}

}  // namespace qkvfuse::internal
