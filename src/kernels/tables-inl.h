// Coefficients from tables of any form: half or full width, joined, of any strides and type, by one
// position or by sections. Rows become fp32 first, the entries of all lo channels before those of
// all hi channels.
#include <cstring>

#include "kernels/coefficients-inl.h"
#include "kernels/tile-inl.h"

#if defined(QKVFUSE_KERNELS_TABLES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QKVFUSE_KERNELS_TABLES_INL_H_
#undef QKVFUSE_KERNELS_TABLES_INL_H_
#else
#define QKVFUSE_KERNELS_TABLES_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace qkvfuse::kernels {
namespace HWY_NAMESPACE {

/// `count` entries of a table's row, `stride` elements apart.
template <class Table>
void FillEntries(const void* table, int64_t row, int64_t stride, int64_t count, float* to) {
  using Element = typename Table::Element;
  const Element* const from = static_cast<const Element*>(table) + row;
  if (stride == 1) {
    FillContiguous<Table>(HeadInput{from, nullptr, nullptr, 1.0f}, count, to);
    return;
  }
  Element gathered[kMaxHeadDim];
  for (int64_t i = 0; i < count; ++i) gathered[i] = from[i * stride];
  FillContiguous<Table>(HeadInput{gathered, nullptr, nullptr, 1.0f}, count, to);
}

inline void FillEntries(DType dtype, const void* table, int64_t row, int64_t stride, int64_t count,
                        float* to) {
  switch (dtype) {
    case DType::kFloat16:
      return FillEntries<HalfSource>(table, row, stride, count, to);
    case DType::kBFloat16:
      return FillEntries<BFloat16Source>(table, row, stride, count, to);
    default:
      return FillEntries<FloatSource>(table, row, stride, count, to);
  }
}

/// Moves the entries of a row to where the pairs want them: `to` has rotary_dim/2 of lo channels,
/// then as many of hi channels.
inline void SplitPairs(const CoefficientTask& task, const float* row, float* to) {
  const int64_t half = task.rotary_dim / 2;
  const size_t bytes = static_cast<size_t>(half) * sizeof(float);
  if (task.half_width) {
    std::memcpy(to, row, bytes);
    std::memcpy(to + half, row, bytes);
  } else if (task.pairing == RopeSpec::Pairing::kInterleaved) {
    for (int64_t j = 0; j < half; ++j) {
      to[j] = row[2 * j];
      to[half + j] = row[2 * j + 1];
    }
  } else {
    std::memcpy(to, row, 2 * bytes);
  }
}

/// One table's entries for a token. `rows` are its rows by section, kTileTokens apart.
inline void FillTableRow(const CoefficientTask& task, const void* table, int64_t stride,
                         const int64_t* rows, float* to) {
  const int64_t half = task.rotary_dim / 2;
  const int64_t width = task.half_width ? half : task.rotary_dim;
  HWY_ALIGN float row[kMaxHeadDim];
  HWY_ALIGN float split[kMaxHeadDim];
  if (task.pair_sections == nullptr) {
    FillEntries(task.table, table, rows[0], stride, width, row);
    SplitPairs(task, row, to);
    return;
  }
  for (int section = 0; section < kMaxSections; ++section) {
    FillEntries(task.table, table, rows[section * kTileTokens], stride, width, row);
    SplitPairs(task, row, split);
    for (int64_t j = 0; j < half; ++j) {
      if (task.pair_sections[j] != section) continue;
      to[j] = split[j];
      to[half + j] = split[half + j];
    }
  }
}

/// BuildCoefficients for tables of any form.
template <LaneOrder kOrder, bool kHasGamma, int kLanes>
bool BuildFromTables(const CoefficientTask& task, const TableRows& rows, int64_t tokens,
                     float* coefficients) {
  HWY_ALIGN float cos[kMaxHeadDim];
  HWY_ALIGN float sin[kMaxHeadDim];
  CoefficientTask filled = task;
  filled.cos = cos;
  filled.sin = sin;
  TableRows at_zero;
  at_zero.cos[0][0] = at_zero.sin[0][0] = 0;
  const int64_t step = CoefficientStep(Transform::kRope, task.rotary_dim);
  bool is_tame = true;
  for (int64_t i = 0; i < tokens; ++i) {
    FillTableRow(task, task.cos, task.cos_channel_stride, &rows.cos[0][i], cos);
    FillTableRow(task, task.sin, task.sin_channel_stride, &rows.sin[0][i], sin);
    is_tame &= BuildCoefficients<FloatSource, kOrder, kHasGamma, kLanes, kAnyHeadDim>(
        filled, at_zero, 1, coefficients + i * step);
  }
  return is_tame;
}

/// Gamma, or ones, for the pairs of a task: those of lo channels, padded, then of hi channels.
inline void SplitGamma(const CoefficientTask& task, const Parts& parts, float* to) {
  HWY_ALIGN float ones[kMaxHeadDim];
  for (int64_t i = 0; i < task.rotary_dim; ++i) ones[i] = 1.0f;
  CoefficientTask full = task;
  full.half_width = false;
  SplitPairs(full, task.gamma != nullptr ? task.gamma : ones, to);
  SpreadParts(parts, to);
}

/// The general path's coefficients: natural order, blocks of kTileLanes, each part padded.
inline bool GeneralCoefficients(const CoefficientTask& task, const TableRows& rows, int64_t tokens,
                                float* coefficients) {
  HWY_ALIGN float cos[kMaxPaddedChannels];
  HWY_ALIGN float sin[kMaxPaddedChannels];
  HWY_ALIGN float gamma[kMaxPaddedChannels];
  const int64_t half = task.rotary_dim / 2;
  const Parts parts{2, half, PaddedChannels(half)};
  const int64_t padded = parts.padded;
  SplitGamma(task, parts, gamma);
  const TileTag d;
  for (int64_t i = 0; i < tokens; ++i) {
    FillTableRow(task, task.cos, task.cos_channel_stride, &rows.cos[0][i], cos);
    FillTableRow(task, task.sin, task.sin_channel_stride, &rows.sin[0][i], sin);
    if (parts.ArePadded()) {
      SpreadParts(parts, cos);
      SpreadParts(parts, sin);
    }
    float* const to = coefficients + i * CoefficientStep(Transform::kRope, task.rotary_dim);
    for (int64_t j = 0; j < padded; j += kTileLanes) {
      const auto gamma_lo = hn::LoadU(d, gamma + j);
      const auto gamma_hi = hn::LoadU(d, gamma + padded + j);
      float* const block = to + 4 * j;
      hn::StoreU(hn::Mul(gamma_lo, hn::LoadU(d, cos + j)), d, block);
      hn::StoreU(hn::Mul(gamma_hi, hn::LoadU(d, sin + j)), d, block + kTileLanes);
      hn::StoreU(hn::Mul(gamma_hi, hn::LoadU(d, cos + padded + j)), d, block + 2 * kTileLanes);
      hn::StoreU(hn::Mul(gamma_lo, hn::LoadU(d, sin + padded + j)), d, block + 3 * kTileLanes);
    }
  }
  return false;  // not looked at
}

}  // namespace HWY_NAMESPACE
}  // namespace qkvfuse::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
