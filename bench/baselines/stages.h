// SIMD kernels of the baselines, compiled for the same targets as the library's own and built from
// the same pieces. They take the same tasks and tiles; head_dim is a multiple of 64, channels are
// contiguous.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/kernels.h"

namespace qkvfuse::bench {

/// One stage over the heads of a tile of tokens. `gamma` is fp32, [head_dim], or nullptr.
using StageKernel = void (*)(const kernels::GroupTask& task, const float* gamma,
                             const kernels::Tile& tile);

/// RMSNorm of 16-bit rows into the 16-bit rows task.dense[0]; `type` is that of both.
[[nodiscard]] StageKernel SelectNormalise(int64_t target, DType type);

/// int32 rows, fp32 bias or none, into the 16-bit rows task.dense[0] of type task.store.
[[nodiscard]] StageKernel SelectDequantise(int64_t target, const kernels::GroupTask& task);

/// Converts the rows to fp32 and back to the type of the destination, task.dense[0] or task.codes
/// (to the nearest integer, saturated), with no arithmetic.
[[nodiscard]] StageKernel SelectConvertCopy(int64_t target, const kernels::GroupTask& task);

/// Reads the cos and sin rows of `tokens` tokens, converts them to fp32 and drops them.
using TableReader = void (*)(const kernels::CoefficientTask& task, const kernels::TableRows& rows,
                             int64_t tokens);
[[nodiscard]] TableReader SelectTableReader(int64_t target, DType type);

/// Reads read_bytes and writes write_bytes, at most as many, in one sweep; addresses and sizes are
/// multiples of 64.
using StreamKernel = void (*)(const std::byte* from, int64_t read_bytes, std::byte* to,
                              int64_t write_bytes);
/// With ordinary stores and with stores that bypass the caches.
struct StreamKernels {
  StreamKernel ordinary;
  StreamKernel bypassing;
};
[[nodiscard]] StreamKernels SelectStreams(int64_t target);

}  // namespace qkvfuse::bench
