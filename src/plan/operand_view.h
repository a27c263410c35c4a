// Operands as strided views in memory: extents, self-overlap, and overlap between the operands of
// a call.
#pragma once

#include "plan/overlap.h"
#include "plan/pipeline.h"

namespace qkvfuse::internal {

/// Refuses an operand whose extent does not fit, or an output that overlaps itself.
[[nodiscard]] Status CheckOperandExtent(const Pipeline& pipeline, Operand operand,
                                        TokenCount tokens);

/// Where one operand of a call lies, as a function of the tokens. A packed x is taken apart into
/// its q, k and v heads: what lies exactly on one of them may be that group's dense output.
struct Region {
  Operand operand = Operand::kX;
  int group = -1;            // of a source, or of an output
  int64_t offset = 0;        // bytes from the operand's pointer to this part of it
  int64_t begin = 0;         // first byte of one token, from the operand's pointer,
  int64_t end = 0;           // and one past the last
  bool follows = false;      // sequences follow each other: token_stride counts over the batch
  int64_t batch_stride = 0;  // bytes
  int64_t token_stride = 0;
  int64_t section_stride = 0;  // what each token adds to the distance of rows of positions
  int64_t ragged_stride = 0;   // from one sequence of a page table to the next
};

/// The regions of a pipeline's calls, outputs first. The plan makes them once.
struct Regions {
  static constexpr size_t kMax = kOperandCount + 2;
  std::array<Region, kMax> items;
  int count = 0;
  int outputs = 0;

  void Make(const Pipeline& pipeline);
  void Add(const Region& region) noexcept { items[static_cast<size_t>(count++)] = region; }
};

/// Refuses an output, or the workspace, that shares an element with another output or with an
/// input; a dense output that lies exactly on its own part of x is allowed.
[[nodiscard]] Status CheckOverlap(const Pipeline& pipeline, const Regions& regions,
                                  const Tensors& tensors, TokenCount tokens, Workspace workspace);

}  // namespace qkvfuse::internal
