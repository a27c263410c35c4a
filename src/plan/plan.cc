// The public face of a plan: Check, RunRange, Run.
#include "qkvfuse/plan.hpp"

#include <chrono>
#include <memory>
#include <new>

#include "base/log.h"
#include "base/message.h"
#include "base/parallel.h"
#include "plan/check_data.h"
#include "plan/run.h"
#include "plan/workspace.h"

namespace qkvfuse {
namespace {

/// One parallel Run, as the body of a parallel-for sees it.
struct ParallelRun {
  const internal::PlanImpl& plan;
  const Tensors& tensors;
  TokenCount tokens;
  Workspace workspace;
  int parts;

  static void RunPart(void* context, int64_t part) {
    const auto& run = *static_cast<const ParallelRun*>(context);
    const int64_t total = run.tokens.total();
    internal::RunTokens(run.plan, run.tensors, run.tokens, total * part / run.parts,
                        total * (part + 1) / run.parts, run.workspace);
  }
};

void RunAndLog(ParallelRun* run) noexcept {
  const auto begin = std::chrono::steady_clock::now();
  RunParallel(run->parts, run->parts, &ParallelRun::RunPart, run);
  // In whole numbers: the caller's floating-point environment may trap.
  const int64_t tenths =
      std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() - begin)
          .count() /
      100;
  try {
    LogLine(Concat(run->plan.pipeline.operator_name, ": ", run->tokens.total(), " tokens in ",
                   run->parts, " parts, ", tenths / 10, ".", tenths % 10, " us"));
  } catch (...) {
    // The outputs are written; a line that cannot be logged changes nothing.
  }
}

/// Channels of a packed row that anything becomes of.
int64_t ChannelsOfPackedHeads(const internal::PlanImpl& plan) noexcept {
  int64_t channels = 0;
  for (size_t g = 0; g < plan.groups.size(); ++g) {
    const HeadGroup& group = plan.pipeline.groups[g];
    if (plan.groups[g].group != nullptr) channels += group.heads * group.head_dim;
  }
  return channels;
}

Status OutOfMemory() noexcept {
  try {
    return Status(StatusCode::kOutOfMemory, "not enough memory");
  } catch (...) {
    return Status(StatusCode::kOutOfMemory, {});
  }
}

}  // namespace

size_t Plan::WorkspaceBytes(TokenCount tokens) const noexcept {
  if (!IsTokenCount(tokens) || tokens.total() == 0) return 0;
  return internal::WorkspaceParts::Bytes(*impl_, tokens);
}

Status Plan::CheckExtents(TokenCount tokens) const noexcept try {
  return internal::CheckExtents(*impl_, tokens);
} catch (...) {
  return OutOfMemory();
}

Status Plan::Check(const Tensors& tensors, TokenCount tokens, Workspace workspace) const noexcept
    try {
  return internal::CheckData(*impl_, tensors, tokens, workspace);
} catch (...) {
  return OutOfMemory();
}

void Plan::RunRange(const Tensors& tensors, TokenCount tokens, int64_t token_begin,
                    int64_t token_end, Workspace workspace) const noexcept {
  internal::RunTokens(*impl_, tensors, tokens, token_begin, token_end, workspace);
}

Status Plan::Run(const Tensors& tensors, TokenCount tokens, Workspace workspace,
                 const RunOptions& options) const noexcept {
  Status status = internal::CheckRunOptions(options);
  if (status.ok()) status = Check(tensors, tokens, workspace);
  if (!status.ok() || tokens.total() == 0) return status;
  const int parts = internal::PartsOf(*impl_, tokens, options);
  ParallelRun run{*impl_, tensors, tokens, workspace, parts};
  if (LogWants(LogKind::kRun)) {
    RunAndLog(&run);
  } else {
    RunParallel(parts, parts, &ParallelRun::RunPart, &run);
  }
  return status;
}

Status Plan::Run(const Tensors& tensors, TokenCount tokens,
                 const RunOptions& options) const noexcept {
  Status status = CheckExtents(tokens);
  if (!status.ok() || tokens.total() == 0) return status;
  const size_t bytes = WorkspaceBytes(tokens);
  const std::unique_ptr<char[]> memory(new (std::nothrow) char[bytes]);
  if (memory == nullptr) return OutOfMemory();
  return Run(tensors, tokens, Workspace{memory.get(), bytes}, options);
}

Plan::Traffic Plan::TrafficOf(TokenCount tokens) const noexcept {
  Traffic traffic;
  const Pipeline& pipeline = impl_->pipeline;
  if (!IsTokenCount(tokens) || tokens.total() == 0) return traffic;
  const int64_t total = tokens.total();
  for (const Operand operand : impl_->used) {
    const OperandSpec& spec = pipeline.of(operand);
    int64_t elements = 0;
    switch (spec.role) {
      case Role::kUnused:
        break;
      case Role::kRows:
      case Role::kCache:
        elements = total * (operand == Operand::kX ? ChannelsOfPackedHeads(*impl_)
                                                   : spec.heads * spec.channels);
        break;
      case Role::kTable:
        elements = total * spec.channels *
                   (pipeline.rope.pair_sections.empty() ? 1 : kernels::kMaxSections);
        break;
      case Role::kPositions:
        elements = total * (pipeline.rope.pair_sections.empty() ? 1 : kernels::kMaxSections);
        break;
      case Role::kLengths:
        elements = tokens.ragged_sequences;
        break;
      case Role::kRowOffsets:
        elements = tokens.ragged_sequences + 1;
        break;
      case Role::kParameter:
        elements = spec.count / spec.shared_by;
        break;
      case Role::kTokenParameter:
        elements = total;
        break;
      case Role::kSlots:
        elements = pipeline.slots.mode == SlotMode::kStartPerSequence ? tokens.batch : total;
        break;
    }
    (spec.is_output ? traffic.write_bytes : traffic.read_bytes) += elements * SizeOf(spec.dtype);
  }
  return traffic;
}

const char* Plan::target() const noexcept { return impl_->target.name.c_str(); }

bool Plan::is_fused() const noexcept {
  for (const internal::GroupKernels& group : impl_->groups) {
    if (group.group != nullptr && !group.is_fused) return false;
  }
  return true;
}

}  // namespace qkvfuse
