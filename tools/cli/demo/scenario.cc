// The rows of the demo's table.
#include "demo/scenario.h"

#include <fmt/core.h>

namespace qkvfuse::cli {
namespace {

using cases::Case;
using cases::Layout;
using cases::Operator;

struct Model {
  const char* name;
  HeadCounts heads;
  int64_t head_dim = 128;
  cases::DataKind data = cases::DataKind::kHeavyTailed;
};

constexpr Model kModels[] = {
    {"Qwen3-8B", {32, 8, 8}},
    {"Qwen3-32B", {64, 8, 8}},
    {"Qwen3-235B-A22B", {64, 4, 4}},
    {"Gemma 3 270M, recorded", {4, 1, 1}, 256, cases::DataKind::kGemma3},
};
constexpr int64_t kBlockSize = 128;
// A pool of pages that is larger than what one batch fills: the rest has to stay untouched.
constexpr int64_t kBlocks = 128;

struct Batch {
  const char* name;
  TokenCount tokens;
};

struct Variant {
  const char* operator_name;
  const char* cache;
  Operator op;
  DType cache_dtype;
  Layout layout;
};

constexpr Variant kVariants[] = {
    {"QNR", "int8 PA_NZ", Operator::kQkvRmsNormRopeCache, DType::kInt8, Layout::kPaNz},
    {"QNR", "bf16 PA_NZ", Operator::kQkvRmsNormRopeCache, DType::kBFloat16, Layout::kPaNz},
    {"DRQ", "int8 paged", Operator::kDequantRopeQuantKvcache, DType::kInt8, Layout::kPaged},
};

Case MakeCase(const Model& model, const Batch& batch, const Variant& variant) {
  Case c;
  c.op = variant.op;
  c.dtype = DType::kBFloat16;
  c.x_dtype = DType::kBFloat16;
  c.heads = model.heads;
  c.head_dim = model.head_dim;
  c.data = model.data;
  c.tokens = batch.tokens;
  c.k_cache.dtype = c.v_cache.dtype = variant.cache_dtype;
  c.layout = variant.layout;
  c.block_size = kBlockSize;
  c.blocks = kBlocks;
  if (!c.is_qnr()) {
    c.x_dtype = DType::kInt32;
    c.slot_dtype = DType::kInt32;
    c.token_scale = true;
    c.bias = DType::kBFloat16;
  }
  return c;
}

}  // namespace

std::vector<Scenario> Scenarios(bool quick) {
  const Batch batches[] = {{"decode", TokenCount(quick ? 16 : 64, 1)},
                           {"prefill", TokenCount(1, quick ? 256 : 2048)}};
  std::vector<Scenario> scenarios;
  for (const Model& model : kModels) {
    const bool is_recorded = model.data == cases::DataKind::kGemma3;
    if (quick && !is_recorded && &model != kModels) continue;
    for (const Batch& batch : batches) {
      for (const Variant& variant : kVariants) {
        // What a model of floats computed is no input of an int32 operator.
        if (is_recorded && variant.op != Operator::kQkvRmsNormRopeCache) continue;
        scenarios.push_back({model.name, variant.operator_name, variant.cache, batch.name,
                             MakeCase(model, batch, variant)});
      }
    }
  }
  return scenarios;
}

}  // namespace qkvfuse::cli
