// The general path: any source, norm, rope and sink, any strides, any even head_dim, through an
// fp32 tile in L1. Same bits as the fused kernels.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/general.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "kernels/copy.h"
#include "kernels/sinks-inl.h"
#include "kernels/tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qkvfuse::kernels {
namespace HWY_NAMESPACE {

/// Floats of the tiles of a batch of heads: what stays in L1 between Measure and Emit.
inline constexpr int64_t kTileFloats = 4096;

/// A filled head of one token on its way to the sinks.
struct FilledHead {
  const float* tile;
  float factor;  // the reciprocal root of a norm, or 1
  int64_t token;
  int64_t head;
  int64_t row;
};

void EmitTile(const GroupTask& task, const FilledHead& filled, Coefficients coefficients) {
  const auto [tile, factor, token, head, row] = filled;
  HWY_ALIGN float lo[kMaxHeadDim / 2 + kTilePadding];
  HWY_ALIGN float hi[kMaxHeadDim / 2 + kTilePadding];
  const int64_t half = task.head_dim / 2;
  Run runs[2] = {{tile, 0, task.head_dim}, {}};
  int run_count = 1;
  if (task.transform != Transform::kNone) {
    RotateTile(tile, half, factor, coefficients, lo, hi);
    runs[0] = {lo, 0, half};
    runs[1] = {hi, half, half};
    run_count = 2;
  }
  const bool copies_bits = CopiesBits(task);
  for (const Destination& to : task.dense) {
    if (to.data == nullptr || (to.is_cache && row == kSkippedRow)) continue;
    if (copies_bits) {
      CopyHead(task, to, token, head, row);
      continue;
    }
    uint16_t* const address = RowOf<uint16_t>(to, token, row, head).data;
    for (int r = 0; r < run_count; ++r) {
      if (task.store == DType::kFloat16) {
        DrainRun(Narrow<hwy::float16_t>(), runs[r], to, address);
      } else {
        DrainRun(Narrow<hwy::bfloat16_t>(), runs[r], to, address);
      }
    }
  }
  if (!Quantises(task.sink) || row == kSkippedRow) return;
  int8_t* const address = RowOf<int8_t>(task.codes, token, row, head).data;
  for (int r = 0; r < run_count; ++r) {
    const int64_t channel = head * task.head_dim + runs[r].first;
    const Quantise quantise{task.scale + channel,
                            HasOffset(task.sink) ? task.offset + channel : nullptr};
    DrainRun(quantise, runs[r], task.codes, address);
  }
}

/// Heads [first, first + heads) of one token, no more than fit the tiles.
void GeneralHeads(const GroupTask& task, int64_t token, int64_t row, int64_t first, int64_t heads,
                  Coefficients coefficients) {
  HWY_ALIGN float tiles[kTileFloats];
  HWY_ALIGN float factors[kTileFloats / 32];
  const FillFunction fill = FillOf(task.source_kind);
  const int64_t padded = PaddedTileFloats(task.head_dim);
  for (int64_t i = 0; i < heads; ++i) {
    float* const tile = tiles + i * padded;
    fill(task.source, token, first + i, task.head_dim, tile);
    ZeroPadding(tile, task.head_dim, padded);
    factors[i] = 1.0f;
  }
  if (task.transform == Transform::kNormRope) {
    const int64_t summed = padded - kTilePadding;
    for (int64_t i = 0; i < heads; ++i) {
      const HeadInput in{tiles + i * padded, nullptr, nullptr, 1.0f};
      factors[i] = SumOfSquares<FloatSource, LaneOrder::kNatural, kTileLanes>(in, summed);
    }
    ReciprocalRoots(factors, heads, task.head_dim, task.epsilon);
  }
  for (int64_t i = 0; i < heads; ++i) {
    EmitTile(task, {tiles + i * padded, factors[i], token, first + i, row}, coefficients);
  }
}

void GeneralGroup(const GroupTask& task, const Tile& tile) {
  const int64_t batch =
      HWY_MIN(kTileFloats / PaddedTileFloats(task.head_dim), kTileFloats / 32 - kTilePadding);
  const int64_t stride = CoefficientStride(task.head_dim);
  for (int64_t i = 0; i < tile.tokens; ++i) {
    const int64_t row = tile.cache_rows[i];
    if (row == kSkippedRow && OnlyWritesCache(task)) continue;
    const Coefficients coefficients{tile.coefficients + i * 4 * stride, stride};
    const int64_t end = tile.first_head + tile.heads;
    for (int64_t head = tile.first_head; head < end; head += batch) {
      GeneralHeads(task, tile.first_token + i, row, head, HWY_MIN(batch, end - head), coefficients);
    }
  }
}

/// Coefficients of any table type and strides, natural order.
void GeneralCoefficients(const CoefficientTask& task, int64_t first_token, int64_t tokens,
                         float* coefficients) {
  HWY_ALIGN float cos[kMaxHeadDim + kTilePadding];
  HWY_ALIGN float sin[kMaxHeadDim + kTilePadding];
  HWY_ALIGN float gamma[kMaxHeadDim + kTilePadding];
  const int64_t half = task.head_dim / 2;
  const int64_t stride = CoefficientStride(task.head_dim);
  const FillFunction fill = FillOf(SourceOf(task.table));
  for (int64_t i = 0; i < task.head_dim; ++i) gamma[i] = task.gamma ? task.gamma[i] : 1.0f;
  for (int64_t i = task.head_dim; i < task.head_dim + kTilePadding; ++i) {
    cos[i] = sin[i] = gamma[i] = 0.0f;
  }
  const Source cos_rows{
      task.cos, task.cos_token_stride, 0, task.cos_channel_stride, nullptr, nullptr, nullptr};
  const Source sin_rows{
      task.sin, task.sin_token_stride, 0, task.sin_channel_stride, nullptr, nullptr, nullptr};
  const TileTag d;
  for (int64_t i = 0; i < tokens; ++i) {
    fill(cos_rows, first_token + i, 0, task.head_dim, cos);
    fill(sin_rows, first_token + i, 0, task.head_dim, sin);
    float* const to = coefficients + i * 4 * stride;
    for (int64_t j = 0; j < half; j += kTileLanes) {
      const auto gamma_lo = hn::LoadU(d, gamma + j);
      const auto gamma_hi = hn::LoadU(d, gamma + half + j);
      hn::StoreU(hn::Mul(gamma_lo, hn::LoadU(d, cos + j)), d, to + j);
      hn::StoreU(hn::Mul(gamma_hi, hn::LoadU(d, sin + j)), d, to + stride + j);
      hn::StoreU(hn::Mul(gamma_hi, hn::LoadU(d, cos + half + j)), d, to + 2 * stride + j);
      hn::StoreU(hn::Mul(gamma_lo, hn::LoadU(d, sin + half + j)), d, to + 3 * stride + j);
    }
  }
}

void Widen(DType dtype, const void* from, int64_t count, float* to) {
  const HeadInput in{from, nullptr, nullptr, 1.0f};
  switch (SourceOf(dtype)) {
    case SourceKind::kHalf:
      return FillContiguous<HalfSource>(in, count, to);
    case SourceKind::kBFloat16:
      return FillContiguous<BFloat16Source>(in, count, to);
    default:
      return FillContiguous<FloatSource>(in, count, to);
  }
}

SelectedKernels GeneralKernels() { return {&GeneralGroup, &GeneralCoefficients, "general path"}; }

WidenFunction WidenOfTarget() { return &Widen; }

}  // namespace HWY_NAMESPACE
}  // namespace qkvfuse::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "kernels/dispatch.h"

namespace qkvfuse::kernels {

HWY_EXPORT(GeneralKernels);
HWY_EXPORT(WidenOfTarget);

SelectedKernels SelectGeneral(int64_t target, const KernelKey& key) {
  SelectedKernels kernels = HWY_DISPATCH_TABLE(GeneralKernels)[DispatchIndex(target)]();
  if (key.transform == Transform::kNone) kernels.coefficients = nullptr;
  return kernels;
}

WidenFunction SelectWiden(int64_t target) {
  return HWY_DISPATCH_TABLE(WidenOfTarget)[DispatchIndex(target)]();
}

}  // namespace qkvfuse::kernels
#endif  // HWY_ONCE
