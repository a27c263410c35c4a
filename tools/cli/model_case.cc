#include "model_case.h"

#include <fmt/core.h>

#include <map>
#include <utility>

#include "cases/fields.h"

namespace qkvfuse::cli {
namespace {

constexpr int64_t kBlocks = 1024;
constexpr int64_t kBlockSize = 16;

const std::map<std::string, DType> kDTypes = {
    {"fp32", DType::kFloat32}, {"fp16", DType::kFloat16}, {"bf16", DType::kBFloat16}};

CacheLayout LayoutOf(const std::string& layout, bool is_k, int64_t heads, int64_t head_dim,
                     DType dtype) {
  const int64_t bytes = SizeOf(dtype);
  if (layout == "paged") return PagedNhd(kBlocks, kBlockSize, heads, head_dim);
  if (layout == "heads_first") return PagedHnd(kBlocks, kBlockSize, heads, head_dim);
  if (layout == "pa_nz") {
    return PaNz(kBlocks, 2 * kBlockSize, heads, head_dim, bytes == 1 ? 32 : 16);
  }
  if (layout == "transposed" || (layout == "x_split" && !is_k)) {
    return Transposed(kBlocks, kBlockSize, heads, head_dim);
  }
  return XSplitK(kBlocks, kBlockSize, heads, head_dim, 16 / bytes);
}

CacheSpec CacheOf(const ModelOptions& options, const FusedQkvSpec& spec, bool is_k) {
  cases::CacheCase parsed;
  if (!cases::ParseCache(options.cache, parsed)) {
    throw UsageError(
        fmt::format("--cache: {} is no cache type, must be fp32, fp16, bf16, 16bit, int8, "
                    "fp8_e4m3 or fp8_e5m2, then any of +offset, +multiply, +dynamic, "
                    "+head and +tensor",
                    options.cache));
  }
  const int64_t heads = is_k ? spec.heads.k : spec.heads.v;
  const int64_t head_dim = is_k || spec.v_head_dim == 0 ? spec.head_dim : spec.v_head_dim;
  CacheSpec cache;
  cache.dtype = parsed.dtype == cases::kSixteenBit ? spec.x_dtype : parsed.dtype;
  cache.has_offset = parsed.has_offset;
  cache.scale_rule = parsed.rule;
  cache.granularity = parsed.granularity;
  cache.layout = LayoutOf(options.layout, is_k, heads, head_dim, cache.dtype);
  if (parsed.is_dynamic()) {
    cache.scale_layout = ScalesNh(cache.layout.blocks, cache.layout.block_size, heads);
  }
  return cache;
}

std::string TextOf(const ModelSpec& model) {
  std::string text = fmt::format("{}, {} layers", model.model_type, model.layers());
  for (size_t i = 0; i < model.rope_tables.size(); ++i) {
    const RopeTableSpec& table = model.rope_tables[i];
    int64_t layers = 0;
    for (const int32_t of_layer : model.rope_of_layer) {
      layers += of_layer == static_cast<int32_t>(i) ? 1 : 0;
    }
    text += fmt::format("\n  rotary table {}: {} rows of {}, theta {}, {} layers", i,
                        table.max_positions, table.rotary_dim, table.theta, layers);
  }
  return text;
}

}  // namespace

void AddModelOptions(CLI::App& command, ModelOptions& options, CLI::Option* words) {
  CLI::Option* const config =
      command.add_option("--config", options.config, "A model's config.json instead of a case")
          ->check(CLI::ExistingFile)
          ->excludes(words);
  command.add_option("--dtype", options.dtype, "Type of x: fp32, fp16 or bf16; else the config's")
      ->check(CLI::IsMember(kDTypes))
      ->needs(config);
  command
      .add_option("--cache", options.cache,
                  "Type of the caches: fp32, fp16, bf16, 16bit, int8, fp8_e4m3 or fp8_e5m2, "
                  "with +offset, +multiply, +dynamic, +head or +tensor")
      ->capture_default_str()
      ->needs(config);
  command.add_option("--layout", options.layout, "Layout of the caches")
      ->check(CLI::IsMember({"paged", "heads_first", "pa_nz", "x_split", "transposed"}))
      ->capture_default_str()
      ->needs(config);
  command.add_option("--tokens", options.tokens, "Tokens of a call")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 32))
      ->capture_default_str()
      ->needs(config);
}

ModelPlan MakeModelPlan(const ModelOptions& options) {
  std::optional<DType> dtype;
  if (!options.dtype.empty()) dtype = kDTypes.at(options.dtype);
  Result<ModelSpec> model = SpecFromConfigFile(options.config, dtype);
  if (!model.ok()) throw UsageError(model.status().message());
  FusedQkvSpec& spec = model->spec;
  spec.k_cache = CacheOf(options, spec, /*is_k=*/true);
  spec.v_cache = CacheOf(options, spec, /*is_k=*/false);
  Result<Plan> plan = MakePlan(spec);
  if (!plan.ok()) throw UsageError(plan.status().message());
  return {TextOf(*model), std::move(*plan)};
}

}  // namespace qkvfuse::cli
