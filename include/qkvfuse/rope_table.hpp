// Tables of cos and sin for RopeSpec, computed once when a model is loaded: from the parameters
// that models publish to the memory that Tensors::cos and sin point to. docs/rope_tables.md.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "qkvfuse/export.hpp"
#include "qkvfuse/fused_qkv.hpp"
#include "qkvfuse/status.hpp"

namespace qkvfuse {

/// How the frequencies of a model are changed for contexts longer than it was first trained on. A
/// member that the kind does not use keeps its default, anything else is refused.
struct RopeScaling {
  enum class Kind : uint8_t {
    kNone,
    kLinear,      // factor
    kNtk,         // factor: one larger theta
    kDynamicNtk,  // factor, original_max_positions, sequence_length
    kYarn,        // factor, original_max_positions; betas, truncate, mscales, attention_factor
    kLlama3,      // factor, original_max_positions, low_freq_factor, high_freq_factor
    kLongRope,    // factor, original_max_positions, sequence_length; the lists, attention_factor
  };

  Kind kind = Kind::kNone;
  double factor = 1.0;                 // at least 1: longest context / original_max_positions
  int64_t original_max_positions = 0;  // of the first training
  /// Tokens of the longest sequence that the table serves, which chooses the frequencies of
  /// kDynamicNtk and kLongRope. 0 is refused: no one table fits all lengths.
  int64_t sequence_length = 0;
  double beta_fast = 32.0;  // turns within original_max_positions that end the ramp of kYarn
  double beta_slow = 1.0;
  bool truncate = true;         // the ends of that ramp are whole pairs
  double mscale = 0.0;          // kYarn: both, or none
  double mscale_all_dim = 0.0;  //
  /// Multiplies cos and sin. Absent: kYarn 0.1 ln(factor) + 1, or the ratio that the mscales say;
  /// kLongRope sqrt(1 + ln(factor) / ln(original_max_positions)).
  std::optional<double> attention_factor{};
  double low_freq_factor = 1.0;  // turns within original_max_positions, kLlama3
  double high_freq_factor = 4.0;
  std::vector<double>
      short_factor{};                 // kLongRope, rotary_dim / 2 each: divisors of the frequencies
  std::vector<double> long_factor{};  // where sequence_length > original_max_positions

  bool operator==(const RopeScaling&) const = default;
};

struct RopeTableSpec {
  int64_t rotary_dim = 0;     // even, 2..1024
  int64_t max_positions = 0;  // rows of the table
  double theta = 10000.0;     // the base, more than 1
  RopeScaling scaling{};

  bool operator==(const RopeTableSpec&) const = default;
};

/// Radians per position of the rotary_dim / 2 pairs; max_positions is not looked at.
[[nodiscard]] QKVFUSE_API Result<std::vector<double>> RopeFrequencies(
    const RopeTableSpec& spec) noexcept;

/// What multiplies cos and sin: 1 but for kYarn and kLongRope.
[[nodiscard]] QKVFUSE_API Result<double> RopeAttentionFactor(const RopeTableSpec& spec) noexcept;

/// Writes attention factor * cos(position * frequency), and sin, for positions 0..max_positions-1,
/// computed in double and rounded once. `layout` says where: kTwoTables, or kJoined, where sin is
/// null; its rotary_dim is 0 or the spec's, its max_positions the spec's. Bytes between the
/// elements keep their values.
[[nodiscard]] QKVFUSE_API Status FillRopeTable(const RopeTableSpec& spec, const RopeSpec& layout,
                                               void* cos, void* sin) noexcept;

}  // namespace qkvfuse
