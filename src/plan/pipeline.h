// Pipeline: an operator as plain data. ops/ fills it in, the plan executes it: three head groups,
// each source -> [norm] -> [rope] -> sinks, over operands with roles, types and strides.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/checked_math.h"
#include "qkvfuse/fused_qkv.hpp"
#include "qkvfuse/plan.hpp"
#include "qkvfuse/specs.hpp"

namespace qkvfuse {

/// The members of Tensors, as indices.
enum class Operand : uint8_t {
  kX,
  kQ,
  kK,
  kV,
  kQGamma,
  kKGamma,
  kVGamma,
  kCos,
  kSin,
  kPositions,
  kSlots,
  kLengths,
  kRowOffsets,
  kQScale,
  kKScale,
  kVScale,
  kQOffset,
  kKOffset,
  kVOffset,
  kWeightScale,
  kTokenScale,
  kBias,
  kQSums,
  kKSums,
  kQOut,
  kQBeforeQuant,
  kKOut,
  kVOut,
  kQScaleOut,
  kQHeadSums,
  kKHeadSums,
  kKCache,
  kVCache,
  kKScaleCache,
  kVScaleCache,
  kCount,
};
inline constexpr size_t kOperandCount = static_cast<size_t>(Operand::kCount);

template <typename T>
struct PerOperand {
  std::array<T, kOperandCount> items{};
  [[nodiscard]] T& operator[](Operand operand) { return items[static_cast<size_t>(operand)]; }
  [[nodiscard]] const T& operator[](Operand operand) const {
    return items[static_cast<size_t>(operand)];
  }
};

enum class Role : uint8_t {
  kUnused,
  kRows,            // one row of heads per token: strides, heads, channels
  kTable,           // `count` rows of channels, the same for all tokens
  kParameter,       // `count` elements of a strided shape, the same for all tokens
  kTokenParameter,  // one element per token
  kPositions,
  kSlots,
  kLengths,     // one per sequence of a page table
  kRowOffsets,  // the same and one
  kCache,
};

/// Type and place of one operand.
struct OperandSpec {
  Role role = Role::kUnused;
  DType dtype = DType::kFloat32;
  const char* name = "";  // as the door spells it
  bool is_output = false;
  int64_t heads = 1;     // kRows, kCache
  int64_t channels = 1;  // of a head: kRows, kTable, kCache
  TokenStrides strides;  // kRows, kTable
  StridedShape shape;    // kParameter, kTokenParameter; rank 0: contiguous
  int64_t count = 0;     // kParameter: elements used, in row-major order of the shape; kTable: rows
  int64_t shared_by = 1;  // kParameter: so many of them are one element of the caller's
  bool adds_one = false;  // kParameter: 1 + element is what counts
  CacheLayout layout;     // kCache
};

/// One destination of a head group's values: a dense output or a cache.
struct GroupOutput {
  Operand to = Operand::kQOut;
  // 8-bit types.
  ScaleRule rule = ScaleRule::kDivide;
  std::optional<Operand> scale;  // not kDynamic
  std::optional<Operand> offset;
  std::optional<Operand> scale_out;  // kDynamic
};

/// One head group: what happens to the q, k or v heads of every token.
struct HeadGroup {
  int64_t heads = 0;
  int64_t head_dim = 0;
  Operand source = Operand::kX;
  int64_t source_offset = 0;       // elements from the source operand's first to the group's
  int64_t source_head_stride = 0;  // elements
  int64_t first_channel = 0;       // in the packed row, of weight scales and biases
  bool has_rope = false;
  bool has_norm = false;
  bool norms_full_width = false;
  bool norms_after_rope = false;
  std::optional<Operand> gamma;
  std::optional<Operand> sums;                        // of a full-width norm: those of all ranks
  std::optional<Operand> head_sums;                   // output: nothing else is computed then
  std::array<std::optional<GroupOutput>, 2> outputs;  // filled from the front, a cache last

  /// The output that is a cache, or nullptr.
  [[nodiscard]] const GroupOutput* cache() const noexcept {
    for (const auto& output : outputs) {
      if (output && (output->to == Operand::kKCache || output->to == Operand::kVCache)) {
        return &*output;
      }
    }
    return nullptr;
  }
};

/// How q and k are rotated; what RopeSpec says, with the tables' operands in place.
struct RopeStage {
  RopeSpec::Pairing pairing = RopeSpec::Pairing::kNone;
  int64_t first_channel = 0;
  int64_t rotary_dim = 0;
  bool is_joined = false;    // sin lies in the rows of cos
  bool half_width = false;   // also of joined rows
  bool by_position = false;  // else one row per token
  int64_t position_stride = 1;
  std::optional<int64_t> position_section_stride;  // absent: packed
  std::vector<uint8_t>
      pair_sections;  // [rotary_dim/2]: which of the positions; empty: the only one
};

struct Pipeline {
  const char* operator_name = "";
  double epsilon = 0;
  SlotSpec slots;
  bool strict = true;
  RopeStage rope;
  std::array<HeadGroup, 3> groups;  // q, k, v
  PerOperand<OperandSpec> operands;

  [[nodiscard]] const OperandSpec& of(Operand operand) const { return operands[operand]; }
  [[nodiscard]] bool uses(Operand operand) const { return operands[operand].role != Role::kUnused; }
  [[nodiscard]] bool has_caches() const { return uses(Operand::kKCache); }
};

/// Tokens of one call: with at most 2^16 heads of a group and 2^10 channels, products of counts and
/// element sizes stay below 2^63.
inline constexpr int64_t kMaxTokens = int64_t{1} << 32;

/// Whether a call may have so many tokens; 0 is allowed.
[[nodiscard]] constexpr bool IsTokenCount(const TokenCount& tokens) noexcept {
  return tokens.batch >= 0 && tokens.sequence >= 0 && tokens.ragged_sequences >= 0 &&
         tokens.ragged_sequences <= kMaxTokens &&
         (tokens.batch == 0 || tokens.sequence <= kMaxTokens / tokens.batch);
}

/// The pointer of an operand.
[[nodiscard]] const void* PointerOf(const Tensors& tensors, Operand operand) noexcept;
[[nodiscard]] void* OutputOf(const Tensors& tensors, Operand operand) noexcept;

/// Strides of packed rows of `heads` heads.
[[nodiscard]] constexpr TokenStrides PackedStrides(int64_t heads, int64_t head_dim) noexcept {
  return {TokenStrides::kFollows, heads * head_dim, head_dim, 1};
}

/// The batch stride in elements: given, or sequence * token.
[[nodiscard]] constexpr int64_t BatchStride(const TokenStrides& strides,
                                            const TokenCount& tokens) noexcept {
  return strides.batch == TokenStrides::kFollows ? tokens.sequence * strides.token : strides.batch;
}

/// Elements from a token's position in one section to that in the next: given, or packed rows. What
/// does not fit belongs to strides that no extent is allowed to have.
[[nodiscard]] inline int64_t PositionSectionStride(const RopeStage& rope,
                                                   const TokenCount& tokens) noexcept {
  if (rope.position_section_stride) return *rope.position_section_stride;
  int64_t stride = 0;
  return CheckedMul(tokens.total(), rope.position_stride, &stride) ? stride : INT64_MAX;
}

}  // namespace qkvfuse
