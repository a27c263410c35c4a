// A prefill of int32 rows, as an int8 matrix product leaves them, on the caller's own threads: one
// Check, then RunRange for a range of tokens on each thread.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <thread>
#include <vector>

#include "qkvfuse/qkvfuse.hpp"
#include "rope_table.h"

namespace {

constexpr qkvfuse::HeadCounts kHeads{.q = 16, .k = 4, .v = 4};
constexpr int64_t kHeadDim = 128;
constexpr int64_t kTokens = 50;
constexpr int64_t kThreads = 3;
constexpr int64_t kBlocks = 8;
constexpr int64_t kBlockSize = 16;
constexpr float kScale = 1.0f / 16;

/// The data of the call. All x are 100 and all weight scales 1/50, so that a dequantised element of
/// token t is 2 * token_scale[t].
struct Prefill {
  std::vector<int32_t> x = std::vector<int32_t>(kTokens * kHeads.total() * kHeadDim, 100);
  std::vector<float> weight_scale = std::vector<float>(kHeads.total() * kHeadDim, 1.0f / 50);
  std::vector<float> token_scale;  // [tokens]
  std::vector<int32_t> slots;      // [tokens]
  example::RopeTable rope;
  std::vector<float> scale = std::vector<float>(kHeads.k * kHeadDim, kScale);  // of k and v
  std::vector<uint16_t> q_out = std::vector<uint16_t>(kTokens * kHeads.q * kHeadDim);
  std::vector<int8_t> k_cache = std::vector<int8_t>(kBlocks * kBlockSize * kHeads.k * kHeadDim);
  std::vector<int8_t> v_cache = k_cache;
};

Prefill MakePrefill() {
  Prefill prefill;
  std::vector<int64_t> positions;
  for (int64_t t = 0; t < kTokens; ++t) {
    positions.push_back(t);
    prefill.token_scale.push_back(0.25f + 0.0625f * static_cast<float>(t));
    // Pages 7, 6, 5, 4: the sequence fills its pages in the order of its page table.
    const int64_t slot = (7 - t / kBlockSize) * kBlockSize + t % kBlockSize;
    prefill.slots.push_back(static_cast<int32_t>(slot));
  }
  prefill.rope = example::MakeRopeTable(positions, kHeadDim);
  return prefill;
}

qkvfuse::DequantRopeQuantKvcacheSpec MakeSpec() {
  qkvfuse::DequantRopeQuantKvcacheSpec spec;
  spec.x_dtype = qkvfuse::DType::kInt32;
  spec.dtype = qkvfuse::DType::kBFloat16;
  spec.heads = kHeads;
  spec.head_dim = kHeadDim;
  spec.k_cache.layout = qkvfuse::PagedNhd(kBlocks, kBlockSize, kHeads.k, kHeadDim);
  spec.v_cache.layout = spec.k_cache.layout;
  spec.slots.mode = qkvfuse::SlotMode::kSlotPerToken;
  spec.slots.dtype = qkvfuse::DType::kInt32;
  spec.has_token_scale = true;
  return spec;
}

qkvfuse::Tensors Bind(Prefill& prefill) {
  qkvfuse::Tensors tensors;
  tensors.x = prefill.x.data();
  tensors.cos = prefill.rope.cos.data();
  tensors.sin = prefill.rope.sin.data();
  tensors.slots = prefill.slots.data();
  tensors.k_scale = prefill.scale.data();
  tensors.v_scale = prefill.scale.data();
  tensors.weight_scale = prefill.weight_scale.data();
  tensors.token_scale = prefill.token_scale.data();
  tensors.q_out = prefill.q_out.data();
  tensors.k_cache = prefill.k_cache.data();
  tensors.v_cache = prefill.v_cache.data();
  return tensors;
}

/// Any split into ranges gives the same bytes, so the ranges may follow the pool's own habits.
void RunOnOwnThreads(const qkvfuse::Plan& plan, const qkvfuse::Tensors& tensors,
                     qkvfuse::Workspace workspace) {
  std::vector<std::thread> threads;
  for (int64_t i = 0; i < kThreads; ++i) {
    const int64_t begin = kTokens * i / kThreads;
    const int64_t end = kTokens * (i + 1) / kThreads;
    threads.emplace_back([&plan, &tensors, begin, end, workspace] {
      plan.RunRange(tensors, kTokens, begin, end, workspace);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

/// Compares the first element of q, k and v of every token with the formulas, in double.
bool OutputsAreRight(const Prefill& prefill) {
  for (size_t t = 0; t < static_cast<size_t>(kTokens); ++t) {
    const double x = 2.0 * static_cast<double>(prefill.token_scale[t]);
    const double cos = example::FromBFloat16(prefill.rope.cos[t * kHeadDim]);
    const double sin = example::FromBFloat16(prefill.rope.sin[t * kHeadDim]);
    const double rotated = x * cos - x * sin;

    const double q = example::FromBFloat16(prefill.q_out[t * kHeads.q * kHeadDim]);
    const size_t row = static_cast<size_t>(prefill.slots[t]) * kHeads.k * kHeadDim;
    const int k_code = prefill.k_cache[row];
    const int v_code = prefill.v_cache[row];
    // bf16 keeps 8 bits; codes round by half a step, and saturate. The rest is for fp32.
    const double tolerance = std::ldexp(std::abs(rotated), -8) + 1e-6 * x;
    const bool right = std::abs(q - rotated) <= tolerance &&
                       std::abs(k_code - std::clamp(rotated / kScale, -128.0, 127.0)) <= 0.5001 &&
                       std::abs(v_code - std::clamp(x / kScale, -128.0, 127.0)) <= 0.5001;
    if (t % 10 == 0 || !right) {
      std::printf("token %zu: q %.4f (exact %.4f), k code %d, v code %d\n", t, q, rotated, k_code,
                  v_code);
    }
    if (!right) return false;
  }
  return true;
}

}  // namespace

int main() {
  Prefill prefill = MakePrefill();
  const qkvfuse::Result<qkvfuse::Plan> plan = qkvfuse::MakePlan(MakeSpec());
  if (!plan.ok()) {
    std::fprintf(stderr, "%s\n", plan.status().message().c_str());
    return 1;
  }
  std::vector<std::byte> memory(plan->WorkspaceBytes(kTokens));
  const qkvfuse::Workspace workspace{memory.data(), memory.size()};
  const qkvfuse::Tensors tensors = Bind(prefill);
  // Check refuses what RunRange may not see, and prepares the workspace for it.
  const qkvfuse::Status status = plan->Check(tensors, kTokens, workspace);
  if (!status.ok()) {
    std::fprintf(stderr, "%s\n", status.message().c_str());
    return 1;
  }
  RunOnOwnThreads(*plan, tensors, workspace);
  return OutputsAreRight(prefill) ? 0 : 1;
}
