// Synthetic activations, tables and scales; everything follows from a seed.
#include "demo/activations.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <numbers>
#include <numeric>
#include <random>
#include <stdexcept>
#include <vector>

#include "support/parallel.h"

namespace qkvfuse::cli {
namespace {

using cases::TensorId;

constexpr double kRopeTheta = 1e6;
constexpr int64_t kChunkTokens = 32;

// Streams of random numbers that do not depend on the order of evaluation.
enum Stream : uint64_t { kActivations, kChannels, kTokens, kGamma, kBias, kSlots, kPositions };

uint64_t Mix(uint64_t x) {
  x += 0x9E3779B97F4A7C15u;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

struct NormalPair {
  float first;
  float second;
};

// Two independent standard normal numbers (Box and Muller).
NormalPair Normals(uint64_t seed, Stream stream, int64_t index) {
  const uint64_t bits = Mix(Mix(seed * 16 + stream) + static_cast<uint64_t>(index));
  const float u = (static_cast<float>(bits >> 40) + 0.5f) * 0x1p-24f;
  const float angle =
      2 * std::numbers::pi_v<float> * static_cast<float>(bits & 0xFFFFFF) * 0x1p-24f;
  const float radius = std::sqrt(-2 * std::log(u));
  return {radius * std::cos(angle), radius * std::sin(angle)};
}

float Normal(uint64_t seed, Stream stream, int64_t index) {
  return Normals(seed, stream, index).first;
}

// Stretches the tails of a normal number: about 5 times at 4 sigma.
float HeavyTail(float normal) { return normal * std::exp(0.1f * normal * normal); }

// One channel in 64 is an outlier, 8 to 30 times as loud as the others.
std::vector<float> ChannelScales(int64_t channels, uint64_t seed) {
  std::vector<float> scales(static_cast<size_t>(channels));
  for (int64_t c = 0; c < channels; ++c) {
    const NormalPair normals = Normals(seed, kChannels, c);
    float scale = std::exp(0.4f * normals.first);
    if (Mix(seed + 977 * static_cast<uint64_t>(c)) % 64 == 0) {
      scale *= std::clamp(15 * std::exp(0.4f * normals.second), 8.0f, 30.0f);
    }
    scales[static_cast<size_t>(c)] = scale;
  }
  return scales;
}

float TokenScale(uint64_t seed, int64_t token) {
  return std::exp(0.3f * Normal(seed, kTokens, token));
}

// Nearest, ties to even, for finite numbers.
uint16_t BFloat16(double value) {
  const auto bits = std::bit_cast<uint32_t>(static_cast<float>(value));
  return static_cast<uint16_t>((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
}

// The inputs of a problem by name; all are packed.
class Inputs {
 public:
  explicit Inputs(const cases::Problem& problem) : views_(problem.Inputs()) {}

  template <typename T>
  [[nodiscard]] T* Data(TensorId id) const {
    for (const cases::NamedView& input : views_) {
      if (input.id == id) return static_cast<T*>(input.view.data);
    }
    return nullptr;
  }

 private:
  std::vector<cases::NamedView> views_;
};

// int32 activations are what an int8 GEMM accumulates: activation / (weight scale * token scale).
struct Dequantisation {
  std::vector<float> weight_scale;  // [channels]
  std::vector<float> token_scale;   // [tokens]
};

Dequantisation FillDequantisation(const Inputs& inputs, const std::vector<float>& channel_scales,
                                  int64_t tokens, uint64_t seed) {
  Dequantisation scales;
  for (const float scale : channel_scales) scales.weight_scale.push_back(scale * 3e-4f);
  for (int64_t t = 0; t < tokens; ++t) {
    scales.token_scale.push_back(0.02f * TokenScale(seed, t));
  }
  std::copy(scales.weight_scale.begin(), scales.weight_scale.end(),
            inputs.Data<float>(TensorId::kWeightScale));
  std::copy(scales.token_scale.begin(), scales.token_scale.end(),
            inputs.Data<float>(TensorId::kTokenScale));
  auto* bias = inputs.Data<uint16_t>(TensorId::kBias);
  for (size_t c = 0; c < channel_scales.size(); ++c) {
    bias[c] = BFloat16(0.3 * channel_scales[c] * Normal(seed, kBias, static_cast<int64_t>(c)));
  }
  return scales;
}

void FillX(const cases::Case& c, const Inputs& inputs, uint64_t seed, int threads) {
  const int64_t channels = c.heads.total() * c.head_dim;
  const std::vector<float> channel_scales = ChannelScales(channels, seed);
  Dequantisation scales;
  if (!c.is_qnr()) {
    scales = FillDequantisation(inputs, channel_scales, c.tokens.total(), seed);
  }
  auto* x16 = inputs.Data<uint16_t>(TensorId::kX);
  auto* x32 = inputs.Data<int32_t>(TensorId::kX);
  const auto store = [&](int64_t token, int64_t channel, float normal) {
    const auto column = static_cast<size_t>(channel);
    const float value = HeavyTail(normal) * channel_scales[column] * TokenScale(seed, token);
    if (c.is_qnr()) {
      x16[token * channels + channel] = BFloat16(value);
    } else {
      const float step =
          scales.weight_scale[column] * scales.token_scale[static_cast<size_t>(token)];
      x32[token * channels + channel] = static_cast<int32_t>(std::lrint(value / step));
    }
  };
  ParallelChunks(c.tokens.total(), kChunkTokens, threads, [&](int64_t begin, int64_t end) {
    for (int64_t token = begin; token < end; ++token) {
      for (int64_t channel = 0; channel < channels; channel += 2) {
        const NormalPair normals = Normals(seed, kActivations, (token * channels + channel) / 2);
        store(token, channel, normals.first);
        store(token, channel + 1, normals.second);
      }
    }
  });
}

// The positions of the tokens: contexts of different length when decoding, a prompt otherwise.
std::vector<int64_t> Positions(TokenCount tokens, uint64_t seed) {
  std::vector<int64_t> positions(static_cast<size_t>(tokens.total()));
  std::iota(positions.begin(), positions.end(), 0);
  if (tokens.batch == 1) return positions;
  for (int64_t& position : positions) {
    position = 100 + static_cast<int64_t>(
                         Mix(Mix(seed + kPositions) + static_cast<uint64_t>(position)) % 32000);
  }
  return positions;
}

void FillRope(const Inputs& inputs, const std::vector<int64_t>& positions, int64_t head_dim) {
  auto* cos = inputs.Data<uint16_t>(TensorId::kCos);
  auto* sin = inputs.Data<uint16_t>(TensorId::kSin);
  const int64_t half = head_dim / 2;
  for (size_t t = 0; t < positions.size(); ++t) {
    for (int64_t j = 0; j < half; ++j) {
      const double frequency =
          std::pow(kRopeTheta, -2.0 * static_cast<double>(j) / static_cast<double>(head_dim));
      const double angle = static_cast<double>(positions[t]) * frequency;
      const int64_t row = static_cast<int64_t>(t) * head_dim;
      cos[row + j] = cos[row + j + half] = BFloat16(std::cos(angle));
      sin[row + j] = sin[row + j + half] = BFloat16(std::sin(angle));
    }
  }
}

// Pages come from a shuffled pool. A decoding sequence appends to the last of its own pages; a
// prompt fills page after page.
std::vector<int64_t> Slots(const cases::Case& c, const std::vector<int64_t>& positions,
                           uint64_t seed) {
  std::vector<int64_t> pages(static_cast<size_t>(cases::BlockCount(c)));
  std::iota(pages.begin(), pages.end(), 0);
  for (size_t i = pages.size(); i > 1; --i) {
    std::swap(pages[i - 1], pages[Mix(Mix(seed + kSlots) + i) % i]);
  }
  std::vector<int64_t> slots;
  for (size_t t = 0; t < positions.size(); ++t) {
    const size_t page = c.tokens.batch > 1 ? t : t / static_cast<size_t>(c.block_size);
    slots.push_back(pages.at(page) * c.block_size + positions[t] % c.block_size);
  }
  return slots;
}

void FillSlots(const Inputs& inputs, const std::vector<int64_t>& slots, DType dtype) {
  if (dtype == DType::kInt64) {
    std::copy(slots.begin(), slots.end(), inputs.Data<int64_t>(TensorId::kSlots));
    return;
  }
  std::transform(slots.begin(), slots.end(), inputs.Data<int32_t>(TensorId::kSlots),
                 [](int64_t slot) { return static_cast<int32_t>(slot); });
}

void FillGammas(const Inputs& inputs, int64_t head_dim, uint64_t seed) {
  for (const TensorId id : {TensorId::kQGamma, TensorId::kKGamma}) {
    auto* gamma = inputs.Data<uint16_t>(id);
    const int64_t first = static_cast<int64_t>(id) * head_dim;
    for (int64_t i = 0; i < head_dim; ++i) {
      gamma[i] = BFloat16(std::exp(0.3 * Normal(seed, kGamma, first + i)));
    }
  }
}

// All but the slots, which lie in another cache.
void CopyInputs(const cases::Problem& from, const cases::Problem& to) {
  const std::vector<cases::NamedView> sources = from.Inputs();
  const std::vector<cases::NamedView> targets = to.Inputs();
  for (size_t i = 0; i < sources.size(); ++i) {
    const TensorView& view = sources[i].view;
    if (sources[i].id == TensorId::kSlots) continue;
    std::memcpy(targets.at(i).view.data, view.data,
                static_cast<size_t>(view.shape.ElementCount() * SizeOf(view.dtype)));
  }
}

void Require(const Status& status) {
  if (!status.ok()) throw std::runtime_error(status.message());
}

double FromBFloat16(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }

// [tokens, channels] bf16 -> the largest magnitude of each channel / 127.
void ScalesFromDense(const uint16_t* dense, int64_t tokens, int64_t channels, float* scales) {
  std::vector<double> largest(static_cast<size_t>(channels));
  for (int64_t i = 0; i < tokens * channels; ++i) {
    double& channel = largest[static_cast<size_t>(i % channels)];
    channel = std::max(channel, std::abs(FromBFloat16(dense[i])));
  }
  for (int64_t c = 0; c < channels; ++c) {
    scales[c] = static_cast<float>(std::max(largest[static_cast<size_t>(c)], 1e-6) / 127);
  }
}

const uint16_t* OutputData(const cases::Problem& problem, TensorId id) {
  for (const cases::NamedView& output : problem.Outputs()) {
    if (output.id == id) return static_cast<const uint16_t*>(output.view.data);
  }
  throw std::runtime_error("the calibration run has no dense k and v");
}

}  // namespace

void FillLikeAModel(cases::Problem& problem, uint64_t seed, int threads) {
  const cases::Case& c = problem.description();
  const Inputs inputs(problem);
  FillX(c, inputs, seed, threads);
  const std::vector<int64_t> positions = Positions(c.tokens, seed);
  FillRope(inputs, positions, c.head_dim);
  FillSlots(inputs, Slots(c, positions, seed), c.slot_dtype);
  if (c.is_qnr()) FillGammas(inputs, c.head_dim, seed);
}

void CalibrateScales(cases::Problem& problem) {
  // The same call with dense k and v, as an engine calibrates: their largest magnitudes count.
  cases::Case c = problem.description();
  if (c.k_cache.dtype != DType::kInt8) return;
  c.dense_kv = true;
  c.blocks = 0;
  const auto calibration = cases::Problem::Make(c);
  if (!calibration.ok()) throw std::runtime_error(calibration.status().message());
  cases::Problem& source = **calibration;
  CopyInputs(problem, source);
  const Result<Plan> plan = source.MakePlan();
  if (!plan.ok()) throw std::runtime_error(plan.status().message());
  Require(plan->Run(source.tensors(), source.tokens(), source.run_options()));

  const Inputs inputs(problem);
  const int64_t channels = c.heads.k * c.head_dim;
  ScalesFromDense(OutputData(source, TensorId::kKOut), c.tokens.total(), channels,
                  inputs.Data<float>(TensorId::kKScale));
  ScalesFromDense(OutputData(source, TensorId::kVOut), c.tokens.total(), channels,
                  inputs.Data<float>(TensorId::kVScale));
}

}  // namespace qkvfuse::cli
