// Parts of the kernels that are not SIMD: small questions about a task.
#pragma once

#include <cstdint>

#include "kernels/kernels.h"

namespace qkvfuse::kernels {

[[nodiscard]] constexpr SourceKind SourceOf(DType dtype) noexcept {
  if (dtype == DType::kFloat16) return SourceKind::kHalf;
  return dtype == DType::kBFloat16 ? SourceKind::kBFloat16 : SourceKind::kFloat;
}

/// Channels rounded up to whole pieces, which are also whole groups of sixteen accumulators.
[[nodiscard]] constexpr int64_t PaddedChannels(int64_t channels) noexcept {
  return (channels + kPieceChannels - 1) / kPieceChannels * kPieceChannels;
}

/// A 16-bit head that is not transformed keeps its bits in dense outputs and 16-bit caches; not of
/// SinkKind::kOutputs, each of which says so itself.
[[nodiscard]] constexpr bool CopiesBits(const GroupTask& task) noexcept {
  return task.transform == Transform::kNone &&
         (task.source_kind == SourceKind::kHalf || task.source_kind == SourceKind::kBFloat16);
}

}  // namespace qkvfuse::kernels
