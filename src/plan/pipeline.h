// Pipeline: an operator as plain data. ops/ fills it in, the plan executes it: three head groups,
// each source -> [norm] -> [rope] -> sinks, over operands with roles, types and strides.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

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
  kRows,            // one row of heads per token: strides, heads, head_dim channels
  kParameter,       // `count` elements of a strided shape, the same for all tokens
  kTokenParameter,  // one element per token
  kSlots,
  kCache,
};

/// Type and place of one operand.
struct OperandSpec {
  Role role = Role::kUnused;
  DType dtype = DType::kFloat32;
  const char* name = "";  // as the door spells it
  bool is_output = false;
  int64_t heads = 1;     // kRows, kCache
  TokenStrides strides;  // kRows
  StridedShape shape;    // kParameter, kTokenParameter; rank 0: contiguous
  int64_t count = 0;     // kParameter: elements used, in row-major order of the shape
  CacheLayout layout;    // kCache
};

/// One head group: what happens to the q, k or v heads of every token.
struct HeadGroup {
  int64_t heads = 0;
  int64_t first_head = 0;  // in the packed row
  bool has_norm = false;
  bool has_rope = false;
  std::optional<Operand> gamma;
  std::array<std::optional<Operand>, 2> dense;  // 16-bit outputs
  std::optional<Operand> cache;
  std::optional<Operand> scale;  // int8 caches
  std::optional<Operand> offset;
};

struct Pipeline {
  const char* operator_name = "";
  int64_t head_dim = 0;
  double epsilon = 0;
  DType store = DType::kFloat16;  // dense outputs and 16-bit caches
  SlotSpec slots;
  bool strict = true;
  std::array<HeadGroup, 3> groups;  // q, k, v
  PerOperand<OperandSpec> operands;

  [[nodiscard]] const OperandSpec& of(Operand operand) const { return operands[operand]; }
  [[nodiscard]] bool uses(Operand operand) const { return operands[operand].role != Role::kUnused; }
};

/// Tokens of one call: with at most 2^16 heads of a group and 2^10 channels, products of counts and
/// element sizes stay below 2^63.
inline constexpr int64_t kMaxTokens = int64_t{1} << 32;

/// Whether a call may have so many tokens; 0 is allowed.
[[nodiscard]] constexpr bool IsTokenCount(const TokenCount& tokens) noexcept {
  return tokens.batch >= 0 && tokens.sequence >= 0 &&
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

}  // namespace qkvfuse
