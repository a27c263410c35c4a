// The waves of a rotary embedding, and what a RopeTableSpec must be to have some.
#pragma once

#include <vector>

#include "base/fp_environment.h"
#include "qkvfuse/rope_table.hpp"

namespace qkvfuse {

constexpr int64_t kMostRotaryDim = 1024;

struct RopeWaves {
  std::vector<double> frequencies;  // radians per position, rotary_dim / 2
  double attention_factor;
};

/// All but max_positions.
[[nodiscard]] Status CheckRopeTable(const RopeTableSpec& spec);

/// The pairs, as fractions, between which YaRN goes from frequencies as they were to divided ones.
struct YarnRamp {
  double first;
  double last;
};
[[nodiscard]] YarnRamp RampOf(const RopeTableSpec& spec);

[[nodiscard]] Result<RopeWaves> WavesOf(const RopeTableSpec& spec);

}  // namespace qkvfuse
