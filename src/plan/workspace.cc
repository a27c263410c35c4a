#include "plan/workspace.h"

namespace qkvfuse::internal {
namespace {

constexpr int64_t kAlignment = 64;

constexpr int64_t AlignUp(int64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

/// Offsets of the parts whose size depends on the number of tokens.
struct TokenParts {
  int64_t token_scale = 0;
  int64_t slots = 0;
  int64_t shadowed = 0;
  int64_t table = 0;
  int64_t pages = 0;
  int64_t end = 0;
};

TokenParts PartsFor(const PlanImpl& plan, TokenCount tokens) {
  TokenParts parts;
  parts.token_scale = plan.workspace.fixed_bytes;
  const bool packs_token_scale = plan.workspace.parameters[Operand::kTokenScale] >= 0;
  const int64_t total = tokens.total();
  parts.slots = parts.token_scale + (packs_token_scale ? AlignUp(total * 4) : 0);
  parts.shadowed = parts.table = parts.pages = parts.end = parts.slots;
  const SlotSpec& slots = plan.pipeline.slots;
  if (!plan.pipeline.has_caches() || slots.mode == SlotMode::kStartPerSequence) return parts;
  if (slots.mode == SlotMode::kPageTable) parts.shadowed += AlignUp(total * 8);
  parts.table = parts.shadowed + AlignUp(total);
  parts.pages = parts.table + WorkspaceParts::TableSize(total) * 8;
  parts.end = parts.pages;
  if (slots.zeroes_unused_rows) {
    parts.end += WorkspaceParts::TableSize(tokens.ragged_sequences) * 8;
  }
  return parts;
}

}  // namespace

WorkspaceParts::WorkspaceParts(const PlanImpl& plan, TokenCount tokens, void* data) noexcept
    : plan_(plan), tokens_(tokens) {
  const auto address = reinterpret_cast<uintptr_t>(data);
  const uintptr_t aligned = (address + kAlignment - 1) / kAlignment * kAlignment;
  base_ = static_cast<char*>(data) + (aligned - address);
}

size_t WorkspaceParts::Bytes(const PlanImpl& plan, TokenCount tokens) noexcept {
  return static_cast<size_t>(PartsFor(plan, tokens).end + kAlignment);
}

WorkspaceHeader& WorkspaceParts::header() const noexcept {
  return *reinterpret_cast<WorkspaceHeader*>(base_);
}

void* WorkspaceParts::Parameter(Operand operand) const noexcept {
  const int64_t offset = plan_.workspace.parameters[operand];
  if (offset < 0) return nullptr;
  if (operand == Operand::kTokenScale) return base_ + PartsFor(plan_, tokens_).token_scale;
  return base_ + offset;
}

uint8_t* WorkspaceParts::shadowed() const noexcept {
  return reinterpret_cast<uint8_t*>(base_ + PartsFor(plan_, tokens_).shadowed);
}

int64_t* WorkspaceParts::table() const noexcept {
  return reinterpret_cast<int64_t*>(base_ + PartsFor(plan_, tokens_).table);
}

int64_t* WorkspaceParts::slots() const noexcept {
  return reinterpret_cast<int64_t*>(base_ + PartsFor(plan_, tokens_).slots);
}

int64_t* WorkspaceParts::pages() const noexcept {
  return reinterpret_cast<int64_t*>(base_ + PartsFor(plan_, tokens_).pages);
}

int64_t WorkspaceParts::TableSize(int64_t count) noexcept {
  int64_t size = 2;
  while (size < 2 * count) size *= 2;
  return size;
}

}  // namespace qkvfuse::internal
