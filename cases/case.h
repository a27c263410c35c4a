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

#include "qkvfuse/plan.hpp"
#include "qkvfuse/specs.hpp"

namespace qkvfuse::cases {

enum class Operator { kQkvRmsNormRopeCache, kDequantRopeQuantKvcache };

enum class Layout { kPaNz, kPaged, kContiguous };

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
};

/// The tensors of a call, in the order of qkvfuse::Tensors.
enum class TensorId {
  kX,
  kQGamma,
  kKGamma,
  kCos,
  kSin,
  kSlots,
  kKScale,
  kVScale,
  kKOffset,
  kVOffset,
  kWeightScale,
  kTokenScale,
  kBias,
  kQOut,
  kQBeforeQuant,
  kKOut,
  kVOut,
  kKCache,
  kVCache,
};
inline constexpr size_t kTensorCount = 19;

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

struct CacheCase {
  DType dtype = DType::kInt8;
  bool has_offset = false;
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
  DType dtype = DType::kBFloat16;    // of cos, sin, gammas and dense outputs
  DType x_dtype = DType::kBFloat16;  // `dtype`; DRQ: or int32
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
  bool dense_kv = false;  // key before_quant (QNR), kv_output (DRQ)
  bool token_scale = false;
  std::optional<DType> bias;
  std::array<StridePattern, kTensorCount> strides{};
  bool interleaved = false;  // both caches in one buffer, row by row
  InPlace in_place;
  DataKind data = DataKind::kUniform;
  uint64_t seed = 1;

  // How to run it.
  int threads = 0;
  bool force_split = false;
  std::string target;
  Path path = Path::kAuto;
  bool strict = true;

  [[nodiscard]] bool is_qnr() const { return op == Operator::kQkvRmsNormRopeCache; }
  [[nodiscard]] StridePattern& stride(TensorId id) { return strides[static_cast<size_t>(id)]; }
  [[nodiscard]] StridePattern stride(TensorId id) const { return strides[static_cast<size_t>(id)]; }
};

/// x, q_gamma, k_gamma, cos, ...: the names of qkvfuse::Tensors.
[[nodiscard]] std::string_view Name(TensorId id);

/// Elements of a chunk of a PA_NZ cache.
[[nodiscard]] int64_t ChunkOf(const CacheCase& cache);

/// Blocks of the caches: `blocks`, or the number that the tokens need, and one.
[[nodiscard]] int64_t BlockCount(const Case& c);

/// Whether the call has this tensor.
[[nodiscard]] bool Has(const Case& c, TensorId id);

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
