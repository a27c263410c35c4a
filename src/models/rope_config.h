// The rotation of a model from its configuration: rope_scaling with the fields beside it, or
// rope_parameters.
#pragma once

#include <array>
#include <optional>

#include "models/config_object.h"
#include "models/model_facts.h"
#include "qkvfuse/rope_table.hpp"

namespace qkvfuse {

/// What the parameters are completed with. Values of fields outside the object must not contradict
/// those inside.
struct RopeContext {
  const ModelFacts& facts;
  int64_t head_dim;
  int64_t max_positions;
  double default_theta;
  std::optional<double> theta;  // rope_theta of the configuration itself
  std::optional<double> partial_rotary_factor;
  std::optional<int64_t> original_max_positions;
};

struct RopeConfig {
  RopeTableSpec table;
  std::array<int64_t, 3> section_pairs{};  // M-RoPE
};

constexpr int64_t kMostPositions = INT32_MAX;

/// Reads one set of parameters; a field of it that nobody knows is refused.
[[nodiscard]] Result<RopeConfig> ReadRope(const RopeContext& context, ConfigObject object);

}  // namespace qkvfuse
