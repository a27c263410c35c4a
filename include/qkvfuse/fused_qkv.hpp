// The general operator: any source, norm, rotation, cache type, cache layout and addressing. The
// two operators of Ascend are special cases of it. What it computes, to the bit: docs/numerics.md.
#pragma once

#include <array>
#include <optional>

#include "qkvfuse/plan.hpp"
#include "qkvfuse/specs.hpp"

namespace qkvfuse {

/// RMSNorm of the heads of one part.
struct NormSpec {
  enum class Kind : uint8_t {
    kNone,
    kPerHead,
    kFullWidth,  // over all heads of the part together
  };
  enum class Gamma : uint8_t {
    kPlain,
    kOnePlus,  // the weight is 1 + gamma, as Gemma has it
    kNone,     // no weight
  };

  Kind kind = Kind::kNone;
  Gamma gamma = Gamma::kPlain;
  std::optional<DType> gamma_dtype{};  // fp32, or x's type; absent: x's, which is not int32
  StridedShape gamma_shape{};          // head_dim elements; kFullWidth: heads * head_dim
  /// kFullWidth: heads of all tensor-parallel ranks, whose sums of squares Tensors::q_sums and
  /// k_sums hold. 0: the heads of this call are all there are, and are measured by it.
  int64_t total_heads = 0;

  bool operator==(const NormSpec&) const = default;
};

/// Whether q and k are normalised before they are rotated, or after.
enum class NormOrder : uint8_t { kBeforeRope, kAfterRope };

/// The rotation of q and k.
struct RopeSpec {
  enum class Pairing : uint8_t {
    kNone,         // no rotation, and no tables
    kHalves,       // channel j with j + rotary_dim/2 (NeoX)
    kInterleaved,  // channel 2j with 2j + 1 (GPT-J)
  };
  enum class Table : uint8_t {
    kRowPerToken,  // cos and sin have a row for every token of the call
    kTwoTables,    // cos and sin have a row for every position
    kJoined,       // cos alone has a row for every position: rotary_dim/2 of cos, then of sin
  };
  enum class Sections : uint8_t {
    kNone,          // one position per token
    kConcatenated,  // the first pairs by the first position, the next ones by the second, ...
                    // (M-RoPE)
    kInterleaved,   // pair j by position j % 3, as far as its section goes, the rest by the first
  };

  Pairing pairing = Pairing::kHalves;
  int64_t rotary_dim = 0;     // even; 0: all of head_dim
  bool rotates_last = false;  // the last rotary_dim channels of a head instead of the first
  Table table = Table::kRowPerToken;
  std::optional<DType> dtype{};  // of the tables: fp32, or x's type; absent: x's, not int32
  /// Not kJoined: rows have rotary_dim/2 entries, which serve both channels of a pair, instead of
  /// rotary_dim.
  bool half_width = false;
  /// From row to row and entry to entry; packed rows where absent. `head` is not used, `batch` only
  /// with kRowPerToken.
  std::optional<TokenStrides> cos_strides{};
  std::optional<TokenStrides> sin_strides{};

  // Tables by position only.
  int64_t max_positions = 0;                         // rows of the tables
  DType position_dtype = DType::kInt64;              // int64 or int32
  int64_t position_stride = 1;                       // elements from token to token
  std::optional<int64_t> position_section_stride{};  // from a position to the next; absent: tokens
  Sections sections = Sections::kNone;               // three positions per token
  std::array<int64_t, 3> section_pairs{};            // pairs of each; together rotary_dim/2

  bool operator==(const RopeSpec&) const = default;
};

/// A dense output: of type fp32, fp16 or bf16, or (q_out) int8 or fp8 with scales as a cache has
/// them. Dynamic scales go to Tensors::q_scale_out.
struct DenseSpec {
  std::optional<DType> dtype{};           // absent: x's, which is not int32
  std::optional<TokenStrides> strides{};  // packed where absent
  bool has_offset = false;
  StridedShape scale_shape{};
  StridedShape offset_shape{};
  ScaleRule scale_rule = ScaleRule::kDivide;
  ScaleGranularity granularity = ScaleGranularity::kChannel;
  std::optional<TokenStrides> scale_out_strides =
      std::nullopt;  // kDynamic; [tokens, heads] where absent

  bool operator==(const DenseSpec&) const = default;
};

struct FusedQkvSpec {
  DType x_dtype = DType::kBFloat16;  // fp32, fp16, bf16 or int32
  /// Tensors::q, k and v instead of packed rows in Tensors::x.
  bool is_separate = false;
  HeadCounts heads;
  int64_t head_dim = 0;    // of q and k; even, 2..1024
  int64_t v_head_dim = 0;  // of v; even, 2..1024; 0: head_dim

  // int32 x: weight_scale is required. Channels count through q, k and v, packed or not.
  bool has_token_scale = false;
  /// Of the projection: fp32, or x's type; of an int32 x fp32, fp16, bf16 or int32.
  std::optional<DType> bias;

  NormSpec q_norm;
  NormSpec k_norm;
  NormSpec v_norm;
  NormOrder norm_order = NormOrder::kBeforeRope;
  double epsilon = 1e-6;  // used as float; with a norm
  RopeSpec rope;

  DenseSpec q_out;
  std::optional<DenseSpec> q_before_quant;  // fp32, fp16 or bf16, as k_out and v_out
  std::optional<DenseSpec> k_out;
  std::optional<DenseSpec> v_out;
  // k and v are computed, and their tensors needed, where an output or a cache wants them.
  std::optional<CacheSpec> k_cache;  // fp32, fp16, bf16, int8 or fp8; both caches or none
  std::optional<CacheSpec> v_cache;
  SlotSpec slots;  // where there are caches

  // Strides of tensors that are not packed.
  std::optional<TokenStrides> x_strides;  // head: of q and k; head_dim channels if v's differ
  std::optional<TokenStrides> q_strides;
  std::optional<TokenStrides> k_strides;
  std::optional<TokenStrides> v_strides;
  StridedShape weight_scale_shape{};
  StridedShape token_scale_shape{};
  StridedShape bias_shape{};

  bool operator==(const FusedQkvSpec&) const = default;
};

[[nodiscard]] QKVFUSE_API Result<Plan> MakePlan(const FusedQkvSpec& spec,
                                                const PlanOptions& options = {}) noexcept;

/// The first half of a full-width norm over several tensor-parallel ranks: a plan that reads q and
/// k and writes nothing but q_head_sums and k_head_sums, fp32 [tokens, heads], the sums of squares
/// that the ranks gather, in head order, to the q_sums and k_sums of the Spec's own plan. Only the
/// parts whose norm is kFullWidth with total_heads are measured.
[[nodiscard]] QKVFUSE_API Result<Plan> MakeMeasurePlan(const FusedQkvSpec& spec,
                                                       const PlanOptions& options = {}) noexcept;

}  // namespace qkvfuse
