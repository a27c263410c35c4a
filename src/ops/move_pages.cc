// CopyPages and ConvertPages: what they accept, and the move that each is.
#include "base/message.h"
#include "ops/cache_side.h"
#include "ops/page_checks.h"
#include "plan/run.h"
#include "plan/run_move.h"

namespace qkvfuse {
namespace {

enum class Kind { kCopy, kConvert };

bool IsSameMemory(const void* a, CacheLayout a_layout, const void* b, CacheLayout b_layout) {
  a_layout.name = b_layout.name = nullptr;
  return a == b && a_layout == b_layout;
}

Status CheckSameSizes(const MovePagesArguments& a) {
  const int64_t from_rows = a.from.spec.layout.block_size;
  const int64_t to_rows = a.to.spec.layout.block_size;
  if (a.from.heads == a.to.heads && a.from.head_dim == a.to.head_dim && from_rows == to_rows) {
    return {};
  }
  return Invalid("to: has ", a.to.heads, " heads of ", a.to.head_dim, " channels in blocks of ",
                 to_rows, " rows, must have from's ", a.from.heads, " heads of ", a.from.head_dim,
                 " channels in blocks of ", from_rows, " rows");
}

Status CheckSameType(const MovePagesArguments& a) {
  if (a.from.spec.dtype != a.to.spec.dtype) {
    return Invalid("to.spec.dtype: is ", Name(a.to.spec.dtype), ", must be ",
                   Name(a.from.spec.dtype), ", as in from (ConvertPages changes types)");
  }
  if (IsDynamic(a.from.spec) != IsDynamic(a.to.spec)) {
    return Invalid("to.spec.scale_rule: is ", IsDynamic(a.to.spec) ? "" : "not ",
                   "kDynamic, must be as in from (ConvertPages changes scales)");
  }
  return {};
}

/// Everything that needs no data; adds the call's tensors.
Status CheckArguments(const MovePagesArguments& a, Kind kind, MemoryRegions* regions) {
  const bool uses_scales = kind == Kind::kConvert;
  Status status = CheckCache(a.from, "from", /*is_output=*/false, uses_scales, regions);
  if (status.ok()) status = CheckCache(a.to, "to", /*is_output=*/true, uses_scales, regions);
  if (status.ok()) status = CheckSameSizes(a);
  if (status.ok() && kind == Kind::kCopy) status = CheckSameType(a);
  if (status.ok()) status = CheckCount(a.count, "count");
  if (status.ok()) status = CheckIndexType(a.dtype, "pairs");
  if (!status.ok()) return status;
  return regions->Add("pairs", a.dtype, a.pairs, {{2 * a.count, 1}}, /*is_output=*/false);
}

/// Allows a copy within one cache. Returns whether it is one.
bool ForgetSameMemory(const MovePagesArguments& a, MemoryRegions* regions) {
  const bool is_one_cache =
      IsSameMemory(a.from.data, a.from.spec.layout, a.to.data, a.to.spec.layout);
  if (is_one_cache) regions->Forget("from.data");
  const bool is_one_scale_cache =
      IsDynamic(a.to.spec) && IsSameMemory(a.from.scale_cache, a.from.spec.scale_layout,
                                           a.to.scale_cache, a.to.spec.scale_layout);
  if (is_one_scale_cache) regions->Forget("from.scale_cache");
  return is_one_cache || is_one_scale_cache;
}

Status MovePages(const MovePagesArguments& a, Kind kind, const RunOptions& options) {
  MemoryRegions regions;
  Status status = internal::CheckRunOptions(options);
  if (status.ok()) status = CheckArguments(a, kind, &regions);
  if (!status.ok()) return status;
  const bool is_one_cache = kind == Kind::kCopy && ForgetSameMemory(a, &regions);
  status = regions.CheckApart();
  if (!status.ok()) return status;
  const internal::BlockRows rows({a.pairs, a.dtype, 1}, a.count, a.from.spec.layout.block_size);
  status = rows.Check(a.from.spec.layout, a.to.spec.layout, is_one_cache);
  if (!status.ok()) return status;
  const bool copies_bits = kind == Kind::kCopy || MeanTheSame(a.from, a.to);
  const Side from = SideOf(a.from, !copies_bits);
  const Side to = SideOf(a.to, !copies_bits);
  internal::RunMove({from.side, to.side, a.from.heads, a.from.head_dim, copies_bits}, rows,
                    options);
  return status;
}

}  // namespace

Status CopyPages(const MovePagesArguments& arguments, const RunOptions& options) noexcept try {
  return MovePages(arguments, Kind::kCopy, options);
} catch (...) {
  return Status(StatusCode::kOutOfMemory, {});
}

Status ConvertPages(const MovePagesArguments& arguments, const RunOptions& options) noexcept try {
  return MovePages(arguments, Kind::kConvert, options);
} catch (...) {
  return Status(StatusCode::kOutOfMemory, {});
}

}  // namespace qkvfuse
