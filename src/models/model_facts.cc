// The table of models. Sources: configuration_*.py and modeling_*.py of each model in Hugging Face
// transformers 5.24.0.
#include "models/model_facts.h"

#include <algorithm>
#include <cctype>
#include <utility>
#include <vector>

namespace qkvfuse {
namespace {

using Bias = ModelFacts::Bias;
using Norm = NormSpec::Kind;
using Pairing = RopeSpec::Pairing;
using Rope = ModelFacts::Rope;

const ModelFacts kModels[] = {
    {.model_type = "gemma3_text",
     .norm = Norm::kPerHead,
     .gamma = NormSpec::Gamma::kOnePlus,
     .rope = Rope::kPerLayerType,
     // Published configurations leave out what equals these.
     .defaults = {.layers = 26,
                  .q_heads = 8,
                  .kv_heads = 4,
                  .hidden_size = 2304,
                  .head_dim = 256,
                  .max_positions = 131072,
                  .theta = 1e6}},
    {.model_type = "glm",
     .norm = Norm::kNone,
     .pairing = Pairing::kInterleaved,
     .bias = Bias::kUnlessFalse,
     .defaults = {.kv_heads = 2, .head_dim = 128, .partial_rotary_factor = 0.5},
     .may_be_partial = true},
    {.model_type = "glm4",
     .norm = Norm::kNone,
     .pairing = Pairing::kInterleaved,
     .bias = Bias::kUnlessFalse,
     .defaults = {.kv_heads = 2, .head_dim = 128, .partial_rotary_factor = 0.5},
     .may_be_partial = true},
    {.model_type = "glm4_moe",
     .norm = Norm::kPerHead,
     .norm_flag = "use_qk_norm",
     .defaults = {.kv_heads = 8, .epsilon = 1e-5, .partial_rotary_factor = 0.5},
     .may_be_partial = true},
    {.model_type = "gpt_oss",
     .norm = Norm::kNone,
     .rope = Rope::kMustBeGiven,
     .bias = Bias::kUnlessFalse,
     .defaults = {.kv_heads = 8, .head_dim = 64, .theta = 150000}},
    {.model_type = "llama", .norm = Norm::kNone},
    {.model_type = "mistral",
     .norm = Norm::kNone,
     .bias = Bias::kNever,
     .defaults = {.kv_heads = 8}},
    {.model_type = "olmo2", .norm = Norm::kFullWidth, .defaults = {.epsilon = 1e-5}},
    {.model_type = "phi3",
     .norm = Norm::kNone,
     .rope = Rope::kLongRopeOnly,
     .bias = Bias::kNever,
     .may_be_partial = true},
    {.model_type = "qwen2_5_vl_text",
     .norm = Norm::kNone,
     .rope = Rope::kMrope,
     .bias = Bias::kAlways,
     .defaults = {.kv_heads = 8, .theta = 1e6}},
    {.model_type = "qwen3", .norm = Norm::kPerHead, .defaults = {.kv_heads = 32, .head_dim = 128}},
    {.model_type = "qwen3_moe", .norm = Norm::kPerHead, .defaults = {.kv_heads = 4}},
};

constexpr ModelParts kParts[] = {{"gemma3", "gemma3_text", false},
                                 {"qwen2_5_vl", "qwen2_5_vl_text", true}};

/// Parts of names that have to do with what happens to q, k and v.
constexpr std::string_view kSubjects[] = {
    "alibi",     "attention", "attn", "bias", "clip",  "freq",      "head",
    "interleav", "kv",        "lora", "nope", "norm",  "per_layer", "position",
    "qk",        "query",     "rope", "rot",  "theta", "mscale",    "yarn",
};

/// Fields with such names that change nothing before the scores, and the type that has them; all
/// types where it is empty.
constexpr std::pair<std::string_view, std::string_view> kHarmless[] = {
    {"_attn_implementation", ""},
    {"_attn_implementation_autoset", ""},
    {"add_cross_attention", ""},
    {"attention_dropout", ""},
    {"attn_implementation", ""},
    {"attn_logit_softcapping", "gemma3_text"},  // of the scores
    {"cross_attention_hidden_size", ""},
    {"full_attn_mod", "phi3"},
    {"lm_head_bias", ""},
    {"mlp_bias", ""},
    {"norm_topk_prob", ""},  // of experts
    {"output_attentions", ""},
    {"query_pre_attn_scalar", "gemma3_text"},  // the attention's scale
    {"rms_norm_eps", ""},                      // of the layers' norms, where q and k have none
    {"use_bidirectional_attention", "gemma3_text"},
};

}  // namespace

const ModelFacts* FactsOf(std::string_view model_type) {
  const auto* const found =
      std::find_if(std::begin(kModels), std::end(kModels),
                   [&](const ModelFacts& facts) { return facts.model_type == model_type; });
  return found == std::end(kModels) ? nullptr : found;
}

std::string KnownModelTypes() {
  std::vector<std::string> types;
  for (const ModelFacts& facts : kModels) types.emplace_back(facts.model_type);
  for (const ModelParts& parts : kParts) types.emplace_back(parts.model_type);
  std::sort(types.begin(), types.end());
  std::string text;
  for (const std::string& type : types) text += (text.empty() ? "" : ", ") + type;
  return text;
}

const ModelParts* PartsOf(std::string_view model_type) {
  const auto* const found =
      std::find_if(std::begin(kParts), std::end(kParts),
                   [&](const ModelParts& parts) { return parts.model_type == model_type; });
  return found == std::end(kParts) ? nullptr : found;
}

bool MayMatter(std::string_view field, std::string_view model_type) {
  std::string name(field);
  std::transform(name.begin(), name.end(), name.begin(), [](char c) {
    return static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  });
  const bool is_harmless =
      std::any_of(std::begin(kHarmless), std::end(kHarmless), [&](const auto& harmless) {
        return harmless.first == field &&
               (harmless.second.empty() || harmless.second == model_type);
      });
  return !is_harmless &&
         std::any_of(std::begin(kSubjects), std::end(kSubjects), [&](std::string_view subject) {
           return name.find(subject) != std::string::npos;
         });
}

}  // namespace qkvfuse
