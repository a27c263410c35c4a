// The parts of a call's workspace: flags, packed parameters, the slots of a page table, the mask of
// shadowed tokens and the tables that find them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "plan/plan_impl.h"

namespace qkvfuse::internal {

/// What Check found, for RunRange.
struct WorkspaceHeader {
  bool has_shadowed_tokens;
};

/// A workspace cut into its parts.
class WorkspaceParts {
 public:
  WorkspaceParts(const PlanImpl& plan, TokenCount tokens, void* data) noexcept;

  /// Bytes that hold all parts at any base address.
  [[nodiscard]] static size_t Bytes(const PlanImpl& plan, TokenCount tokens) noexcept;

  [[nodiscard]] WorkspaceHeader& header() const noexcept;
  /// Where the packed copy of a parameter lies, or nullptr when the caller's memory is used.
  [[nodiscard]] void* Parameter(Operand operand) const noexcept;
  /// [tokens], 1 where a later token has the same slot.
  [[nodiscard]] uint8_t* shadowed() const noexcept;
  /// [tokens], the slots that a page table gives.
  [[nodiscard]] int64_t* slots() const noexcept;
  /// Hash table of token numbers + 1; TableSize(tokens) entries, 0 is free.
  [[nodiscard]] int64_t* table() const noexcept;
  /// The same of sequences, by their last page; TableSize(sequences) entries.
  [[nodiscard]] int64_t* pages() const noexcept;
  [[nodiscard]] static int64_t TableSize(int64_t count) noexcept;

 private:
  const PlanImpl& plan_;
  TokenCount tokens_;
  char* base_;
};

}  // namespace qkvfuse::internal
