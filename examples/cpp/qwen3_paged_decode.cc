// One decode step of a Qwen3-8B layer into a vLLM-style paged int8 cache: the Spec from the model's
// config.json, a table of cos and sin by position, K in x-split and V in transposed blocks.
#include <cstdio>
#include <vector>

#include "qkvfuse/qkvfuse.hpp"

namespace {

constexpr const char* kConfig = R"({"model_type": "qwen3", "num_hidden_layers": 36,
  "hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128,
  "rms_norm_eps": 1e-6, "rope_theta": 1000000, "max_position_embeddings": 40960,
  "attention_bias": false, "torch_dtype": "bfloat16"})";
constexpr int64_t kBlocks = 64, kBlockSize = 16, kX = 16;  // x: 16 bytes of int8
constexpr uint16_t kOne = 0x3F80;                          // 1 in bf16

qkvfuse::CacheSpec Int8Cache(const qkvfuse::CacheLayout& layout) {
  qkvfuse::CacheSpec cache;
  cache.dtype = qkvfuse::DType::kInt8;
  cache.granularity = qkvfuse::ScaleGranularity::kHead;
  cache.layout = layout;
  return cache;
}

bool Ok(const qkvfuse::Status& status) {
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.message().c_str());
  return status.ok();
}

}  // namespace

int main() {
  // Once per model: what its layers do, and their table.
  auto model = qkvfuse::SpecFromConfig(kConfig);
  if (!Ok(model.status())) return 1;
  qkvfuse::FusedQkvSpec& spec = model->spec;
  const auto [q, k, v] = spec.heads;
  const int64_t dim = spec.head_dim;
  spec.rope.max_positions = model->rope_tables[0].max_positions = 4096;
  std::vector<float> table(static_cast<size_t>(spec.rope.max_positions * dim));
  if (!Ok(qkvfuse::FillRopeTable(model->rope_tables[0], spec.rope, table.data(), nullptr)))
    return 1;

  // Once per engine: caches and how tokens find their rows.
  spec.k_cache = Int8Cache(qkvfuse::XSplitK(kBlocks, kBlockSize, k, dim, kX));
  spec.v_cache = Int8Cache(qkvfuse::Transposed(kBlocks, kBlockSize, v, dim));
  const auto plan = qkvfuse::MakePlan(spec);
  if (!Ok(plan.status())) return 1;
  std::vector<int8_t> k_cache(static_cast<size_t>(kBlocks * kBlockSize * k * dim));
  std::vector<int8_t> v_cache(k_cache.size());
  const std::vector<float> scale(static_cast<size_t>(k), 1.0f / 32);

  // Every step: pointers. Here three sequences, one token each, and a row of padding.
  const std::vector<int64_t> positions{5, 130, 17, 0}, slots{5, 258, 401, -1};
  const auto tokens = static_cast<int64_t>(slots.size());
  const std::vector<uint16_t> qkv(static_cast<size_t>(tokens * (q + k + v) * dim), kOne);
  const std::vector<uint16_t> gamma(static_cast<size_t>(dim), kOne);
  std::vector<uint16_t> q_out(static_cast<size_t>(tokens * q * dim));
  qkvfuse::Tensors t;
  t.x = qkv.data();
  t.q_gamma = t.k_gamma = gamma.data();
  t.cos = table.data();
  t.positions = positions.data();
  t.slots = slots.data();
  t.k_scale = t.v_scale = scale.data();
  t.q_out = q_out.data();
  t.k_cache = k_cache.data();
  t.v_cache = v_cache.data();
  if (!Ok(plan->Run(t, tokens))) return 1;

  std::printf("%s", plan->Describe(tokens).c_str());
  // v is 1 everywhere, and 1 / (1/32) = 32.
  return v_cache[static_cast<size_t>(spec.v_cache->layout.AddressOf(258, 7, 100))] == 32 ? 0 : 1;
}
