// One decode step of a Qwen3-8B layer: four sequences, one token each. q and k are normalised and
// rotated, and k and v are quantised into a paged int8 cache in the PA_NZ layout.
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <vector>

#include "qkvfuse/qkvfuse.hpp"
#include "rope_table.h"

namespace {

constexpr qkvfuse::HeadCounts kHeads{.q = 32, .k = 8, .v = 8};
constexpr int64_t kHeadDim = 128;
constexpr int64_t kBlocks = 8;
constexpr int64_t kBlockSize = 128;
constexpr float kScale = 1.0f / 32;
constexpr double kEpsilon = 1e-6;

/// The data of the step. Every head of qkv is 1 in its first half and 2 in its second.
struct Step {
  std::vector<int64_t> positions{5, 130, 17, 64};
  std::vector<int64_t> slots{5, 258, 401, 900};  // block * kBlockSize + row, from the page tables
  example::RopeTable rope = example::MakeRopeTable(positions, kHeadDim);
  std::vector<uint16_t> gamma = std::vector<uint16_t>(kHeadDim, example::ToBFloat16(1.0f));
  std::vector<uint16_t> qkv;    // [tokens, Nq+Nk+Nv, head_dim] bf16
  std::vector<uint16_t> q_out;  // [tokens, Nq, head_dim] bf16
  std::vector<float> scale = std::vector<float>(kHeads.k * kHeadDim, kScale);  // of k and v
  std::vector<int8_t> k_cache = std::vector<int8_t>(kBlocks * kBlockSize * kHeads.k * kHeadDim);
  std::vector<int8_t> v_cache = k_cache;

  [[nodiscard]] int64_t tokens() const { return static_cast<int64_t>(slots.size()); }
};

Step MakeStep() {
  Step step;
  for (int64_t i = 0; i < step.tokens() * kHeads.total() * kHeadDim; ++i) {
    step.qkv.push_back(example::ToBFloat16(i % kHeadDim < kHeadDim / 2 ? 1.0f : 2.0f));
  }
  step.q_out.resize(static_cast<size_t>(step.tokens() * kHeads.q * kHeadDim));
  return step;
}

qkvfuse::QkvRmsNormRopeCacheSpec MakeSpec() {
  qkvfuse::CacheSpec cache;
  cache.dtype = qkvfuse::DType::kInt8;
  cache.layout = qkvfuse::PaNz(kBlocks, kBlockSize, kHeads.k, kHeadDim, /*chunk=*/32);
  qkvfuse::QkvRmsNormRopeCacheSpec spec;
  spec.dtype = qkvfuse::DType::kBFloat16;
  spec.heads = kHeads;
  spec.head_dim = kHeadDim;
  spec.epsilon = kEpsilon;
  spec.k_cache = cache;
  spec.v_cache = cache;
  return spec;
}

qkvfuse::Tensors Bind(Step& step) {
  qkvfuse::Tensors tensors;
  tensors.x = step.qkv.data();
  tensors.q_gamma = step.gamma.data();
  tensors.k_gamma = step.gamma.data();
  tensors.cos = step.rope.cos.data();
  tensors.sin = step.rope.sin.data();
  tensors.slots = step.slots.data();
  tensors.k_scale = step.scale.data();
  tensors.v_scale = step.scale.data();
  tensors.q_out = step.q_out.data();
  tensors.k_cache = step.k_cache.data();
  tensors.v_cache = step.v_cache.data();
  return tensors;
}

/// Where a PA_NZ cache keeps an element: the formula of qkvfuse::CacheLayout without row chunks.
size_t Address(const qkvfuse::CacheLayout& layout, int64_t slot, int64_t head, int64_t channel) {
  const int64_t block = slot / layout.block_size;
  const int64_t row = slot % layout.block_size;
  return static_cast<size_t>(block * layout.block_stride + head * layout.head_stride +
                             row * layout.row_stride +
                             channel / layout.channel_chunk * layout.channel_chunk_stride +
                             channel % layout.channel_chunk * layout.channel_stride);
}

/// Compares channel 0 of the last head of every token with the formulas, in double.
bool CachesAreRight(const Step& step, const qkvfuse::CacheLayout& layout) {
  const double inverse_rms = 1.0 / std::sqrt((1.0 + 4.0) / 2.0 + kEpsilon);
  for (size_t t = 0; t < step.slots.size(); ++t) {
    const double cos = example::FromBFloat16(step.rope.cos[t * kHeadDim]);
    const double sin = example::FromBFloat16(step.rope.sin[t * kHeadDim]);
    const double k = (1.0 * cos - 2.0 * sin) * inverse_rms / kScale;
    const double v = 1.0 / kScale;
    const size_t address = Address(layout, step.slots[t], kHeads.k - 1, 0);
    std::printf("token %zu, slot %d: k code %d (exact %.3f), v code %d (exact %.3f)\n", t,
                static_cast<int>(step.slots[t]), step.k_cache[address], k, step.v_cache[address],
                v);
    // Half a step of rounding, and a little for the fp32 arithmetic near a tie.
    constexpr double kTolerance = 0.5001;
    if (std::abs(step.k_cache[address] - k) > kTolerance) return false;
    if (std::abs(step.v_cache[address] - v) > kTolerance) return false;
  }
  return true;
}

}  // namespace

int main() {
  Step step = MakeStep();
  const qkvfuse::QkvRmsNormRopeCacheSpec spec = MakeSpec();

  // Once per layer: describe, check, choose kernels.
  const qkvfuse::Result<qkvfuse::Plan> plan = qkvfuse::MakePlan(spec);
  if (!plan.ok()) {
    std::fprintf(stderr, "%s\n", plan.status().message().c_str());
    return 1;
  }
  // Every step: pointers only. The workspace may be kept and used again.
  std::vector<std::byte> workspace(plan->WorkspaceBytes(step.tokens()));
  const qkvfuse::Status status =
      plan->Run(Bind(step), step.tokens(), {workspace.data(), workspace.size()});
  if (!status.ok()) {
    std::fprintf(stderr, "%s\n", status.message().c_str());
    return 1;
  }
  return CachesAreRight(step, spec.k_cache.layout) ? 0 : 1;
}
