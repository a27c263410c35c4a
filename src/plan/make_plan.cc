// Pipeline -> Plan: checks what all operators share, selects kernels per head group and lays out
// the workspace.
#include <array>
#include <cstdlib>

#include "base/checked_math.h"
#include "base/log.h"
#include "base/message.h"
#include "kernels/copy.h"
#include "plan/cache_layout.h"
#include "plan/check_data.h"
#include "plan/operand_view.h"
#include "plan/parameters.h"
#include "plan/plan_impl.h"
#include "plan/workspace.h"

namespace qkvfuse::internal {
namespace {

using kernels::KernelKey;
using kernels::SinkKind;
using kernels::SourceKind;
using kernels::Transform;

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
      status = CheckLayout(spec.layout, spec.name, pipeline.head_dim);
    }
    const bool has_fixed_size = spec.role == Role::kCache || spec.role == Role::kParameter;
    if (status.ok() && has_fixed_size) {
      status = CheckOperandExtent(pipeline, operand, TokenCount(0));
    }
    if (!status.ok()) return status;
  }
  const OperandSpec& k = pipeline.of(Operand::kKCache);
  const OperandSpec& v = pipeline.of(Operand::kVCache);
  if (k.layout.blocks != v.layout.blocks || k.layout.block_size != v.layout.block_size) {
    return Invalid(v.name, ": has ", v.layout.blocks, " blocks of ", v.layout.block_size,
                   " rows, must have those of ", k.name, ", ", k.layout.blocks, " blocks of ",
                   k.layout.block_size);
  }
  return {};
}

// SIMD target and path.

Result<kernels::Target> ChooseTarget(const PlanOptions& options) {
  const std::vector<kernels::Target>& targets = kernels::SupportedTargets();
  std::string wanted = options.target;
  const char* const environment = std::getenv("QKVFUSE_TARGET");
  if (wanted.empty() && environment != nullptr) wanted = environment;
  if (wanted.empty()) return targets.front();
  std::string names;
  for (const auto& target : targets) {
    if (target.name == wanted) return target;
    if (!names.empty()) names += ", ";
    names += target.name;
  }
  return Invalid("target: is ", wanted, ", must be one of ", names);
}

Result<Path> ChoosePath(const PlanOptions& options) {
  switch (options.path) {
    case Path::kAuto:
    case Path::kGeneral:
    case Path::kFused:
      break;
    default:
      return Invalid("path: is ", static_cast<int>(options.path),
                     ", must be kAuto, kGeneral or kFused");
  }
  const char* const environment = std::getenv("QKVFUSE_PATH");
  if (options.path != Path::kAuto || environment == nullptr) return options.path;
  const std::string wanted = environment;
  if (wanted == "general") return Path::kGeneral;
  if (wanted == "fused") return Path::kFused;
  if (wanted.empty() || wanted == "auto") return Path::kAuto;
  return Invalid("QKVFUSE_PATH: is ", wanted, ", must be auto, general or fused");
}

// Kernels of a head group.

SourceKind SourceOfGroup(const Pipeline& pipeline) {
  const DType x = pipeline.of(Operand::kX).dtype;
  if (x != DType::kInt32) return kernels::SourceOf(x);
  if (!pipeline.uses(Operand::kBias)) return SourceKind::kInt32NoBias;
  return pipeline.of(Operand::kBias).dtype == DType::kInt32 ? SourceKind::kInt32IntBias
                                                            : SourceKind::kInt32FloatBias;
}

SinkKind SinkOfGroup(const Pipeline& pipeline, const HeadGroup& group) {
  const int dense = (group.dense[0] ? 1 : 0) + (group.dense[1] ? 1 : 0);
  if (!group.cache || pipeline.of(*group.cache).dtype != DType::kInt8) {
    return dense + (group.cache ? 1 : 0) == 2 ? SinkKind::kStoreTwice : SinkKind::kStore;
  }
  if (group.offset) return dense > 0 ? SinkKind::kInt8OffsetStore : SinkKind::kInt8Offset;
  return dense > 0 ? SinkKind::kInt8Store : SinkKind::kInt8;
}

Transform TransformOfGroup(const HeadGroup& group) {
  if (!group.has_rope) return Transform::kNone;
  return group.has_norm ? Transform::kNormRope : Transform::kRope;
}

/// Why a group cannot take the fused kernels, or "" when nothing but the list can say no.
std::string ReasonForGeneral(const Pipeline& pipeline, const HeadGroup& group) {
  const OperandSpec& x = pipeline.of(Operand::kX);
  const auto strided = [](const OperandSpec& spec) {
    return Concat(spec.name, " has channel stride ", spec.strides.channel);
  };
  if (pipeline.head_dim % kernels::kPieceChannels != 0) {
    return Concat("head_dim ", pipeline.head_dim, " is not a multiple of ",
                  kernels::kPieceChannels);
  }
  if (x.strides.channel != 1) return strided(x);
  if (group.has_rope) {
    for (const Operand table : {Operand::kCos, Operand::kSin}) {
      if (pipeline.of(table).strides.channel != 1) return strided(pipeline.of(table));
    }
  }
  for (const auto& dense : group.dense) {
    if (dense && pipeline.of(*dense).strides.channel != 1) return strided(pipeline.of(*dense));
  }
  if (!group.cache) return "";
  const OperandSpec& cache = pipeline.of(*group.cache);
  const CacheLayout& layout = cache.layout;
  if (layout.channel_stride != 1) {
    return Concat(cache.name, " has channel stride ", layout.channel_stride);
  }
  if (layout.channel_chunk % kernels::kPieceChannels != 0) {
    return Concat(cache.name, " has chunks of ", layout.channel_chunk, " channels");
  }
  return "";
}

/// All of a task but its pointers.
kernels::GroupTask TaskTemplate(const Pipeline& pipeline, const HeadGroup& group) {
  kernels::GroupTask task;
  task.source_kind = SourceOfGroup(pipeline);
  task.transform = TransformOfGroup(group);
  task.sink = SinkOfGroup(pipeline, group);
  task.store = pipeline.store;
  task.heads = group.heads;
  task.head_dim = pipeline.head_dim;
  task.epsilon = static_cast<float>(pipeline.epsilon);
  task.source.head_stride = pipeline.of(Operand::kX).strides.head;
  task.source.channel_stride = pipeline.of(Operand::kX).strides.channel;
  return task;
}

KernelKey KeyOf(const Pipeline& pipeline, const kernels::GroupTask& task) {
  KernelKey key;
  key.source = task.source_kind;
  key.transform = task.transform;
  key.sink = task.sink;
  key.store = pipeline.store;
  key.table = pipeline.of(Operand::kCos).dtype;
  key.head_dim = pipeline.head_dim;
  return key;
}

void UseKernels(const kernels::SelectedKernels& selected, GroupKernels* out) {
  out->group = selected.group;
  out->coefficients = selected.coefficients;
}

Status SelectKernels(const Pipeline& pipeline, const kernels::Target& target, Path path, size_t g,
                     GroupKernels* out) {
  const HeadGroup& group = pipeline.groups[g];
  out->task = TaskTemplate(pipeline, group);
  if (!kernels::Quantises(out->task.sink) && kernels::CopiesBits(out->task)) {
    out->group = kernels::SelectCopy();
    out->is_fused = true;
    out->description = "copy of bits";
    return {};
  }
  const KernelKey key = KeyOf(pipeline, out->task);
  std::string reason = path == Path::kGeneral ? "asked for" : ReasonForGeneral(pipeline, group);
  if (reason.empty()) {
    const kernels::SelectedKernels fused = kernels::SelectFused(target.id, key);
    if (fused.group != nullptr) {
      UseKernels(fused, out);
      if (key.sink == SinkKind::kStore && !group.cache) {
        KernelKey streaming = key;
        streaming.sink = SinkKind::kStream;
        out->streaming = kernels::SelectFused(target.id, streaming).group;
      }
      out->is_fused = true;
      out->description = Concat("fused kernel ", fused.name);
      return {};
    }
    reason = "the list has no kernel for this source, transform and sink";
  }
  if (path == Path::kFused) {
    static constexpr const char* kNames[] = {"q", "k", "v"};
    return Invalid("path: is fused, but the ", kNames[g], " heads need the general path: ", reason);
  }
  UseKernels(kernels::SelectGeneral(target.id, key), out);
  out->description = Concat("general path (", reason, ")");
  return {};
}

/// Tables for the destinations that keep every kPieceChannels channels together: all of a fused
/// group's. The general path goes through a copy of its own where it finds none.
void MakePieceTables(const Pipeline& pipeline, const HeadGroup& group, GroupKernels* out) {
  // The general path pads each half of a head that is rotated.
  const bool pads_halves = !out->is_fused && group.has_rope;
  const int64_t part = pads_halves ? pipeline.head_dim / 2 : pipeline.head_dim;
  if (part % kernels::kPieceChannels != 0) return;
  out->dense_pieces = PieceTable(pipeline.head_dim, SizeOf(pipeline.store), 0, 0);
  if (!group.cache) return;
  const OperandSpec& cache = pipeline.of(*group.cache);
  const CacheLayout& layout = cache.layout;
  if (layout.channel_stride != 1 || layout.channel_chunk % kernels::kPieceChannels != 0) return;
  out->cache_pieces = PieceTable(pipeline.head_dim, SizeOf(cache.dtype), layout.channel_chunk,
                                 layout.channel_chunk_stride);
}

void LayOutWorkspace(PlanImpl* plan) {
  int64_t next = 64;  // the header's line
  for (size_t i = 0; i < kOperandCount; ++i) {
    const auto operand = static_cast<Operand>(i);
    const OperandSpec& spec = plan->pipeline.of(operand);
    const bool is_parameter = spec.role == Role::kParameter || spec.role == Role::kTokenParameter;
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
  const bool one_sequence = CheckRowExtents(*plan, TokenCount(1, kTokens)).ok();
  const bool many = !plan->sequences_follow || CheckRowExtents(*plan, TokenCount(kTokens, 1)).ok();
  plan->checked_tokens = one_sequence && many ? kTokens : 0;
}

/// The caller's names need not outlive MakePlan.
void KeepLayoutNames(PlanImpl* plan) {
  constexpr std::array kCaches = {Operand::kKCache, Operand::kVCache};
  for (size_t i = 0; i < kCaches.size(); ++i) {
    const char*& name = plan->pipeline.operands[kCaches[i]].layout.name;
    plan->layout_names[i] = name;
    name = plan->layout_names[i].c_str();
  }
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
    MakePieceTables(plan->pipeline, plan->pipeline.groups[g], &group);
    group.shares_coefficients = g > 0 && group.coefficients == plan->groups[g - 1].coefficients &&
                                !plan->pipeline.groups[g].gamma &&
                                !plan->pipeline.groups[g - 1].gamma;
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
