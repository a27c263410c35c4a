// The immutable state behind a Plan: the pipeline, the kernels chosen for it, and where the
// workspace keeps what Check prepares.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "kernels/kernels.h"
#include "plan/operand_view.h"
#include "plan/pipeline.h"

namespace qkvfuse::internal {

/// The kernels of a head group and why they were chosen.
struct GroupKernels {
  kernels::GroupKernel group = nullptr;
  kernels::GroupKernel streaming = nullptr;  // the same for large dense outputs, if there is one
  kernels::CoefficientKernel coefficients = nullptr;
  kernels::GroupTask task;  // all but the pointers of a call
  std::string description;  // "fused: k16Bit kNormRope kStore", "general path: head_dim 46 ..."
  bool is_fused = false;
  bool folds_gamma = false;          // into the coefficients
  bool shares_coefficients = false;  // with the group before
  // By output: byte offset of every kPieceChannels channels; empty where they do not lie together.
  std::array<std::vector<int64_t>, kernels::kMaxOutputs> pieces;
};

/// The operands that a pipeline uses, in order.
struct UsedOperands {
  std::array<Operand, kOperandCount> items{};
  size_t count = 0;

  void Add(Operand operand) noexcept { items[count++] = operand; }
  [[nodiscard]] const Operand* begin() const noexcept { return items.data(); }
  [[nodiscard]] const Operand* end() const noexcept { return items.data() + count; }
};

/// Byte offsets of the parts of a workspace, from its first 64-byte boundary.
struct WorkspaceMap {
  PerOperand<int64_t> parameters;  // packed copies of parameters; -1 where the caller's is used
  int64_t fixed_bytes = 0;         // header and parameters
};

class PlanImpl {
 public:
  PlanImpl() = default;
  PlanImpl(const PlanImpl&) = delete;  // the pipeline points at layout_names
  PlanImpl& operator=(const PlanImpl&) = delete;

  Pipeline pipeline;
  UsedOperands used;
  std::array<std::string, 4> layout_names;  // of the caches; the pipeline's point here
  kernels::Target target;
  kernels::ParameterFunctions parameters;
  std::array<GroupKernels, 3> groups;
  WorkspaceMap workspace;
  Regions regions;
  /// Sequences follow each other in every row tensor.
  bool sequences_follow = false;
  /// Up to so many tokens of one sequence, or of several that follow each other, every extent of a
  /// call fits and no output overlaps itself; calls of more, and others, are looked at.
  int64_t checked_tokens = 0;

  [[nodiscard]] bool HasCheckedExtents(TokenCount tokens) const noexcept {
    return tokens.total() <= checked_tokens && tokens.ragged_sequences <= checked_tokens &&
           (tokens.batch == 1 || sequences_follow);
  }
};

/// Checks what is common to all operators, selects kernels and lays out the workspace.
[[nodiscard]] Result<Plan> BuildPlan(const Pipeline& pipeline, const PlanOptions& options);

}  // namespace qkvfuse::internal
