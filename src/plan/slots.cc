#include "plan/slots.h"

#include <cstring>

#include "base/message.h"
#include "plan/cache_layout.h"
#include "plan/index_reader.h"
#include "plan/page_table.h"

namespace qkvfuse::internal {
namespace {

/// Where the slots, or the starts, of a call are read.
IndexReader SlotsOf(const PlanImpl& plan, const Tensors& tensors, const WorkspaceParts& parts) {
  const SlotSpec& slots = plan.pipeline.slots;
  if (slots.mode == SlotMode::kPageTable) return {parts.slots()};
  return {tensors.slots, slots.dtype, slots.stride};
}

uint64_t HashOf(int64_t slot) noexcept {
  // Fibonacci hashing: the high bits of the product are well mixed.
  return (static_cast<uint64_t>(slot) * 0x9E3779B97F4A7C15u) >> 20;
}

/// Finds equal slots, from the last token to the first: the later token wins.
class RepeatFinder {
 public:
  RepeatFinder(const IndexReader& slots, int64_t* table, int64_t size) noexcept
      : slots_(slots), table_(table), mask_(static_cast<uint64_t>(size) - 1) {
    std::memset(table, 0, static_cast<size_t>(size) * sizeof(int64_t));
  }

  /// The later token with the slot of `token`, or -1 when there is none; then remembers the token.
  [[nodiscard]] int64_t FindOrAdd(int64_t token) noexcept {
    const int64_t slot = slots_[token];
    for (uint64_t i = HashOf(slot) & mask_;; i = (i + 1) & mask_) {
      if (table_[i] == 0) {
        table_[i] = token + 1;
        return -1;
      }
      if (slots_[table_[i] - 1] == slot) return table_[i] - 1;
    }
  }

 private:
  const IndexReader& slots_;
  int64_t* table_;
  uint64_t mask_;
};

Status CheckSlotPerToken(const PlanImpl& plan, const IndexReader& slots, int64_t tokens,
                         bool* is_increasing) {
  const Pipeline& pipeline = plan.pipeline;
  const char* const name = pipeline.of(Operand::kSlots).name;
  const int64_t capacity = pipeline.of(Operand::kKCache).layout.slots();
  int64_t previous = -1;
  *is_increasing = true;
  for (int64_t t = 0; t < tokens; ++t) {
    const int64_t slot = slots[t];
    if (slot >= capacity) {
      return Invalid(name, ": element ", t, " is ", slot, ", must be below ", capacity,
                     ", the slots of the cache");
    }
    if (slot < 0) {
      if (slot < -1 && pipeline.strict) {
        return Invalid(name, ": element ", t, " is ", slot,
                       ", must be a slot or -1, which skips the cache write (strict mode)");
      }
      continue;
    }
    *is_increasing &= slot > previous;
    previous = slot;
  }
  return {};
}

Status FindRepeats(const PlanImpl& plan, const IndexReader& slots, TokenCount tokens,
                   const WorkspaceParts& parts) {
  const int64_t total = tokens.total();
  uint8_t* const shadowed = parts.shadowed();
  std::memset(shadowed, 0, static_cast<size_t>(total));
  RepeatFinder finder(slots, parts.table(), WorkspaceParts::TableSize(total));
  for (int64_t t = total - 1; t >= 0; --t) {
    if (slots[t] < 0) continue;
    const int64_t later = finder.FindOrAdd(t);
    if (later < 0) continue;
    if (plan.pipeline.strict && plan.pipeline.slots.mode == SlotMode::kPageTable) {
      return Invalid(plan.pipeline.of(Operand::kSlots).name, ": tokens ", t, " and ", later,
                     " both go to slot ", slots[t],
                     ", every slot must be that of one token (strict mode)");
    }
    if (plan.pipeline.strict) {
      return Invalid(plan.pipeline.of(Operand::kSlots).name, ": elements ", t, " and ", later,
                     " are both ", slots[t],
                     ", every slot must be named once, -1 excepted (strict mode)");
    }
    shadowed[t] = 1;
    parts.header().has_shadowed_tokens = true;
  }
  return {};
}

Status CheckStarts(const PlanImpl& plan, const IndexReader& starts, TokenCount tokens) {
  const int64_t last_start = plan.pipeline.of(Operand::kKCache).layout.block_size - tokens.sequence;
  for (int64_t b = 0; b < tokens.batch; ++b) {
    const int64_t start = starts[b];
    if (start < 0 || start > last_start) {
      return Invalid(plan.pipeline.of(Operand::kSlots).name, ": element ", b, " is ", start,
                     ", must be from 0 to ", last_start, " for ", tokens.sequence,
                     " tokens in a cache of ", plan.pipeline.of(Operand::kKCache).layout.block_size,
                     " rows");
    }
  }
  return {};
}

}  // namespace

Status CheckSlots(const PlanImpl& plan, const Tensors& tensors, TokenCount tokens,
                  const WorkspaceParts& parts) {
  parts.header().has_shadowed_tokens = false;
  if (!plan.pipeline.has_caches()) return {};
  const SlotMode mode = plan.pipeline.slots.mode;
  if (mode == SlotMode::kPageTable) {
    Status status = ResolvePageTable(plan, tensors, tokens, parts);
    if (!status.ok()) return status;
  }
  const IndexReader slots = SlotsOf(plan, tensors, parts);
  if (mode == SlotMode::kStartPerSequence) return CheckStarts(plan, slots, tokens);
  bool is_increasing = false;
  Status status = CheckSlotPerToken(plan, slots, tokens.total(), &is_increasing);
  // Strictly increasing slots cannot repeat.
  if (!status.ok() || is_increasing) return status;
  return FindRepeats(plan, slots, tokens, parts);
}

void ResolveRows(const PlanImpl& plan, const Tensors& tensors, TokenCount tokens,
                 const WorkspaceParts& parts, int64_t first, int64_t count, CacheRows* rows) {
  const Pipeline& pipeline = plan.pipeline;
  const CacheLayout& k = pipeline.of(Operand::kKCache).layout;
  const CacheLayout& v = pipeline.of(Operand::kVCache).layout;
  const CacheLayout& k_scales = pipeline.of(Operand::kKScaleCache).layout;
  const CacheLayout& v_scales = pipeline.of(Operand::kVScaleCache).layout;
  const bool has_scales =
      pipeline.uses(Operand::kKScaleCache) || pipeline.uses(Operand::kVScaleCache);
  const IndexReader slots = SlotsOf(plan, tensors, parts);
  const bool is_per_token = pipeline.slots.mode != SlotMode::kStartPerSequence;
  const uint8_t* const shadowed = parts.header().has_shadowed_tokens ? parts.shadowed() : nullptr;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t token = first + i;
    int64_t block = token / tokens.sequence;
    int64_t row = token % tokens.sequence;
    if (is_per_token) {
      const int64_t slot = slots[token];
      if (slot < 0 || (shadowed != nullptr && shadowed[token] != 0)) {
        rows->k[i] = rows->v[i] = kernels::kSkippedRow;
        continue;
      }
      block = slot / k.block_size;
      row = slot % k.block_size;
    } else {
      row += slots[block];
    }
    rows->k[i] = RowOffset(k, block, row);
    rows->v[i] = RowOffset(v, block, row);
    if (!has_scales) continue;
    rows->k_scales[i] = RowOffset(k_scales, block, row);
    rows->v_scales[i] = RowOffset(v_scales, block, row);
  }
}

}  // namespace qkvfuse::internal
