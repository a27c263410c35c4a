#include "plan/check_data.h"

#include "base/fp_environment.h"
#include "base/message.h"
#include "plan/index_reader.h"
#include "plan/operand_view.h"
#include "plan/overlap.h"
#include "plan/parameters.h"
#include "plan/slots.h"
#include "plan/workspace.h"

namespace qkvfuse::internal {
namespace {

template <typename Function>
Status ForEachUsed(const PlanImpl& plan, const Function& function) {
  for (const Operand operand : plan.used) {
    Status status = function(operand, plan.pipeline.of(operand));
    if (!status.ok()) return status;
  }
  return {};
}

Status CheckTokenCount(const PlanImpl& plan, TokenCount tokens) {
  if (tokens.ragged_sequences < 0 || tokens.ragged_sequences > kMaxTokens) {
    return Invalid("tokens: are of ", tokens.ragged_sequences,
                   " ragged sequences, must be of 0 to ", kMaxTokens);
  }
  if (!IsTokenCount(tokens)) {
    return Invalid("tokens: ", tokens.batch, " sequences of ", tokens.sequence,
                   " tokens, must be from 0 to ", kMaxTokens, " tokens");
  }
  const SlotMode mode = plan.pipeline.slots.mode;
  if (mode != SlotMode::kPageTable && tokens.ragged_sequences != 0) {
    return Invalid("tokens: are of ", tokens.ragged_sequences,
                   " ragged sequences, need slots of mode kPageTable");
  }
  if (tokens.total() == 0) return {};
  if (mode == SlotMode::kPageTable && (tokens.batch != 1 || tokens.ragged_sequences == 0)) {
    return Invalid("tokens: are of ", tokens.batch, " sequences of ", tokens.sequence,
                   ", must be TokenCount::Ragged for slots of mode kPageTable");
  }
  if (mode != SlotMode::kStartPerSequence || !plan.pipeline.has_caches()) return {};
  const OperandSpec& cache = plan.pipeline.of(Operand::kKCache);
  if (tokens.batch > cache.layout.blocks) {
    return Invalid(cache.name, ": has ", cache.layout.blocks, " sequences, must have at least ",
                   tokens.batch, ", the batch");
  }
  if (tokens.sequence > cache.layout.block_size) {
    return Invalid(cache.name, ": has ", cache.layout.block_size,
                   " rows for a sequence, must have at least ", tokens.sequence,
                   ", the tokens of one");
  }
  return {};
}

Status CheckTokenParameters(const PlanImpl& plan, TokenCount tokens) {
  return ForEachUsed(plan, [&](Operand, const OperandSpec& spec) -> Status {
    if (spec.role != Role::kTokenParameter || spec.shape.rank == 0) return {};
    if (spec.shape.ElementCount() >= tokens.total()) return {};
    return Invalid(spec.name, ": has ", spec.shape.ElementCount(), " elements, must have at least ",
                   tokens.total(), ", one per token");
  });
}

Status CheckPointer(const OperandSpec& spec, const void* data) {
  if (data == nullptr) return Null(spec.name, ": data is null, must point to its elements");
  // Element sizes are powers of two.
  const uintptr_t misaligned =
      reinterpret_cast<uintptr_t>(data) & static_cast<uintptr_t>(SizeOf(spec.dtype) - 1);
  if (misaligned == 0) return {};
  return Invalid(spec.name, ": data address ends in ", misaligned, " modulo ", SizeOf(spec.dtype),
                 ", must be a multiple of the element size");
}

Status CheckPointers(const PlanImpl& plan, const Tensors& tensors) {
  return ForEachUsed(plan, [&](Operand operand, const OperandSpec& spec) {
    return CheckPointer(spec, PointerOf(tensors, operand));
  });
}

/// A scale of 0 divides by zero; strict mode refuses it.
Status CheckScales(const PlanImpl& plan, const Tensors& tensors, const WorkspaceParts& parts) {
  for (const Operand operand : {Operand::kQScale, Operand::kKScale, Operand::kVScale}) {
    if (!plan.pipeline.uses(operand)) continue;
    const OperandSpec& spec = plan.pipeline.of(operand);
    const void* const packed = parts.Parameter(operand);
    const auto* const scale =
        static_cast<const float*>(packed != nullptr ? packed : PointerOf(tensors, operand));
    if (!plan.parameters.has_zero(scale, spec.count)) continue;
    int64_t first = 0;
    while (scale[first] != 0.0f) ++first;
    return Invalid(spec.name, ": element ", first / spec.shared_by,
                   " is 0, every scale must differ from 0 (strict mode)");
  }
  return {};
}

/// Every position has a row in the tables.
Status CheckPositions(const PlanImpl& plan, const Tensors& tensors, TokenCount tokens) {
  const Pipeline& pipeline = plan.pipeline;
  if (!pipeline.uses(Operand::kPositions)) return {};
  const OperandSpec& spec = pipeline.of(Operand::kPositions);
  const int64_t rows = pipeline.of(Operand::kCos).count;
  const RopeStage& rope = pipeline.rope;
  const IndexReader positions{tensors.positions, spec.dtype, rope.position_stride};
  const int64_t sections = rope.pair_sections.empty() ? 1 : kernels::kMaxSections;
  for (int64_t section = 0; section < sections; ++section) {
    const int64_t first = section * PositionSectionStride(rope, tokens);
    for (int64_t t = 0; t < tokens.total(); ++t) {
      const int64_t position = positions.At(first + t * rope.position_stride);
      if (position >= 0 && position < rows) continue;
      return Invalid(spec.name, ": element ", section * tokens.total() + t, " is ", position,
                     ", must be from 0 to ", rows - 1, ", a row of the tables");
    }
  }
  return {};
}

void PackParameters(const PlanImpl& plan, const Tensors& tensors, TokenCount tokens,
                    const WorkspaceParts& parts) {
  for (const Operand operand : plan.used) {
    void* const packed = parts.Parameter(operand);
    if (packed == nullptr) continue;
    const OperandSpec& spec = plan.pipeline.of(operand);
    PackParameter(plan, spec, PointerOf(tensors, operand), ParameterCount(spec, tokens), packed);
  }
}

Status CheckWorkspace(const PlanImpl& plan, TokenCount tokens, Workspace workspace) {
  const size_t needed = WorkspaceParts::Bytes(plan, tokens);
  if (workspace.data == nullptr) {
    return Null("workspace: is null, must point to ", needed, " bytes");
  }
  if (workspace.bytes < needed) {
    return Invalid("workspace: has ", workspace.bytes, " bytes, must have at least ", needed);
  }
  return {};
}

}  // namespace

Status CheckExtents(const PlanImpl& plan, TokenCount tokens) {
  Status status = CheckTokenCount(plan, tokens);
  if (!status.ok() || tokens.total() == 0) return status;
  status = CheckTokenParameters(plan, tokens);
  if (!status.ok() || plan.HasCheckedExtents(tokens)) return status;
  return CheckRowExtents(plan, tokens);
}

Status CheckRowExtents(const PlanImpl& plan, TokenCount tokens) {
  return ForEachUsed(plan, [&](Operand operand, const OperandSpec& spec) -> Status {
    // These do not depend on the tokens: BuildPlan looked at them.
    if (spec.role == Role::kCache || spec.role == Role::kParameter || spec.role == Role::kTable) {
      return {};
    }
    return CheckOperandExtent(plan.pipeline, operand, tokens);
  });
}

Status CheckData(const PlanImpl& plan, const Tensors& tensors, TokenCount tokens,
                 Workspace workspace) {
  const ScopedFpEnvironment environment;  // scales are compared, parameters widened
  Status status = CheckExtents(plan, tokens);
  if (!status.ok() || tokens.total() == 0) return status;
  status = CheckPointers(plan, tensors);
  if (!status.ok()) return status;
  status = CheckWorkspace(plan, tokens, workspace);
  if (!status.ok()) return status;
  const Workspace used{workspace.data, WorkspaceParts::Bytes(plan, tokens)};
  status = CheckOverlap(plan.pipeline, plan.regions, tensors, tokens, used);
  if (!status.ok()) return status;
  const WorkspaceParts parts(plan, tokens, workspace.data);
  status = CheckSlots(plan, tensors, tokens, parts);
  if (status.ok()) status = CheckPositions(plan, tensors, tokens);
  if (!status.ok()) return status;
  PackParameters(plan, tensors, tokens, parts);
  return plan.pipeline.strict ? CheckScales(plan, tensors, parts) : Status();
}

}  // namespace qkvfuse::internal
