#include "plan/page_table.h"

#include <algorithm>
#include <cstring>

#include "base/message.h"
#include "plan/cache_layout.h"
#include "plan/index_reader.h"

namespace qkvfuse::internal {
namespace {

/// The three index operands of a call.
class RaggedBatch {
 public:
  RaggedBatch(const PlanImpl& plan, const Tensors& tensors, TokenCount tokens) noexcept
      : slots_(plan.pipeline.slots),
        block_size_(plan.pipeline.of(Operand::kKCache).layout.block_size),
        sequences_(tokens.ragged_sequences),
        pages_{tensors.slots, slots_.dtype, slots_.stride},
        lengths_{tensors.lengths, slots_.dtype, 1},
        row_offsets_{tensors.row_offsets, slots_.dtype, 1} {}

  [[nodiscard]] int64_t sequences() const noexcept { return sequences_; }
  [[nodiscard]] int64_t block_size() const noexcept { return block_size_; }
  [[nodiscard]] int64_t first_token(int64_t sequence) const noexcept {
    return row_offsets_[sequence];
  }
  [[nodiscard]] int64_t tokens(int64_t sequence) const noexcept {
    return row_offsets_[sequence + 1] - row_offsets_[sequence];
  }
  [[nodiscard]] int64_t length(int64_t sequence) const noexcept { return lengths_[sequence]; }
  [[nodiscard]] int64_t page(int64_t sequence, int64_t number) const noexcept {
    return pages_.At(sequence * *slots_.sequence_stride + number * slots_.stride);
  }
  [[nodiscard]] int64_t last_page(int64_t sequence) const noexcept {
    return page(sequence, (length(sequence) - 1) / block_size_);
  }
  /// Whether the call adds to the sequence and leaves rows of its last page to be zeroed.
  [[nodiscard]] bool has_unused_rows(int64_t sequence) const noexcept {
    return tokens(sequence) > 0 && used_rows(sequence) < block_size_;
  }
  /// Rows of the last page that the sequence uses.
  [[nodiscard]] int64_t used_rows(int64_t sequence) const noexcept {
    return (length(sequence) - 1) % block_size_ + 1;
  }

 private:
  const SlotSpec& slots_;
  int64_t block_size_;
  int64_t sequences_;
  IndexReader pages_;
  IndexReader lengths_;
  IndexReader row_offsets_;
};

Status CheckRowOffsets(const PlanImpl& plan, const RaggedBatch& table, TokenCount tokens) {
  const char* const name = plan.pipeline.of(Operand::kRowOffsets).name;
  const int64_t sequences = table.sequences();
  if (table.first_token(0) != 0) {
    return Invalid(name, ": element 0 is ", table.first_token(0), ", must be 0");
  }
  for (int64_t b = 0; b < sequences; ++b) {
    if (table.first_token(b + 1) >= table.first_token(b)) continue;
    return Invalid(name, ": element ", b + 1, " is ", table.first_token(b + 1),
                   ", must be at least ", table.first_token(b), ", the one before it");
  }
  if (table.first_token(sequences) == tokens.total()) return {};
  return Invalid(name, ": element ", sequences, " is ", table.first_token(sequences), ", must be ",
                 tokens.total(), ", the tokens of the call");
}

Status CheckLength(const PlanImpl& plan, const RaggedBatch& table, int64_t b) {
  const char* const name = plan.pipeline.of(Operand::kLengths).name;
  const int64_t length = table.length(b);
  if (length < table.tokens(b)) {
    return Invalid(name, ": element ", b, " is ", length, ", must be at least ", table.tokens(b),
                   ", the tokens that the call adds to the sequence");
  }
  if (length == 0) return {};
  const int64_t pages = plan.pipeline.slots.pages;
  if ((length - 1) / table.block_size() < pages) return {};
  return Invalid(name, ": element ", b, " is ", length, ", must be at most the rows of ", pages,
                 " pages of ", table.block_size());
}

Status CheckPage(const PlanImpl& plan, int64_t page, int64_t b, int64_t number) {
  const int64_t blocks = plan.pipeline.of(Operand::kKCache).layout.blocks;
  if (page >= 0 && page < blocks) return {};
  return Invalid(plan.pipeline.of(Operand::kSlots).name, ": page ", number, " of sequence ", b,
                 " is ", page, ", must be from 0 to ", blocks - 1, ", a block of the cache");
}

/// Writes the slots of a sequence's tokens.
Status ResolveSequence(const PlanImpl& plan, const RaggedBatch& table, int64_t b, int64_t* slots) {
  const int64_t rows = table.block_size();
  const int64_t tokens = table.tokens(b);
  const int64_t start = table.length(b) - tokens;
  for (int64_t i = 0; i < tokens;) {
    const int64_t number = (start + i) / rows;
    const int64_t page = table.page(b, number);
    Status status = CheckPage(plan, page, b, number);
    if (!status.ok()) return status;
    const int64_t row = (start + i) % rows;
    const int64_t count = std::min(tokens - i, rows - row);
    int64_t* const to = slots + table.first_token(b) + i;
    for (int64_t r = 0; r < count; ++r) to[r] = page * rows + row + r;
    i += count;
  }
  return {};
}

/// Finds the sequence that has a page as its last one, of those with tokens in the call, whose
/// unused rows are zeroed.
class LastPages {
 public:
  LastPages(const RaggedBatch& table, int64_t* entries) noexcept
      : table_(table),
        entries_(entries),
        mask_(static_cast<uint64_t>(WorkspaceParts::TableSize(table.sequences())) - 1) {
    std::memset(entries, 0, (mask_ + 1) * sizeof(int64_t));
  }

  /// The sequence that has the page, or -1.
  [[nodiscard]] int64_t Find(int64_t page) const noexcept { return *EntryOf(page) - 1; }

  /// Of two sequences with one last page the first is kept; the other is refused for having it.
  void Add(int64_t sequence) noexcept {
    int64_t& entry = *EntryOf(table_.last_page(sequence));
    if (entry == 0) entry = sequence + 1;
  }

 private:
  [[nodiscard]] int64_t* EntryOf(int64_t page) const noexcept {
    uint64_t i = (static_cast<uint64_t>(page) * 0x9E3779B97F4A7C15U) >> 20;
    while (true) {
      int64_t* const entry = entries_ + (i++ & mask_);
      if (*entry == 0 || table_.last_page(*entry - 1) == page) return entry;
    }
  }

  const RaggedBatch& table_;
  int64_t* entries_;
  uint64_t mask_;
};

/// The pages of a sequence that hold its rows, whether it has tokens in the call or not: none of
/// them is one whose unused rows are zeroed, but its own last one.
Status CheckPagesOf(const PlanImpl& plan, const RaggedBatch& table, const LastPages& last_pages,
                    int64_t b) {
  Status status = CheckLength(plan, table, b);
  const int64_t pages =
      status.ok() ? (table.length(b) + table.block_size() - 1) / table.block_size() : 0;
  for (int64_t number = 0; status.ok() && number < pages; ++number) {
    const int64_t page = table.page(b, number);
    status = CheckPage(plan, page, b, number);
    if (!status.ok()) break;
    const int64_t other = last_pages.Find(page);
    if (other < 0 || (other == b && number == pages - 1)) continue;
    return Invalid(plan.pipeline.of(Operand::kSlots).name, ": page ", number, " of sequence ", b,
                   " is ", page, ", the last page of sequence ", other,
                   ", which must be of that one only where unused rows are zeroed");
  }
  return status;
}

/// Zeroed rows are nobody's: no other sequence has the page, and no token goes there.
Status CheckUnusedRows(const PlanImpl& plan, const RaggedBatch& table,
                       const WorkspaceParts& parts) {
  LastPages last_pages(table, parts.pages());
  Status status;
  for (int64_t b = 0; b < table.sequences(); ++b) {
    if (table.has_unused_rows(b)) last_pages.Add(b);
  }
  for (int64_t b = 0; status.ok() && b < table.sequences(); ++b) {
    status = CheckPagesOf(plan, table, last_pages, b);
  }
  return status;
}

/// Zeroes one row of a cache.
void ZeroRow(const OperandSpec& spec, void* data, int64_t block, int64_t row) noexcept {
  const CacheLayout& layout = spec.layout;
  const int64_t bytes = SizeOf(spec.dtype);
  const int64_t chunk = layout.channel_chunk == 0 ? spec.channels : layout.channel_chunk;
  const int64_t run = layout.channel_stride == 1 ? chunk : 1;
  for (int64_t head = 0; head < spec.heads; ++head) {
    const int64_t first = RowOffset(layout, block, row) + head * layout.head_stride;
    for (int64_t channel = 0; channel < spec.channels; channel += run) {
      const int64_t offset = first + channel / chunk * layout.channel_chunk_stride +
                             channel % chunk * layout.channel_stride;
      std::memset(static_cast<char*>(data) + offset * bytes, 0, static_cast<size_t>(run * bytes));
    }
  }
}

}  // namespace

Status ResolvePageTable(const PlanImpl& plan, const Tensors& tensors, TokenCount tokens,
                        const WorkspaceParts& parts) {
  const RaggedBatch table(plan, tensors, tokens);
  Status status = CheckRowOffsets(plan, table, tokens);
  for (int64_t b = 0; status.ok() && b < table.sequences(); ++b) {
    if (table.tokens(b) == 0) continue;
    status = CheckLength(plan, table, b);
    if (status.ok()) status = ResolveSequence(plan, table, b, parts.slots());
  }
  if (!status.ok() || !plan.pipeline.slots.zeroes_unused_rows) return status;
  return CheckUnusedRows(plan, table, parts);
}

void ZeroUnusedRows(const PlanImpl& plan, const Tensors& tensors, TokenCount tokens, int64_t begin,
                    int64_t end) noexcept {
  const RaggedBatch table(plan, tensors, tokens);
  for (int64_t b = 0; b < table.sequences(); ++b) {
    const int64_t last = table.first_token(b + 1) - 1;
    if (table.tokens(b) == 0 || last < begin || last >= end) continue;
    for (int64_t row = table.used_rows(b); row < table.block_size(); ++row) {
      for (const Operand operand :
           {Operand::kKCache, Operand::kVCache, Operand::kKScaleCache, Operand::kVScaleCache}) {
        if (!plan.pipeline.uses(operand)) continue;
        ZeroRow(plan.pipeline.of(operand), OutputOf(tensors, operand), table.last_page(b), row);
      }
    }
  }
}

}  // namespace qkvfuse::internal
