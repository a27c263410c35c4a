// The frequencies of rotary embeddings and their scalings, from what models publish. All in double.
// Formulas: RoFormer (arXiv 2104.09864), YaRN (2309.00071), LongRoPE (2402.13753), Llama 3.1's
// reference code, and for what these leave open the definitions that Hugging Face transformers has
// for the same names.
#include "models/rope_frequencies.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/message.h"

namespace qkvfuse {
namespace {

using Kind = RopeScaling::Kind;

/// theta^(-2j/R) for j = 0 .. R/2-1.
std::vector<double> Plain(double theta, int64_t rotary_dim) {
  std::vector<double> frequencies;
  for (int64_t channel = 0; channel < rotary_dim; channel += 2) {
    frequencies.push_back(
        std::pow(theta, -static_cast<double>(channel) / static_cast<double>(rotary_dim)));
  }
  return frequencies;
}

/// The theta that stretches the longest wave by `stretch` and leaves the shortest as it is.
double NtkTheta(double theta, double stretch, int64_t rotary_dim) {
  const auto dim = static_cast<double>(rotary_dim);
  return theta * std::pow(stretch, dim / (dim - 2));
}

double DynamicStretch(const RopeScaling& scaling) {
  const auto original = static_cast<double>(scaling.original_max_positions);
  const double length = std::max(original, static_cast<double>(scaling.sequence_length));
  return scaling.factor * length / original - (scaling.factor - 1);
}

/// YaRN: the pair, as a fraction, that makes `turns` turns within the original context.
double PairOfTurns(double turns, const RopeTableSpec& spec) {
  const auto original = static_cast<double>(spec.scaling.original_max_positions);
  return static_cast<double>(spec.rotary_dim) *
         std::log(original / (turns * 2 * std::numbers::pi)) / (2 * std::log(spec.theta));
}

std::vector<double> Yarn(const RopeTableSpec& spec) {
  std::vector<double> frequencies = Plain(spec.theta, spec.rotary_dim);
  const YarnRamp ramp = RampOf(spec);
  // A ramp of no width is a step.
  const double width = ramp.last == ramp.first ? 0.001 : ramp.last - ramp.first;
  for (size_t pair = 0; pair < frequencies.size(); ++pair) {
    const double scaled = std::clamp((static_cast<double>(pair) - ramp.first) / width, 0.0, 1.0);
    frequencies[pair] *= 1 - scaled + scaled / spec.scaling.factor;
  }
  return frequencies;
}

/// Waves that turn less than low_freq_factor times within the original context are stretched by
/// factor, those that turn more than high_freq_factor times are not; between, by how near they are.
std::vector<double> Llama3(const RopeTableSpec& spec) {
  const RopeScaling& scaling = spec.scaling;
  std::vector<double> frequencies = Plain(spec.theta, spec.rotary_dim);
  for (double& frequency : frequencies) {
    const double turns =
        static_cast<double>(scaling.original_max_positions) * frequency / (2 * std::numbers::pi);
    const double kept = std::clamp(
        (turns - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor),
        0.0, 1.0);
    frequency *= kept + (1 - kept) / scaling.factor;
  }
  return frequencies;
}

std::vector<double> DividedBy(std::vector<double> frequencies, const std::vector<double>& by) {
  for (size_t pair = 0; pair < frequencies.size(); ++pair) frequencies[pair] /= by[pair];
  return frequencies;
}

std::vector<double> Frequencies(const RopeTableSpec& spec) {
  const RopeScaling& scaling = spec.scaling;
  switch (scaling.kind) {
    case Kind::kNone:
      break;
    case Kind::kLinear: {
      std::vector<double> frequencies = Plain(spec.theta, spec.rotary_dim);
      for (double& frequency : frequencies) frequency /= scaling.factor;
      return frequencies;
    }
    case Kind::kNtk:
      return Plain(NtkTheta(spec.theta, scaling.factor, spec.rotary_dim), spec.rotary_dim);
    case Kind::kDynamicNtk:
      return Plain(NtkTheta(spec.theta, DynamicStretch(scaling), spec.rotary_dim), spec.rotary_dim);
    case Kind::kYarn:
      return Yarn(spec);
    case Kind::kLlama3:
      return Llama3(spec);
    case Kind::kLongRope:
      return DividedBy(Plain(spec.theta, spec.rotary_dim),
                       scaling.sequence_length > scaling.original_max_positions
                           ? scaling.long_factor
                           : scaling.short_factor);
  }
  return Plain(spec.theta, spec.rotary_dim);
}

double AttentionFactor(const RopeScaling& scaling) {
  if (scaling.attention_factor) return *scaling.attention_factor;
  if (scaling.kind == Kind::kYarn) {
    const auto temperature = [&](double mscale) {
      return 0.1 * mscale * std::log(scaling.factor) + 1;
    };
    if (scaling.mscale == 0) return temperature(1);
    return temperature(scaling.mscale) / temperature(scaling.mscale_all_dim);
  }
  if (scaling.kind == Kind::kLongRope) {
    return std::sqrt(1 + std::log(scaling.factor) /
                             std::log(static_cast<double>(scaling.original_max_positions)));
  }
  return 1;
}

}  // namespace

YarnRamp RampOf(const RopeTableSpec& spec) {
  double first = PairOfTurns(spec.scaling.beta_fast, spec);
  double last = PairOfTurns(spec.scaling.beta_slow, spec);
  if (spec.scaling.truncate) {
    first = std::floor(first);
    last = std::ceil(last);
  }
  // The upper limit counts channels although the ramp counts pairs: so have all implementations.
  return {std::max(first, 0.0), std::min(last, static_cast<double>(spec.rotary_dim - 1))};
}

Result<RopeWaves> WavesOf(const RopeTableSpec& spec) {
  if (Status status = CheckRopeTable(spec); !status.ok()) return status;
  RopeWaves waves{Frequencies(spec), AttentionFactor(spec.scaling)};
  for (size_t pair = 0; pair < waves.frequencies.size(); ++pair) {
    const double frequency = waves.frequencies[pair];
    if (!std::isfinite(frequency) || frequency <= 0) {
      return Invalid("theta, scaling: make the frequency of pair ", pair, " ", frequency,
                     ", must be finite and more than 0");
    }
  }
  return waves;
}

Result<std::vector<double>> RopeFrequencies(const RopeTableSpec& spec) noexcept try {
  const ScopedFpEnvironment environment;
  Result<RopeWaves> waves = WavesOf(spec);
  if (!waves.ok()) return waves.status();
  return std::move(waves->frequencies);
} catch (...) {
  return Status(StatusCode::kOutOfMemory, {});
}

Result<double> RopeAttentionFactor(const RopeTableSpec& spec) noexcept try {
  const ScopedFpEnvironment environment;
  const Result<RopeWaves> waves = WavesOf(spec);
  if (!waves.ok()) return waves.status();
  return waves->attention_factor;
} catch (...) {
  return Status(StatusCode::kOutOfMemory, {});
}

}  // namespace qkvfuse
