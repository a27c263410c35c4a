// Memory and views behind cases/problem.h; shared by the files that build and compare them.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "cases/buffer.h"
#include "cases/problem.h"

namespace qkvfuse::cases {

/// A tensor of the call as each side sees it. Absent where the data is null.
struct Member {
  TensorView library;
  TensorView reference;
  size_t storage = 0;  // outputs: index of the storage it lies in
};

/// Output memory, twice. It starts as poison, or as x where an output lies on x.
struct OutputStorage {
  OutputStorage(size_t bytes, BufferPlacement placement, size_t tail, const Buffer* x_buffer);

  /// What both sets hold before a run: the bytes of Buffer::whole.
  [[nodiscard]] std::vector<std::byte> InitialBytes() const;

  void ResetTo(const Buffer& buffer) const;

  size_t payload_bytes;
  const Buffer* x;  // null: poison
  Buffer library;
  Buffer reference;
};

struct ProblemMemory {
  ProblemMemory(const Case& description, const Placements& where)
      : c(description), placements(where) {}

  [[nodiscard]] Member& member(TensorId id) { return members[static_cast<size_t>(id)]; }
  [[nodiscard]] const Member& member(TensorId id) const { return members[static_cast<size_t>(id)]; }
  [[nodiscard]] uint64_t InputChecksum() const;

  Case c;
  Placements placements;
  std::vector<std::unique_ptr<Buffer>> inputs;
  std::vector<std::unique_ptr<OutputStorage>> outputs;
  std::array<Member, kTensorCount> members;
  Tensors tensors;
  reference::Problem reference;             // of Ascend's operators
  reference::FusedProblem fused_reference;  // op=fused
  uint64_t input_checksum = 0;
};

/// Allocates the tensors of the case and fills in members, tensors and reference.
void BuildTensors(ProblemMemory& memory);

/// op=fused: one side's views, by default the reference's.
[[nodiscard]] reference::FusedProblem FusedReferenceOf(
    const ProblemMemory& memory, TensorView Member::*side = &Member::reference);

}  // namespace qkvfuse::cases
