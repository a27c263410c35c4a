// What the plan and the kernels agree on: the task of one head group, the tile of tokens that a
// kernel call covers, and the selection of kernels by key and SIMD target. No Highway here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "qkvfuse/dtype.hpp"
#include "qkvfuse/fused_qkv.hpp"
#include "qkvfuse/specs.hpp"

namespace qkvfuse::kernels {

/// Cache row of a token whose cache write is skipped.
inline constexpr int64_t kSkippedRow = std::numeric_limits<int64_t>::min();

/// Tokens that the plan hands to a kernel at once; bounds the tables that live in L1.
inline constexpr int64_t kTileTokens = 8;

/// Fused kernels address 16-bit and int8 rows in pieces of this many channels.
inline constexpr int64_t kPieceChannels = 16;
inline constexpr int64_t kMaxHeadDim = 1024;
/// Of a head whose halves are padded to whole pieces.
inline constexpr int64_t kMaxPaddedChannels = kMaxHeadDim + 2 * kPieceChannels;
/// Of kernels that are not made for one head_dim.
inline constexpr int64_t kAnyHeadDim = 0;

/// How a head becomes fp32.
enum class SourceKind : uint8_t {
  kFloat,
  kHalf,
  kBFloat16,
  kInt32NoBias,     // times weight scale and token scale
  kInt32IntBias,    // int32 bias added before the scales
  kInt32FloatBias,  // fp32 bias added after the scales
  kFloatBias,       // these three: fp32 bias added to the widened value
  kHalfBias,
  kBFloat16Bias,
};

enum class Transform : uint8_t {
  kNone,
  kRope,      // halves, all of head_dim
  kNormRope,  // the same after a norm with a weight that all heads share
  kStages,    // what Stages say; general path only
};

/// What happens to the fp32 result. "Store" rounds it to 16 bits (or copies the bits of a 16-bit
/// head that was not transformed).
enum class SinkKind : uint8_t {
  kStore,
  kStream,  // past the caches, for a dense output that does not stay in them
  kStoreTwice,
  kInt8,
  kInt8Offset,
  kInt8Store,
  kInt8OffsetStore,
  kOutputs,  // what the outputs of the task say; general path only
};

[[nodiscard]] constexpr bool StoresTwice(SinkKind sink) { return sink == SinkKind::kStoreTwice; }
[[nodiscard]] constexpr bool Quantises(SinkKind sink) {
  return sink == SinkKind::kInt8 || sink == SinkKind::kInt8Offset || sink == SinkKind::kInt8Store ||
         sink == SinkKind::kInt8OffsetStore;
}
[[nodiscard]] constexpr bool HasOffset(SinkKind sink) {
  return sink == SinkKind::kInt8Offset || sink == SinkKind::kInt8OffsetStore;
}
[[nodiscard]] constexpr bool Stores(SinkKind sink) {
  return sink != SinkKind::kInt8 && sink != SinkKind::kInt8Offset;
}

/// A dense output and a second destination, mostly the cache.
[[nodiscard]] constexpr bool HasDenseAndCache(SinkKind sink) {
  return StoresTwice(sink) || (Quantises(sink) && Stores(sink));
}

/// Order of the lanes of a pair of vectors that covers 2*N consecutive channels. Even-odd order
/// makes bfloat16 cheap: the two vectors are the low and the high halves of 32-bit lanes.
enum class LaneOrder : uint8_t { kNatural, kEvenOdd };

/// Strided rows of heads in the caller's memory; strides in elements.
struct Source {
  const void* data = nullptr;  // token 0, head 0, channel 0 of the group
  int64_t token_stride = 0;
  int64_t head_stride = 0;
  int64_t channel_stride = 1;
  // Packed, from the group's first channel on.
  const float* weight_scale = nullptr;  // int32 sources
  const void* bias = nullptr;
  const float* token_scale = nullptr;  // [tokens], or nullptr for 1
};

/// A dense output or a cache. A cache's rows come from the tile, a dense output's from the token.
struct Destination {
  void* data = nullptr;
  bool is_cache = false;
  int64_t token_stride = 0;
  int64_t head_stride = 0;
  int64_t channel_stride = 1;
  int64_t channel_chunk = 0;  // 0: not chunked
  int64_t channel_chunk_stride = 0;
  // Byte offset of each kPieceChannels channels, where those lie together; the fused kernels need
  // it.
  const int64_t* pieces = nullptr;
};

/// Elements from a destination's data to a head of a token.
[[nodiscard]] constexpr int64_t HeadOffset(const Destination& to, int64_t token, int64_t cache_row,
                                           int64_t head) noexcept {
  return (to.is_cache ? cache_row : token * to.token_stride) + head * to.head_stride;
}

/// What happens to a head in its tile, by Transform::kStages.
struct Stages {
  enum class Norm : uint8_t { kNone, kBeforeRope, kAfterRope };
  Norm norm = Norm::kNone;
  bool norms_full_width = false;
  RopeSpec::Pairing pairing = RopeSpec::Pairing::kNone;
  int64_t first_channel = 0;  // of those that are rotated
  int64_t rotary_dim = 0;
  int64_t norm_channels = 0;  // that a mean is taken over
  // The norm's weight, packed; the same for all heads where the stride is 0, and then part of the
  // coefficients if it comes before the rotation. Null: none.
  const float* gamma = nullptr;
  int64_t gamma_head_stride = 0;
  // Of a full-width norm: sums of squares of the heads of all ranks, [tokens, total_heads], or
  // null.
  const float* sums = nullptr;
  int64_t total_heads = 0;
  float* head_sums = nullptr;  // [tokens, heads]: only these are wanted
};

/// One destination of SinkKind::kOutputs.
struct Output {
  Destination to;
  DType dtype = DType::kFloat16;
  bool copies_bits = false;  // of a source of the same type that nothing happens to
  ScaleRule rule = ScaleRule::kDivide;
  const float* scale = nullptr;   // [heads, head_dim], packed
  const float* offset = nullptr;  // the same, or nullptr
  Destination scales;             // kDynamic: fp32, one for each token and head
};
inline constexpr size_t kMaxOutputs = 2;

/// Everything that a kernel has to know of a head group; constant during a Run.
struct GroupTask {
  SourceKind source_kind = SourceKind::kHalf;
  Transform transform = Transform::kNone;
  SinkKind sink = SinkKind::kStore;
  DType store = DType::kFloat16;
  int64_t heads = 0;
  int64_t head_dim = 0;
  float epsilon = 0;
  Source source;
  // 16-bit destinations in use come first; of a dense output and a cache the dense output does.
  Destination dense[2];
  Destination codes;              // int8
  const float* scale = nullptr;   // [heads, head_dim], packed
  const float* offset = nullptr;  // [heads, head_dim], packed, or nullptr
  Stages stages;                  // Transform::kStages
  Output outputs[kMaxOutputs];    // SinkKind::kOutputs
  int64_t output_count = 0;
};

/// A run of at most kTileTokens tokens, and the heads of the group to do.
struct Tile {
  int64_t first_token = 0;
  int64_t tokens = 0;
  int64_t first_head = 0;
  int64_t heads = 0;
  const float* coefficients = nullptr;  // [tokens, CoefficientStep], coefficients-inl.h
  bool has_tame_coefficients = false;
  int64_t prefetch_end = 0;  // source rows of tokens before it may be fetched ahead
  // [tokens], element offset of the row, or kSkippedRow where the cache is not written. All 0 for a
  // group without a cache.
  const int64_t* cache_rows = nullptr;
  const int64_t* scale_rows = nullptr;  // the same, of the cache of dynamic scales
};

/// The cache rows of a group without a cache.
inline constexpr int64_t kNoCacheRows[kTileTokens] = {};

/// cos and sin rows (and gamma) from which the coefficients of a token are built:
/// cl = gamma_lo*cos_lo, sl = gamma_hi*sin_lo, ch = gamma_hi*cos_hi, sh = gamma_lo*sin_hi.
struct CoefficientTask {
  DType table = DType::kFloat16;
  const void* cos = nullptr;
  const void* sin = nullptr;
  int64_t cos_channel_stride = 1;
  int64_t sin_channel_stride = 1;
  const float* gamma = nullptr;  // packed, natural order, of the rotated channels, or nullptr
  int64_t rotary_dim = 0;
  RopeSpec::Pairing pairing = RopeSpec::Pairing::kHalves;
  bool half_width = false;                 // rows of rotary_dim/2 entries
  const uint8_t* pair_sections = nullptr;  // [rotary_dim/2], or null where there is one position
};

/// Positions of a token, at most.
inline constexpr int64_t kMaxSections = 3;

/// Where the rows of a tile's tokens begin, elements from cos and sin, by section.
struct TableRows {
  int64_t cos[kMaxSections][kTileTokens];
  int64_t sin[kMaxSections][kTileTokens];
};

using GroupKernel = void (*)(const GroupTask&, const Tile&);
/// Returns whether all coefficients are known to be at most kTameCoefficient in size.
using CoefficientKernel = bool (*)(const CoefficientTask&, const TableRows& rows, int64_t tokens,
                                   float* coefficients);

/// The rotation of normalised channels by coefficients of this size cannot overflow.
inline constexpr float kTameCoefficient = 0x1p60f;

/// Floats of one of a token's four kinds of coefficients.
[[nodiscard]] constexpr int64_t CoefficientStride(int64_t rotary_dim) noexcept {
  return (rotary_dim / 2 + 15) / 16 * 16;
}

/// Floats from one token's coefficients to the next one's; 0 where there are none and the pointer
/// to them is null.
[[nodiscard]] constexpr int64_t CoefficientStep(Transform transform, int64_t rotary_dim) noexcept {
  return transform == Transform::kNone ? 0 : 4 * CoefficientStride(rotary_dim);
}

/// What a kernel is chosen by.
struct KernelKey {
  SourceKind source = SourceKind::kHalf;
  Transform transform = Transform::kNone;
  SinkKind sink = SinkKind::kStore;
  DType store = DType::kFloat16;
  DType table = DType::kFloat16;
  bool has_plain_table = true;  // full-width rows of contiguous entries, one position per token
  int64_t head_dim = 0;
};

/// A head group's kernels. The coefficient kernel writes the lane order that the group kernel
/// reads.
struct SelectedKernels {
  GroupKernel group = nullptr;
  CoefficientKernel coefficients = nullptr;
  const char* name = "";  // "fused" kernels: the list line
};

/// Bytes that the rows of a destination of kStream must be aligned to.
inline constexpr int64_t kStreamAlignment = 32;

/// Makes the stores of kStream visible to other threads.
void FinishStreams();

/// The fused kernels for a key, or null pointers where the list has none.
[[nodiscard]] SelectedKernels SelectFused(int64_t target, const KernelKey& key);

/// The general path, which takes every task. Only rotations need its coefficients.
[[nodiscard]] SelectedKernels SelectGeneral(int64_t target);

/// Copies the bits of heads of fp32, fp16 or bf16 that nothing happens to, on either path, to the
/// dense destinations of the task.
[[nodiscard]] GroupKernel SelectCopy(DType dtype);

/// What Check does to parameters.
struct ParameterFunctions {
  /// Widens `count` contiguous fp32, fp16 or bf16 elements to fp32.
  void (*widen)(DType dtype, const void* from, int64_t count, float* to) = nullptr;
  /// Whether one of `count` values is 0.
  bool (*has_zero)(const float* values, int64_t count) = nullptr;
};
[[nodiscard]] ParameterFunctions SelectParameterFunctions(int64_t target);

// One selector per file of fused kernels; SelectFused asks them.
[[nodiscard]] SelectedKernels SelectFusedHalf(int64_t target, const KernelKey& key);
[[nodiscard]] SelectedKernels SelectFusedBFloat16(int64_t target, const KernelKey& key);
[[nodiscard]] SelectedKernels SelectFusedInt32(int64_t target, const KernelKey& key);

/// SIMD targets of this build that this processor runs, best first.
struct Target {
  int64_t id = 0;  // Highway's bit
  std::string name;
};
[[nodiscard]] const std::vector<Target>& SupportedTargets();

}  // namespace qkvfuse::kernels
