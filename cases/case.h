// A Case is one call of an operator, data included, that fits in a line of text:
//   op=qnr dtype=bf16 heads=32/8/8 head_dim=128 tokens=16 k_cache=int8+offset v_cache=bf16 ...
// Tests print it when they fail; the command line reads it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "qkvfuse/fused_qkv.hpp"
#include "qkvfuse/plan.hpp"
#include "qkvfuse/specs.hpp"

namespace qkvfuse::cases {

enum class Operator { kQkvRmsNormRopeCache, kDequantRopeQuantKvcache, kFusedQkv };

/// After kContiguous: op=fused only.
enum class Layout {
  kPaNz,
  kPaged,
  kContiguous,
  kHeadsFirst,  // [blocks, heads, block_size, head_dim]: paged HND, contiguous BNSD
  kXSplit,  // K [blocks, heads, head_dim/x, block_size, x], V [blocks, heads, head_dim, block_size]
  kTransposed,  // [blocks, heads, head_dim, block_size]
  kShuffled,    // K as kXSplit, V [blocks, heads, block_size/x, head_dim, x]
};

enum class SlotPattern {
  kSequential,
  kShuffled,  // distinct, in random order, over the whole cache
  kPadded,    // shuffled, every third one -1
  kRepeated,  // few distinct slots, several tokens each; needs strict=0
  kSkipped,   // all -1
};

enum class DataKind {
  kUniform,
  kHeavyTailed,  // long tails and a few outlier channels, as activations of language models have
  kSpecial,      // zeros, subnormals, extremes, infinities, NaN; odd scales and offsets
  kTies,         // values that fall on or next to the ties of the output types
  kGemma3,       // what Gemma 3 270M computed on real text (recorded.h); scales stay random
};

/// The tensors of a call, in the order of qkvfuse::Tensors.
enum class TensorId {
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
};
inline constexpr size_t kTensorCount = 35;

/// How the elements of a tensor lie in memory.
enum class StridePattern {
  kPacked,
  kPitch,       // gaps between rows (tokens, heads of parameters, blocks of rows of a cache)
  kHeadPitch,   // gaps between the innermost rows (heads)
  kOffset,      // packed, starting a few elements into its buffer
  kChannel,     // every second element
  kReversed,    // outer dimensions run backwards
  kMirrored,    // all dimensions run backwards
  kHeadsFirst,  // the head dimension is the outermost one
  kBroadcast,   // outer strides 0; inputs only
  kLonger,      // more elements than are used; weight_scale, token_scale, bias
};

/// Type and quantisation of a cache or of q_out.
struct CacheCase {
  DType dtype = DType::kInt8;
  bool has_offset = false;
  ScaleRule rule = ScaleRule::kDivide;
  ScaleGranularity granularity = ScaleGranularity::kChannel;

  [[nodiscard]] bool has_scale() const { return IsQuantised(dtype) && rule != ScaleRule::kDynamic; }
  [[nodiscard]] bool is_dynamic() const { return rule == ScaleRule::kDynamic; }
};

/// What op=fused has beside the keys of the other operators.
struct FusedCase {
  bool is_separate = false;  // q, k and v are tensors of their own
  int64_t v_head_dim = 0;    // 0: head_dim
  NormSpec::Kind q_norm = NormSpec::Kind::kPerHead;
  NormSpec::Kind k_norm = NormSpec::Kind::kPerHead;
  NormSpec::Kind v_norm = NormSpec::Kind::kNone;
  NormSpec::Gamma gamma = NormSpec::Gamma::kPlain;
  DType gamma_dtype = DType::kFloat32;
  NormOrder norm_order = NormOrder::kBeforeRope;
  int64_t gathered_heads = 0;  // of full-width norms: sums of so many heads are an input
  bool measures = false;       // the plan of MakeMeasurePlan
  RopeSpec::Pairing rope = RopeSpec::Pairing::kHalves;
  int64_t rotary_dim = 0;  // 0: head_dim
  bool rotates_last = false;
  RopeSpec::Table table = RopeSpec::Table::kRowPerToken;
  DType table_dtype = DType::kFloat32;
  bool half_width = false;
  int64_t max_positions = 64;
  DType position_dtype = DType::kInt64;
  RopeSpec::Sections sections = RopeSpec::Sections::kNone;
  CacheCase q_out{DType::kBFloat16};
  DType dense_dtype = DType::kBFloat16;  // of q_before_quant, k_out and v_out
  bool has_caches = true;
  int64_t sequences = 3;  // slot_mode=page_table
  bool zeroes_unused_rows = false;
};

/// Dense outputs that lie on their own part of x.
struct InPlace {
  bool q = false;
  bool k = false;
  bool v = false;
  [[nodiscard]] bool any() const { return q || k || v; }
};

struct Case {
  Operator op = Operator::kQkvRmsNormRopeCache;
  DType dtype = DType::kBFloat16;    // of cos, sin, gammas and dense outputs; op=fused: see there
  DType x_dtype = DType::kBFloat16;  // `dtype`, or (not QNR) int32; op=fused: or fp32
  HeadCounts heads{8, 2, 2};
  int64_t head_dim = 128;
  TokenCount tokens{16};
  double epsilon = 1e-6;  // QNR
  CacheCase k_cache;
  CacheCase v_cache;
  Layout layout = Layout::kPaNz;
  int64_t block_size = 128;
  int64_t blocks = 0;  // 0: as many as the tokens need, and one
  SlotPattern slots = SlotPattern::kShuffled;
  SlotMode slot_mode = SlotMode::kSlotPerToken;
  DType slot_dtype = DType::kInt64;
  bool dense_kv = false;  // key before_quant (QNR), kv_output (DRQ, op=fused)
  bool token_scale = false;
  std::optional<DType> bias;
  std::array<StridePattern, kTensorCount> strides{};
  bool interleaved = false;  // both caches in one buffer, row by row
  InPlace in_place;
  FusedCase fused;  // op=fused
  DataKind data = DataKind::kUniform;
  uint64_t seed = 1;

  // How to run it.
  int threads = 0;
  bool force_split = false;
  std::string target;
  Path path = Path::kAuto;
  bool strict = true;

  [[nodiscard]] bool is_qnr() const { return op == Operator::kQkvRmsNormRopeCache; }
  [[nodiscard]] bool is_fused() const { return op == Operator::kFusedQkv; }
  [[nodiscard]] int64_t v_head_dim() const {
    return is_fused() && fused.v_head_dim != 0 ? fused.v_head_dim : head_dim;
  }
  /// Channels of a packed row.
  [[nodiscard]] int64_t channels() const {
    return (heads.q + heads.k) * head_dim + heads.v * v_head_dim();
  }
  /// Channels that are rotated, of q and k.
  [[nodiscard]] int64_t rotary_dim() const {
    return is_fused() && fused.rotary_dim != 0 ? fused.rotary_dim : head_dim;
  }
  [[nodiscard]] bool is_ragged() const { return slot_mode == SlotMode::kPageTable; }
  [[nodiscard]] TokenCount token_count() const {
    return is_ragged() ? TokenCount::Ragged(tokens.total(), fused.sequences) : tokens;
  }
  [[nodiscard]] StridePattern& stride(TensorId id) { return strides[static_cast<size_t>(id)]; }
  [[nodiscard]] StridePattern stride(TensorId id) const { return strides[static_cast<size_t>(id)]; }
};

/// x, q_gamma, k_gamma, cos, ...: the names of qkvfuse::Tensors.
[[nodiscard]] std::string_view Name(TensorId id);

/// Elements of a chunk of a PA_NZ cache.
[[nodiscard]] int64_t ChunkOf(const CacheCase& cache);

/// Elements of a chunk, 16 bytes, of the layouts x_split and shuffled.
[[nodiscard]] int64_t SplitOf(const CacheCase& cache);

/// slot_mode=page_table: the tokens that each sequence gets, and has before.
struct RaggedSequence {
  int64_t tokens;
  int64_t past;
};
[[nodiscard]] std::vector<RaggedSequence> RaggedSequences(const Case& c);

/// slot_mode=page_table: pages of the longest sequence.
[[nodiscard]] int64_t PagesOf(const Case& c);

/// Blocks of the caches: `blocks`, or the number that the tokens need, and one.
[[nodiscard]] int64_t BlockCount(const Case& c);

/// Whether the call has this tensor.
[[nodiscard]] bool Has(const Case& c, TensorId id);

/// op=fused: Has and Validate of what that operator alone has.
[[nodiscard]] bool HasFused(const Case& c, TensorId id);
[[nodiscard]] Status ValidateFused(const Case& c);

/// Refuses contradictions within the case (not what the library refuses).
[[nodiscard]] Status Validate(const Case& c);

/// A line of key=value words in any order, keys absent taking the defaults of the operator. The
/// sentence of a refusal names the key.
[[nodiscard]] Result<Case> ParseCase(std::string_view line);

/// The line that ParseCase reads back to the same case.
[[nodiscard]] std::string PrintCase(const Case& c);

/// The cases of a text file: one a line, `#` starts a comment. A refusal names file and line.
[[nodiscard]] Result<std::vector<Case>> ReadCases(const std::string& path);

}  // namespace qkvfuse::cases
