// ReadCache: what it accepts, and the move that it is.
#include "base/checked_math.h"
#include "base/message.h"
#include "ops/cache_side.h"
#include "ops/page_checks.h"
#include "plan/run.h"
#include "plan/run_move.h"

namespace qkvfuse {
namespace {

/// A dense tensor as a cache of one block. Row strides are absent where `out` is packed.
CacheView OutputOf(const ReadCacheArguments& a) {
  const TokenStrides strides = a.out_strides.value_or(
      TokenStrides{TokenStrides::kFollows, a.cache.heads * a.cache.head_dim, a.cache.head_dim, 1});
  CacheView out;
  out.spec.dtype = a.dtype;
  out.spec.layout.blocks = 1;
  out.spec.layout.block_size = a.rows;
  out.spec.layout.row_stride = strides.token;
  out.spec.layout.head_stride = strides.head;
  out.spec.layout.channel_stride = strides.channel;
  out.heads = a.cache.heads;
  out.head_dim = a.cache.head_dim;
  out.data = a.out;
  return out;
}

Status CheckAddressing(const ReadCacheArguments& a) {
  const SlotSpec& spec = a.slot_spec;
  if (spec.mode != SlotMode::kSlotPerToken && spec.mode != SlotMode::kPageTable) {
    return Invalid("slot_spec: mode is ", static_cast<int>(spec.mode),
                   ", must be kSlotPerToken or kPageTable");
  }
  if (spec.zeroes_unused_rows) {
    return Invalid("slot_spec: zeroes_unused_rows is set, must not be for a cache that is read");
  }
  Status status = CheckIndexType(spec.dtype, "slot_spec");
  if (status.ok()) status = CheckCount(a.rows, "rows");
  if (status.ok()) status = CheckCount(a.sequences, "sequences");
  if (!status.ok() || spec.mode == SlotMode::kPageTable) return status;
  if (a.sequences != 0) {
    return Invalid("sequences: is ", a.sequences, ", must be 0 unless slot_spec says kPageTable");
  }
  return {};
}

Status CheckOutput(const ReadCacheArguments& a, MemoryRegions* regions) {
  if (!IsFloat(a.dtype)) {
    return Invalid("dtype: is ", Name(a.dtype), ", must be fp32, fp16 or bf16");
  }
  if (a.out_strides && a.out_strides->batch != TokenStrides::kFollows) {
    return Invalid("out_strides: batch is ", a.out_strides->batch,
                   ", must be kFollows, as rows have no batch");
  }
  const CacheLayout out = OutputOf(a).spec.layout;
  return regions->Add("out", a.dtype, a.out,
                      {{a.rows, out.row_stride},
                       {a.cache.heads, out.head_stride},
                       {a.cache.head_dim, out.channel_stride}},
                      /*is_output=*/true);
}

void Run(const ReadCacheArguments& a, const internal::RowMap& rows, const RunOptions& options) {
  const CacheView out = OutputOf(a);
  const Side from = SideOf(a.cache, /*uses_scales=*/true);
  const Side to = SideOf(out, /*uses_scales=*/false);
  internal::RunMove(
      {from.side, to.side, a.cache.heads, a.cache.head_dim, MeanTheSame(a.cache, out)}, rows,
      options);
}

Status ReadSlots(const ReadCacheArguments& a, MemoryRegions* regions, const RunOptions& options) {
  const SlotSpec& spec = a.slot_spec;
  Status status = regions->Add("slots", spec.dtype, a.slots, {{a.rows, spec.stride}}, false);
  if (status.ok()) status = regions->CheckApart();
  if (!status.ok()) return status;
  const internal::SlotRows rows({a.slots, spec.dtype, spec.stride}, a.rows);
  status = rows.Check(a.cache.spec.layout);
  if (status.ok()) Run(a, rows, options);
  return status;
}

/// Adds a page table's lists to the regions of the call.
Status CheckPageTable(const ReadCacheArguments& a, int64_t sequence_stride,
                      MemoryRegions* regions) {
  const SlotSpec& spec = a.slot_spec;
  int64_t capacity = 0;
  if (spec.pages < 0 || !CheckedMul(spec.pages, a.cache.spec.layout.block_size, &capacity)) {
    return Invalid("slot_spec: pages is ", spec.pages,
                   ", must be 0 or more and have less than 2^63 rows");
  }
  Status status = regions->Add("slots", spec.dtype, a.slots,
                               {{a.sequences, sequence_stride}, {spec.pages, spec.stride}}, false);
  if (status.ok()) {
    status = regions->Add("lengths", spec.dtype, a.lengths, {{a.sequences, 1}}, false);
  }
  if (status.ok() && a.row_offsets != nullptr) {
    status = regions->Add("row_offsets", spec.dtype, a.row_offsets, {{a.sequences, 1}}, false);
  }
  return status.ok() ? regions->CheckApart() : status;
}

Status ReadPages(const ReadCacheArguments& a, MemoryRegions* regions, const RunOptions& options) {
  const SlotSpec& spec = a.slot_spec;
  int64_t sequence_stride = spec.sequence_stride.value_or(0);
  if (!spec.sequence_stride && !CheckedMul(spec.pages, spec.stride, &sequence_stride)) {
    return Invalid("slot_spec: ", spec.pages, " pages of stride ", spec.stride,
                   " span more than 2^63 elements");
  }
  Status status = CheckPageTable(a, sequence_stride, regions);
  if (!status.ok()) return status;
  internal::PageTable table;
  table.pages = {a.slots, spec.dtype, spec.stride};
  table.sequence_stride = sequence_stride;
  table.pages_per_sequence = spec.pages;
  table.sequences = a.sequences;
  table.lengths = {a.lengths, spec.dtype, 1};
  table.row_offsets = {a.row_offsets, spec.dtype, 1};
  internal::PageTableRows rows(table);
  status = rows.Check(a.cache.spec.layout, a.rows);
  if (status.ok()) Run(a, rows, options);
  return status;
}

}  // namespace

Status ReadCache(const ReadCacheArguments& arguments, const RunOptions& options) noexcept try {
  MemoryRegions regions;
  Status status = internal::CheckRunOptions(options);
  if (status.ok()) {
    status = CheckCache(arguments.cache, "cache", /*is_output=*/false, true, &regions);
  }
  if (status.ok()) status = CheckAddressing(arguments);
  if (status.ok()) status = CheckOutput(arguments, &regions);
  if (!status.ok()) return status;
  return arguments.slot_spec.mode == SlotMode::kSlotPerToken
             ? ReadSlots(arguments, &regions, options)
             : ReadPages(arguments, &regions, options);
} catch (...) {
  return Status(StatusCode::kOutOfMemory, {});
}

}  // namespace qkvfuse
