// Specs of rotary tables that several tests take.
#pragma once

#include <gtest/gtest.h>

#include <vector>

#include "qkvfuse/rope_table.hpp"

namespace qkvfuse::testing {

inline RopeTableSpec TableOf(int64_t rotary_dim, double theta, RopeScaling scaling = {}) {
  return {.rotary_dim = rotary_dim, .max_positions = 8, .theta = theta, .scaling = scaling};
}

inline RopeScaling Llama31(double factor) {
  return {.kind = RopeScaling::Kind::kLlama3, .factor = factor, .original_max_positions = 8192};
}

inline RopeScaling GptOss() {
  return {.kind = RopeScaling::Kind::kYarn,
          .factor = 32,
          .original_max_positions = 4096,
          .truncate = false};
}

inline RopeScaling LongRope(int64_t sequence_length) {
  RopeScaling scaling{.kind = RopeScaling::Kind::kLongRope,
                      .factor = 32,
                      .original_max_positions = 4096,
                      .sequence_length = sequence_length};
  for (int i = 0; i < 48; ++i) {
    scaling.short_factor.push_back(1 + 0.01 * i);
    scaling.long_factor.push_back(1 + 0.5 * i);
  }
  return scaling;
}

inline std::vector<double> FrequenciesOf(const RopeTableSpec& spec) {
  const Result<std::vector<double>> frequencies = RopeFrequencies(spec);
  EXPECT_TRUE(frequencies.ok()) << frequencies.status().message();
  return frequencies.ok() ? *frequencies : std::vector<double>();
}

inline double AttentionFactorOf(const RopeTableSpec& spec) {
  const Result<double> factor = RopeAttentionFactor(spec);
  EXPECT_TRUE(factor.ok()) << factor.status().message();
  return factor.ok() ? *factor : 0;
}

}  // namespace qkvfuse::testing
