// The frequencies of rotary tables, against published values and against the formulas written
// another way.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numbers>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/rope_specs.h"

namespace qkvfuse::testing {
namespace {

using Kind = RopeScaling::Kind;

constexpr double kTurn = 2 * std::numbers::pi;

std::string Refusal(const RopeTableSpec& spec) {
  const Result<std::vector<double>> frequencies = RopeFrequencies(spec);
  EXPECT_EQ(RopeAttentionFactor(spec).ok(), frequencies.ok());
  return frequencies.status().message();
}

/// What transformers 5.24.0 computes in fp32 (its functions of modeling_rope_utils, torch 2.13.0):
/// pairs and their frequencies, and the attention factor.
struct Published {
  const char* what;
  RopeTableSpec spec;
  std::vector<std::pair<size_t, double>> frequencies;
  double attention_factor;
};

std::vector<Published> PublishedValues() {
  const RopeScaling qwen3{.kind = Kind::kYarn, .factor = 4, .original_max_positions = 32768};
  const RopeScaling mscales{.kind = Kind::kYarn,
                            .factor = 40,
                            .original_max_positions = 4096,
                            .mscale = 1.0,
                            .mscale_all_dim = 0.5};
  RopeScaling dynamic{.kind = Kind::kDynamicNtk,
                      .factor = 2,
                      .original_max_positions = 2048,
                      .sequence_length = 1000};
  const RopeScaling within = dynamic;
  dynamic.sequence_length = 8192;
  return {
      {"Llama 3.1 8B",
       TableOf(128, 500000, Llama31(8)),
       {{0, 1},
        {1, 0.814617217},
        {28, 0.00321144611},
        {29, 0.00216657063},
        {31, 0.00085675146},
        {34, 0.000178507791},
        {35, 9.55621217e-05},
        {63, 3.06892588e-07}},
       1},
      {"Llama 3.2 1B",
       TableOf(64, 500000, Llama31(32)),
       {{0, 1},
        {14, 0.00321144611},
        {15, 0.00129054801},
        {16, 0.000429556705},
        {17, 9.70828623e-05},
        {18, 1.94616387e-05},
        {31, 9.41830649e-08}},
       1},
      {"Qwen3 with YaRN",
       TableOf(128, 1e6, qwen3),
       {{0, 1},
        {23, 0.00697830599},
        {24, 0.00537532149},
        {30, 0.00106436096},
        {39, 6.4903943e-05},
        {40, 4.44569851e-05},
        {41, 3.58253164e-05},
        {63, 3.10234441e-07}},
       1.138629436111989},
      {"YaRN with mscales",
       TableOf(64, 1e4, mscales),
       {{0, 1},
        {10, 0.0562341288},
        {12, 0.0268793609},
        {20, 0.000790569407},
        {23, 3.3338034e-05},
        {31, 3.33380353e-06}},
       1.1557219901962608},
      {"gpt-oss",
       TableOf(64, 150000, GptOss()),
       {{0, 1},
        {8, 0.0508132726},
        {9, 0.0317056961},
        {12, 0.00679495931},
        {17, 0.000129318694},
        {18, 3.83088118e-05},
        {31, 3.0235114e-07}},
       1.3465735902799727},
      {"linear",
       TableOf(128, 1e4, {.kind = Kind::kLinear, .factor = 4}),
       {{0, 0.25}, {1, 0.216491088}, {63, 2.88695483e-05}},
       1},
      {"dynamic, 1000 tokens",
       TableOf(128, 1e4, within),
       {{0, 1}, {1, 0.865964353}, {32, 0.00999999978}, {63, 0.000115478193}},
       1},
      {"dynamic, 8192 tokens",
       TableOf(128, 1e4, dynamic),
       {{0, 1}, {1, 0.839625776}, {32, 0.00372172147}, {63, 1.6496886e-05}},
       1},
      {"longrope, 4096 tokens",
       TableOf(96, 1e4, LongRope(4096)),
       {{0, 1}, {1, 0.817231834}, {20, 0.0179536231}, {47, 8.24168383e-05}},
       1.1902380714238083},
      {"longrope, 4097 tokens",
       TableOf(96, 1e4, LongRope(4097)),
       {{0, 1}, {1, 0.550269425}, {20, 0.0019585772}, {47, 4.94501046e-06}},
       1.1902380714238083},
  };
}

TEST(RopeFrequencies, AsPublished) {
  for (const Published& published : PublishedValues()) {
    const std::vector<double> frequencies = FrequenciesOf(published.spec);
    ASSERT_EQ(frequencies.size(), static_cast<size_t>(published.spec.rotary_dim / 2));
    for (const auto& [pair, expected] : published.frequencies) {
      EXPECT_NEAR(frequencies[pair], expected, 2e-6 * expected)
          << published.what << ", pair " << pair;
    }
    EXPECT_NEAR(AttentionFactorOf(published.spec), published.attention_factor, 1e-15)
        << published.what;
  }
}

// As repeated multiplication by theta^(-2/R), in a wider type.
TEST(RopeFrequencies, PlainIsAGeometricSeries) {
  for (const int64_t rotary_dim : {2, 6, 64, 128, 1024}) {
    const std::vector<double> frequencies = FrequenciesOf(TableOf(rotary_dim, 1e6));
    const long double ratio = std::exp(-2 * std::log(1e6L) / static_cast<long double>(rotary_dim));
    long double expected = 1;
    for (const double frequency : frequencies) {
      EXPECT_NEAR(frequency, static_cast<double>(expected), 2e-15 * frequency);
      expected *= ratio;
    }
  }
}

// NTK keeps the shortest wave and stretches the longest by exactly the factor.
TEST(RopeFrequencies, NtkStretchesTheLongestWave) {
  const std::vector<double> plain = FrequenciesOf(TableOf(128, 1e4));
  const std::vector<double> ntk =
      FrequenciesOf(TableOf(128, 1e4, {.kind = Kind::kNtk, .factor = 8}));
  EXPECT_EQ(ntk[0], 1.0);
  EXPECT_NEAR(ntk[63], plain[63] / 8, 1e-15 * plain[63]);
  for (size_t pair = 1; pair < 63; ++pair) {
    const double stretch = std::pow(8.0, static_cast<double>(pair) / 63);
    EXPECT_NEAR(ntk[pair] * stretch, plain[pair], 1e-14 * plain[pair]);
  }
}

// Llama 3.1's own words: by wavelength, with three cases.
TEST(RopeFrequencies, Llama3SwitchesByWavelength) {
  const std::vector<double> plain = FrequenciesOf(TableOf(128, 500000));
  const std::vector<double> scaled = FrequenciesOf(TableOf(128, 500000, Llama31(8)));
  int kept = 0, mixed = 0, stretched = 0;
  for (size_t pair = 0; pair < plain.size(); ++pair) {
    const double wavelength = kTurn / plain[pair];
    if (wavelength < 8192.0 / 4) {
      EXPECT_EQ(scaled[pair], plain[pair]);
      ++kept;
    } else if (wavelength > 8192.0 / 1) {
      EXPECT_NEAR(scaled[pair], plain[pair] / 8, 1e-15 * plain[pair]);
      ++stretched;
    } else {
      const double smooth = (8192 / wavelength - 1) / (4 - 1);
      EXPECT_NEAR(scaled[pair], (1 - smooth) * plain[pair] / 8 + smooth * plain[pair],
                  1e-15 * plain[pair]);
      ++mixed;
    }
  }
  EXPECT_EQ(std::vector<int>({kept, mixed, stretched}), std::vector<int>({29, 6, 29}));
}

/// The pairs that YaRN left as they were, and those that it divided by the factor.
std::pair<size_t, size_t> RampEnds(const RopeTableSpec& spec) {
  RopeTableSpec unscaled = spec;
  unscaled.scaling = {};
  const std::vector<double> plain = FrequenciesOf(unscaled);
  const std::vector<double> scaled = FrequenciesOf(spec);
  size_t kept = 0;
  while (kept < plain.size() && scaled[kept] == plain[kept]) ++kept;
  size_t divided = plain.size();
  const double factor = spec.scaling.factor;
  while (divided > 0 && std::fabs(scaled[divided - 1] * factor / plain[divided - 1] - 1) < 1e-14) {
    --divided;
  }
  return {kept, divided};
}

// By hand: pair(turns) = R ln(context / 2 pi turns) / (2 ln theta). gpt-oss: 8.09 and 17.40; Qwen3:
// 23.6 and 39.6, truncated to 23 and 40.
TEST(RopeFrequencies, YarnRampEnds) {
  using Ends = std::pair<size_t, size_t>;
  EXPECT_EQ(RampEnds(TableOf(64, 150000, GptOss())), Ends(9, 18));
  RopeScaling scaling{.kind = Kind::kYarn, .factor = 4, .original_max_positions = 32768};
  EXPECT_EQ(RampEnds(TableOf(128, 1e6, scaling)), Ends(24, 40));
  scaling.truncate = false;
  EXPECT_EQ(RampEnds(TableOf(128, 1e6, scaling)), Ends(24, 40));
  // Equal betas: a step at one whole pair, which is itself kept.
  scaling = {.kind = Kind::kYarn, .factor = 4, .original_max_positions = 4096};
  scaling.beta_fast = scaling.beta_slow = 4096 / kTurn / 10;  // pair 16 where theta is 100
  scaling.truncate = false;
  EXPECT_EQ(RampEnds(TableOf(64, 100, scaling)).second, 17U);
}

// The ramp between its ends, for gpt-oss: linear in the pair.
TEST(RopeFrequencies, YarnRampIsLinearInThePair) {
  const std::vector<double> plain = FrequenciesOf(TableOf(64, 150000));
  const std::vector<double> scaled = FrequenciesOf(TableOf(64, 150000, GptOss()));
  const double first = 32 * std::log(4096 / (32 * kTurn)) / std::log(150000.0);
  const double last = 32 * std::log(4096 / kTurn) / std::log(150000.0);
  for (size_t pair = 9; pair < 18; ++pair) {
    const double new_share = (static_cast<double>(pair) - first) / (last - first);
    const double expected = plain[pair] / 32 * new_share + plain[pair] * (1 - new_share);
    EXPECT_NEAR(scaled[pair], expected, 1e-14 * expected);
  }
}

TEST(RopeAttentionFactor, GivenOrOfTheKind) {
  RopeTableSpec spec = TableOf(64, 150000, GptOss());
  spec.scaling.attention_factor = 0.75;
  EXPECT_EQ(AttentionFactorOf(spec), 0.75);
  spec.scaling.attention_factor.reset();
  spec.scaling.factor = 1;
  EXPECT_EQ(AttentionFactorOf(spec), 1.0);
  spec = TableOf(96, 1e4, LongRope(10));
  spec.scaling.factor = 1;
  EXPECT_EQ(AttentionFactorOf(spec), 1.0);
  EXPECT_EQ(AttentionFactorOf(TableOf(96, 1e4)), 1.0);
}

TEST(RopeFrequenciesRefusals, Dimensions) {
  for (const int64_t rotary_dim : {-2, 0, 7, 1026}) {
    EXPECT_EQ(Refusal(TableOf(rotary_dim, 1e4)),
              "rotary_dim: is " + std::to_string(rotary_dim) + ", must be even and from 2 to 1024");
  }
  EXPECT_EQ(Refusal(TableOf(64, 1)), "theta: is 1, must be finite and more than 1");
  EXPECT_EQ(Refusal(TableOf(64, std::numeric_limits<double>::quiet_NaN())),
            "theta: is nan, must be finite and more than 1");
  EXPECT_EQ(Refusal(TableOf(2, 1e4, {.kind = Kind::kNtk, .factor = 2})),
            "rotary_dim: is 2, must be at least 4 with scaling ntk");
  EXPECT_EQ(Refusal(TableOf(4, 1e4, {.kind = Kind::kNtk, .factor = 1e300})),
            "theta, scaling: make the frequency of pair 1 0, must be finite and more than 0");
  EXPECT_EQ(Refusal(TableOf(64, 1e4, {.kind = static_cast<Kind>(9)})),
            "scaling.kind: is 9, must be one of RopeScaling::Kind");
}

TEST(RopeFrequenciesRefusals, MembersThatTheKindDoesNotUse) {
  const auto unused = [](const char* member, const char* kind) {
    return std::string("scaling.") + member + ": is set, must keep its default with scaling " +
           kind + ", which does not use it";
  };
  EXPECT_EQ(Refusal(TableOf(64, 1e4, {.factor = 2})), unused("factor", "none"));
  EXPECT_EQ(Refusal(TableOf(64, 1e4, {.kind = Kind::kLinear, .original_max_positions = 1})),
            unused("original_max_positions", "linear"));
  EXPECT_EQ(Refusal(TableOf(64, 1e4, {.kind = Kind::kNtk, .sequence_length = 1})),
            unused("sequence_length", "ntk"));
  EXPECT_EQ(Refusal(TableOf(64, 1e4, {.kind = Kind::kDynamicNtk, .beta_fast = 1})),
            unused("beta_fast", "dynamic ntk"));
  EXPECT_EQ(Refusal(TableOf(64, 1e4, {.kind = Kind::kLlama3, .beta_slow = 2})),
            unused("beta_slow", "llama3"));
  EXPECT_EQ(Refusal(TableOf(64, 1e4, {.kind = Kind::kLongRope, .truncate = false})),
            unused("truncate", "longrope"));
  EXPECT_EQ(Refusal(TableOf(64, 1e4, {.mscale = 1})), unused("mscale", "none"));
  EXPECT_EQ(Refusal(TableOf(64, 1e4, {.mscale_all_dim = 1})), unused("mscale_all_dim", "none"));
  EXPECT_EQ(Refusal(TableOf(64, 1e4, {.attention_factor = 1.0})),
            unused("attention_factor", "none"));
  EXPECT_EQ(Refusal(TableOf(64, 1e4, {.kind = Kind::kYarn, .low_freq_factor = 2})),
            unused("low_freq_factor", "yarn"));
  EXPECT_EQ(Refusal(TableOf(64, 1e4, {.kind = Kind::kYarn, .high_freq_factor = 2})),
            unused("high_freq_factor", "yarn"));
  EXPECT_EQ(Refusal(TableOf(64, 1e4, {.kind = Kind::kYarn, .short_factor = {1}})),
            unused("short_factor", "yarn"));
  EXPECT_EQ(Refusal(TableOf(64, 1e4, {.kind = Kind::kYarn, .long_factor = {1}})),
            unused("long_factor", "yarn"));
}

TEST(RopeFrequenciesRefusals, ValuesOfTheScaling) {
  EXPECT_EQ(Refusal(TableOf(64, 1e4, {.kind = Kind::kLinear, .factor = 0.5})),
            "scaling.factor: is 0.5, must be finite and at least 1");
  EXPECT_EQ(Refusal(TableOf(64, 1e4, {.kind = Kind::kYarn, .factor = 2})),
            "scaling.original_max_positions: is 0, must be at least 1");
  RopeScaling scaling = LongRope(0);
  EXPECT_EQ(Refusal(TableOf(96, 1e4, scaling)),
            "scaling.sequence_length: is 0, must be at least 1");
  scaling.original_max_positions = 1;
  EXPECT_EQ(Refusal(TableOf(96, 1e4, scaling)),
            "scaling.original_max_positions: is 1, must be at least 2");
  scaling = LongRope(1);
  EXPECT_EQ(Refusal(TableOf(128, 1e4, scaling)),
            "scaling.short_factor: has 48 elements, must have 64, half of rotary_dim");
  scaling.long_factor[3] = 0;
  EXPECT_EQ(Refusal(TableOf(96, 1e4, scaling)),
            "scaling.long_factor[3]: is 0, must be finite and more than 0");
  scaling.attention_factor = -1;
  EXPECT_EQ(Refusal(TableOf(96, 1e4, scaling)),
            "scaling.attention_factor: is -1, must be finite and more than 0");
  scaling = Llama31(8);
  scaling.high_freq_factor = 1;
  EXPECT_EQ(Refusal(TableOf(64, 1e4, scaling)),
            "scaling.high_freq_factor: is 1, must be finite and more than 1, as "
            "scaling.low_freq_factor is");
  scaling.low_freq_factor = 0;
  EXPECT_EQ(Refusal(TableOf(64, 1e4, scaling)),
            "scaling.low_freq_factor: is 0, must be finite and more than 0");
}

TEST(RopeFrequenciesRefusals, ValuesOfYarn) {
  RopeScaling scaling = GptOss();
  scaling.beta_fast = 0.5;
  EXPECT_EQ(Refusal(TableOf(64, 1e4, scaling)),
            "scaling.beta_fast: is 0.5, must be finite and at least 1, as scaling.beta_slow is");
  scaling = GptOss();
  scaling.mscale = 1;
  EXPECT_EQ(Refusal(TableOf(64, 1e4, scaling)),
            "scaling.mscale, scaling.mscale_all_dim: are 1 and 0, must be finite and both more "
            "than 0, or both 0");
  scaling = {.kind = Kind::kYarn, .factor = 2, .original_max_positions = 1};
  EXPECT_EQ(Refusal(TableOf(64, 1e4, scaling)),
            "scaling.original_max_positions: is 1, which has yarn's ramp from pair 0 to -6; these "
            "must ascend");
}

}  // namespace
}  // namespace qkvfuse::testing
