// Page tables: sequences of any lengths, one after another, each in pages (blocks) of its own.
#pragma once

#include "plan/workspace.h"

namespace qkvfuse::internal {

/// Turns page table, lengths and row offsets into a slot for every token, in the workspace. Refuses
/// what does not describe the tokens, pages outside the cache, and last pages of which unused rows
/// are to be zeroed and that another sequence has, too.
[[nodiscard]] Status ResolvePageTable(const PlanImpl& plan, const Tensors& tensors,
                                      TokenCount tokens, const WorkspaceParts& parts);

/// Zeroes the unused rows of the last pages of the sequences whose last token is among
/// [begin, end).
void ZeroUnusedRows(const PlanImpl& plan, const Tensors& tensors, TokenCount tokens, int64_t begin,
                    int64_t end) noexcept;

}  // namespace qkvfuse::internal
