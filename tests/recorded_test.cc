// Recorded activations: the file is the one that was recorded, and cases take their data from it.
#include "cases/recorded.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <string>

#include "cases/problem.h"

namespace qkvfuse::cases {
namespace {

constexpr int64_t kTokens = 16;

const TensorView* Input(TensorId id, const std::vector<NamedView>& inputs) {
  for (const NamedView& input : inputs) {
    if (input.id == id) return &input.view;
  }
  return nullptr;
}

TEST(Recorded, TablesAreOfAnglesAtFollowingPositions) {
  for (uint64_t number = 0; number < 3; ++number) {
    const RecordedLayer& layer = RecordedLayer::Of(number);
    for (int64_t token = 0; token < kTokens; ++token) {
      for (int64_t pair = 0; pair < RecordedLayer::kHeadDim / 2; ++pair) {
        const double cos = layer.Cos(token, pair);
        const double sin = layer.Sin(token, pair);
        ASSERT_NEAR(cos * cos + sin * sin, 1, 1e-6);
        if (token == 0 || pair == 0) continue;
        // One position further turns a pair by its frequency, the same for every token.
        const double turn = layer.Cos(token, pair) * layer.Cos(token - 1, pair) +
                            layer.Sin(token, pair) * layer.Sin(token - 1, pair);
        const double first =
            layer.Cos(1, pair) * layer.Cos(0, pair) + layer.Sin(1, pair) * layer.Sin(0, pair);
        ASSERT_NEAR(turn, first, 1e-6);
      }
    }
    // The last 16 of 640 positions; pair i turns by base^(-i/128), the base of a layer with a
    // sliding window (0 and 16) or without.
    const double base = number == 1 ? 1e6 : 1e4;
    for (int64_t pair = 0; pair < RecordedLayer::kHeadDim / 2; ++pair) {
      const double angle = 624 * std::pow(base, -static_cast<double>(pair) / 128);
      ASSERT_NEAR(layer.Cos(0, pair), std::cos(angle), 1e-4);
      ASSERT_NEAR(layer.Sin(0, pair), std::sin(angle), 1e-4);
    }
    // Pair 0 turns by one radian.
    const double turn = layer.Cos(1, 0) * layer.Cos(0, 0) + layer.Sin(1, 0) * layer.Sin(0, 0);
    EXPECT_NEAR(turn, std::cos(1.0), 1e-6);
  }
}

TEST(Recorded, ValuesHaveLongTails) {
  const RecordedLayer& layer = RecordedLayer::Of(0);
  double square = 0;
  double fourth = 0;
  const int64_t channels = RecordedLayer::kHeads.total() * RecordedLayer::kHeadDim;
  for (int64_t token = 0; token < kTokens; ++token) {
    for (int64_t channel = 0; channel < channels; ++channel) {
      const double x = layer.X(token, channel);
      ASSERT_TRUE(std::isfinite(x));
      square += x * x;
      fourth += x * x * x * x;
    }
  }
  const auto count = static_cast<double>(kTokens * channels);
  EXPECT_GT(fourth / count / (square / count) / (square / count), 4);  // 3 of normal numbers
}

TEST(Recorded, CasesTakeIt) {
  const Result<Case> c = ParseCase(
      "op=qnr dtype=bf16 heads=4/1 head_dim=256 tokens=20 seed=4 "
      "layout=paged k_cache=16bit v_cache=16bit data=gemma3");
  ASSERT_TRUE(c.ok()) << c.status().message();
  const auto problem = Problem::Make(*c);
  ASSERT_TRUE(problem.ok()) << problem.status().message();
  const std::vector<NamedView> inputs = (*problem)->Inputs();
  const TensorView* const x = Input(TensorId::kX, inputs);
  ASSERT_NE(x, nullptr);
  const auto* const rows = static_cast<const uint16_t*>(x->data);
  const RecordedLayer& layer = RecordedLayer::Of(1);  // seed 4, of three layers
  for (const int64_t token : {0, 3, 15, 16, 19}) {
    for (const int64_t channel : {0, 255, 1024, 1535}) {
      const uint32_t bits = static_cast<uint32_t>(rows[token * 1536 + channel]) << 16;
      EXPECT_EQ(std::bit_cast<float>(bits), layer.X(token % kTokens, channel));
    }
  }
}

TEST(Recorded, OtherHeadsAreRefused) {
  for (const std::string words : {"heads=8/1 head_dim=256", "heads=4/1 head_dim=128"}) {
    const Result<Case> c = ParseCase("op=qnr dtype=bf16 tokens=2 data=gemma3 " + words);
    ASSERT_FALSE(c.ok());
    EXPECT_THAT(c.status().message(), ::testing::HasSubstr("needs heads=4/1 and head_dim=256"));
  }
  EXPECT_THAT(ParseCase("op=fused dtype=bf16 heads=4/1 head_dim=256 tokens=2 data=gemma3 "
                        "rotary_dim=64")
                  .status()
                  .message(),
              ::testing::HasSubstr("needs a rotary_dim of 0 or 256"));
}

}  // namespace
}  // namespace qkvfuse::cases
