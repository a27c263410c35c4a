// Specs from configurations of published models: the fields that make them, old and new spellings.
#include "qkvfuse/model_spec.hpp"

#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

namespace qkvfuse::testing {
namespace {

using Norm = NormSpec::Kind;
using Pairing = RopeSpec::Pairing;
using Scaling = RopeScaling::Kind;

ModelSpec ModelOf(const std::string& config, std::optional<DType> dtype = {}) {
  Result<ModelSpec> model = SpecFromConfig(config, dtype);
  EXPECT_TRUE(model.ok()) << model.status().message();
  return model.ok() ? *model : ModelSpec();
}

/// What is the same for all models: no caches, packed q, k and v of x_dtype, a joined fp32 table.
FusedQkvSpec SpecOf(HeadCounts heads, int64_t head_dim, int64_t positions,
                    DType dtype = DType::kBFloat16) {
  FusedQkvSpec spec;
  spec.x_dtype = dtype;
  spec.q_out.dtype = dtype;
  spec.heads = heads;
  spec.head_dim = spec.rope.rotary_dim = head_dim;
  spec.rope.table = RopeSpec::Table::kJoined;
  spec.rope.dtype = DType::kFloat32;
  spec.rope.max_positions = positions;
  return spec;
}

void SetNorms(Norm kind, double epsilon, FusedQkvSpec* spec) {
  spec->q_norm.kind = spec->k_norm.kind = kind;
  spec->q_norm.gamma_dtype = spec->k_norm.gamma_dtype = spec->x_dtype;
  spec->epsilon = epsilon;
}

RopeTableSpec TableOf(const FusedQkvSpec& spec, double theta, RopeScaling scaling = {}) {
  return {spec.rope.rotary_dim, spec.rope.max_positions, theta, scaling};
}

/// A model whose layers are all alike.
void ExpectModel(const std::string& config, const char* type, int64_t layers,
                 const FusedQkvSpec& spec, const RopeTableSpec& table) {
  const ModelSpec model = ModelOf(config);
  EXPECT_EQ(model.model_type, type);
  EXPECT_EQ(model.layers(), layers);
  EXPECT_EQ(model.rope_of_layer, std::vector<int32_t>(static_cast<size_t>(layers), 0));
  EXPECT_TRUE(model.spec == spec);
  EXPECT_TRUE(model.rope_tables == std::vector<RopeTableSpec>{table});
}

TEST(ModelSpec, Qwen3) {
  FusedQkvSpec spec = SpecOf({32, 8, 8}, 128, 40960);
  SetNorms(Norm::kPerHead, 1e-6, &spec);
  ExpectModel(R"({"architectures": ["Qwen3ForCausalLM"], "attention_bias": false,
      "attention_dropout": 0.0, "head_dim": 128, "hidden_act": "silu", "hidden_size": 4096,
      "intermediate_size": 12288, "max_position_embeddings": 40960, "max_window_layers": 36,
      "model_type": "qwen3", "num_attention_heads": 32, "num_hidden_layers": 36,
      "num_key_value_heads": 8, "rms_norm_eps": 1e-06, "rope_scaling": null,
      "rope_theta": 1000000, "sliding_window": null, "tie_word_embeddings": false,
      "torch_dtype": "bfloat16", "use_sliding_window": false, "vocab_size": 151936})",
              "qwen3", 36, spec, TableOf(spec, 1e6));
}

TEST(ModelSpec, Qwen3WithYarn) {
  FusedQkvSpec spec = SpecOf({32, 8, 8}, 128, 131072, DType::kFloat16);
  SetNorms(Norm::kPerHead, 1e-6, &spec);
  const RopeScaling yarn{.kind = Scaling::kYarn, .factor = 4, .original_max_positions = 32768};
  // head_dim and rms_norm_eps are left to their defaults.
  ExpectModel(R"({"model_type": "qwen3", "num_attention_heads": 32, "num_hidden_layers": 36,
      "num_key_value_heads": 8, "max_position_embeddings": 131072, "dtype": "float16",
      "rope_parameters": {"rope_type": "yarn", "rope_theta": 1000000.0, "factor": 4.0,
        "original_max_position_embeddings": 32768, "attention_factor": null}})",
              "qwen3", 36, spec, TableOf(spec, 1e6, yarn));
}

TEST(ModelSpec, Qwen3Moe) {
  FusedQkvSpec spec = SpecOf({32, 4, 4}, 128, 40960);
  SetNorms(Norm::kPerHead, 1e-6, &spec);
  ExpectModel(R"({"model_type": "qwen3_moe", "attention_bias": false, "decoder_sparse_step": 1,
      "head_dim": 128, "hidden_size": 2048, "max_position_embeddings": 40960,
      "mlp_only_layers": [], "moe_intermediate_size": 768, "norm_topk_prob": true,
      "num_attention_heads": 32, "num_experts": 128, "num_experts_per_tok": 8,
      "num_hidden_layers": 48, "num_key_value_heads": 4, "output_router_logits": false,
      "rms_norm_eps": 1e-06, "rope_scaling": null, "rope_theta": 1000000.0,
      "router_aux_loss_coef": 0.001, "torch_dtype": "bfloat16"})",
              "qwen3_moe", 48, spec, TableOf(spec, 1e6));
}

// Absent they are the default's, null those of q.
TEST(ModelSpec, HeadsOfKThatAreNotGiven) {
  const std::string start = R"({"model_type": "qwen3", "num_attention_heads": 16,
      "num_hidden_layers": 1, "max_position_embeddings": 64, "dtype": "float16")";
  EXPECT_EQ(ModelOf(start + "}").spec.heads, HeadCounts({16, 32, 32}));
  EXPECT_EQ(ModelOf(start + R"(, "num_key_value_heads": null})").spec.heads,
            HeadCounts({16, 16, 16}));
}

TEST(ModelSpec, Llama31) {
  const FusedQkvSpec spec = SpecOf({32, 8, 8}, 128, 131072);
  const RopeScaling llama3{.kind = Scaling::kLlama3, .factor = 8, .original_max_positions = 8192};
  ExpectModel(R"({"model_type": "llama", "attention_bias": false, "hidden_size": 4096,
      "max_position_embeddings": 131072, "mlp_bias": false, "num_attention_heads": 32,
      "num_hidden_layers": 32, "num_key_value_heads": 8, "pretraining_tp": 1,
      "rms_norm_eps": 1e-05, "rope_scaling": {"factor": 8.0, "high_freq_factor": 4.0,
        "low_freq_factor": 1.0, "original_max_position_embeddings": 8192, "rope_type": "llama3"},
      "rope_theta": 500000.0, "torch_dtype": "bfloat16", "use_cache": true})",
              "llama", 32, spec, TableOf(spec, 500000, llama3));
}

// Llama 2: heads of k as many as those of q, theta 10000, and the scalings of its time.
TEST(ModelSpec, Llama2AndItsScalings) {
  const std::string start = R"({"model_type": "llama", "hidden_size": 4096,
      "max_position_embeddings": 4096, "num_attention_heads": 32, "num_hidden_layers": 32,
      "torch_dtype": "float16")";
  FusedQkvSpec spec = SpecOf({32, 32, 32}, 128, 4096, DType::kFloat16);
  ExpectModel(start + "}", "llama", 32, spec, TableOf(spec, 10000));
  ExpectModel(start + R"(, "rope_scaling": {"type": "linear", "factor": 2.0}})", "llama", 32, spec,
              TableOf(spec, 10000, {.kind = Scaling::kLinear, .factor = 2}));
  ExpectModel(start + R"(, "rope_scaling": {"type": "dynamic", "factor": 2.0}})", "llama", 32, spec,
              TableOf(spec, 10000,
                      {.kind = Scaling::kDynamicNtk, .factor = 2, .original_max_positions = 4096}));
  spec.bias = DType::kFloat16;
  ExpectModel(start + R"(, "attention_bias": true, "num_key_value_heads": null})", "llama", 32,
              spec, TableOf(spec, 10000));
}

TEST(ModelSpec, Gemma3Text) {
  FusedQkvSpec spec = SpecOf({4, 1, 1}, 256, 32768);
  SetNorms(Norm::kPerHead, 1e-6, &spec);
  spec.q_norm.gamma = spec.k_norm.gamma = NormSpec::Gamma::kOnePlus;
  const ModelSpec model = ModelOf(R"({"model_type": "gemma3_text", "attention_bias": false,
      "attn_logit_softcapping": null, "cache_implementation": "hybrid",
      "final_logit_softcapping": null, "head_dim": 256, "hidden_size": 1152,
      "max_position_embeddings": 32768, "num_attention_heads": 4, "num_hidden_layers": 26,
      "num_key_value_heads": 1, "query_pre_attn_scalar": 256, "rms_norm_eps": 1e-06,
      "rope_local_base_freq": 10000, "rope_scaling": null, "rope_theta": 1000000,
      "sliding_window": 512, "sliding_window_pattern": 6, "torch_dtype": "bfloat16"})");
  EXPECT_EQ(model.model_type, "gemma3_text");
  EXPECT_TRUE(model.spec == spec);
  EXPECT_TRUE(model.rope_tables ==
              std::vector<RopeTableSpec>({TableOf(spec, 1e6), TableOf(spec, 1e4)}));
  ASSERT_EQ(model.layers(), 26);
  for (size_t layer = 0; layer < 26; ++layer) {
    EXPECT_EQ(model.rope_of_layer[layer],
              layer == 5 || layer == 11 || layer == 17 || layer == 23 ? 0 : 1);
  }
}

// The 12B model's configuration leaves out what equals the defaults.
TEST(ModelSpec, Gemma3OfSeveralParts) {
  FusedQkvSpec spec = SpecOf({16, 8, 8}, 256, 131072);
  SetNorms(Norm::kPerHead, 1e-6, &spec);
  spec.q_norm.gamma = spec.k_norm.gamma = NormSpec::Gamma::kOnePlus;
  const ModelSpec model = ModelOf(R"({"model_type": "gemma3", "torch_dtype": "bfloat16",
      "mm_tokens_per_image": 256, "text_config": {"hidden_size": 3840, "intermediate_size": 15360,
        "model_type": "gemma3_text", "num_attention_heads": 16, "num_hidden_layers": 48,
        "num_key_value_heads": 8, "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
        "sliding_window": 1024},
      "vision_config": {"hidden_size": 1152, "num_attention_heads": 16}})");
  EXPECT_EQ(model.model_type, "gemma3_text");
  EXPECT_TRUE(model.spec == spec);
  const RopeScaling linear{.kind = Scaling::kLinear, .factor = 8};
  EXPECT_TRUE(model.rope_tables ==
              std::vector<RopeTableSpec>({TableOf(spec, 1e6, linear), TableOf(spec, 1e4)}));
  EXPECT_EQ(model.layers(), 48);
}

TEST(ModelSpec, Gemma3AsNewerVersionsWriteIt) {
  const ModelSpec model = ModelOf(R"({"model_type": "gemma3_text", "dtype": "bfloat16",
      "num_hidden_layers": 3, "_sliding_window_pattern": 6,
      "layer_types": ["full_attention", "sliding_attention", "full_attention"],
      "rope_parameters": {
        "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 2000000.0},
        "sliding_attention": {"rope_type": "default", "rope_theta": 20000.0}}})");
  ASSERT_EQ(model.rope_tables.size(), 2U);
  EXPECT_TRUE(model.rope_tables[0] ==
              TableOf(model.spec, 2e6, {.kind = Scaling::kLinear, .factor = 8}));
  EXPECT_TRUE(model.rope_tables[1] == TableOf(model.spec, 2e4));
  EXPECT_EQ(model.rope_of_layer, std::vector<int32_t>({0, 1, 0}));
  EXPECT_EQ(model.spec.heads, HeadCounts({8, 4, 4}));
  EXPECT_EQ(model.spec.head_dim, 256);
}

TEST(ModelSpec, Glm4) {
  FusedQkvSpec spec = SpecOf({32, 2, 2}, 128, 32768);
  spec.rope.pairing = Pairing::kInterleaved;
  spec.rope.rotary_dim = 64;
  for (const std::string type : {"glm", "glm4"}) {
    for (const bool has_bias : {false, true}) {
      spec.bias = has_bias ? std::optional<DType>(DType::kBFloat16) : std::nullopt;
      ExpectModel(R"({"attention_bias": )" + std::string(has_bias ? "true" : "false") +
                      R"(, "head_dim": 128, "hidden_size": 4096, "num_hidden_layers": 40,
          "max_position_embeddings": 32768, "num_attention_heads": 32, "num_key_value_heads": 2,
          "partial_rotary_factor": 0.5, "rms_norm_eps": 1e-05, "rope_theta": 10000.0,
          "torch_dtype": "bfloat16", "model_type": ")" +
                      type + "\"}",
                  type.c_str(), 40, spec, TableOf(spec, 10000));
    }
    // The bias, half of the channels and the heads of k are defaults.
    ExpectModel(R"({"num_hidden_layers": 40, "max_position_embeddings": 32768,
        "num_attention_heads": 32, "torch_dtype": "bfloat16", "model_type": ")" +
                    type + "\"}",
                type.c_str(), 40, spec, TableOf(spec, 10000));
  }
}

// GLM-4.5: halves again, and a norm where the flag says so.
TEST(ModelSpec, Glm4Moe) {
  FusedQkvSpec spec = SpecOf({96, 8, 8}, 128, 131072);
  spec.rope.rotary_dim = 64;
  spec.bias = DType::kBFloat16;
  const std::string start = R"({"model_type": "glm4_moe", "attention_bias": true, "head_dim": 128,
      "hidden_size": 5120, "first_k_dense_replace": 3, "max_position_embeddings": 131072,
      "n_routed_experts": 160, "norm_topk_prob": true, "num_attention_heads": 96,
      "num_hidden_layers": 92, "num_key_value_heads": 8, "num_nextn_predict_layers": 1,
      "partial_rotary_factor": 0.5, "rms_norm_eps": 1e-05, "rope_scaling": null,
      "rope_theta": 1000000, "torch_dtype": "bfloat16", "use_qk_norm": )";
  ExpectModel(start + "false}", "glm4_moe", 92, spec, TableOf(spec, 1e6));
  SetNorms(Norm::kPerHead, 1e-5, &spec);
  ExpectModel(start + "true}", "glm4_moe", 92, spec, TableOf(spec, 1e6));
}

TEST(ModelSpec, GptOss) {
  FusedQkvSpec spec = SpecOf({64, 8, 8}, 64, 131072);
  spec.bias = DType::kBFloat16;
  const RopeScaling yarn{
      .kind = Scaling::kYarn, .factor = 32, .original_max_positions = 4096, .truncate = false};
  ExpectModel(R"({"model_type": "gpt_oss", "attention_bias": true, "attention_dropout": 0.0,
      "experts_per_token": 4, "head_dim": 64, "hidden_size": 2880, "initial_context_length": 4096,
      "layer_types": ["sliding_attention", "full_attention"], "max_position_embeddings": 131072,
      "num_attention_heads": 64, "num_hidden_layers": 24, "num_key_value_heads": 8,
      "quantization_config": {"modules_to_not_convert": ["model.layers.*.self_attn"]},
      "rms_norm_eps": 1e-05, "rope_scaling": {"beta_fast": 32.0, "beta_slow": 1.0, "factor": 32.0,
        "original_max_position_embeddings": 4096, "rope_type": "yarn", "truncate": false},
      "rope_theta": 150000, "sliding_window": 128, "swiglu_limit": 7.0, "dtype": "bfloat16"})",
              "gpt_oss", 24, spec, TableOf(spec, 150000, yarn));
}

TEST(ModelSpec, Mistral) {
  // Of Nemo's shape: heads narrower than hidden_size / num_attention_heads.
  const FusedQkvSpec nemo = SpecOf({32, 8, 8}, 128, 131072);
  ExpectModel(R"({"model_type": "mistral", "head_dim": 128, "hidden_size": 5120,
      "max_position_embeddings": 131072, "num_attention_heads": 32, "num_hidden_layers": 40,
      "num_key_value_heads": 8, "rms_norm_eps": 1e-05, "rope_theta": 1000000.0,
      "sliding_window": null, "torch_dtype": "bfloat16"})",
              "mistral", 40, nemo, TableOf(nemo, 1e6));
  const FusedQkvSpec spec = SpecOf({32, 8, 8}, 128, 32768);
  ExpectModel(R"({"model_type": "mistral", "hidden_size": 4096, "num_attention_heads": 32,
      "max_position_embeddings": 32768, "num_hidden_layers": 32, "sliding_window": 4096,
      "dtype": "bfloat16", "rope_parameters": {"rope_theta": 10000.0, "rope_type": "default"}})",
              "mistral", 32, spec, TableOf(spec, 1e4));
}

TEST(ModelSpec, Olmo2) {
  FusedQkvSpec spec = SpecOf({40, 8, 8}, 128, 4096, DType::kFloat32);
  SetNorms(Norm::kFullWidth, 1e-6, &spec);
  ExpectModel(R"({"model_type": "olmo2", "attention_bias": false, "hidden_size": 5120,
      "max_position_embeddings": 4096, "num_attention_heads": 40, "num_hidden_layers": 64,
      "num_key_value_heads": 8, "rms_norm_eps": 1e-06, "rope_scaling": null, "rope_theta": 500000,
      "torch_dtype": "float32"})",
              "olmo2", 64, spec, TableOf(spec, 500000));
}

/// `count` factors from 1, as JSON and as a list.
std::string Factors(size_t count, double step, std::vector<double>* list) {
  std::string text = "[";
  for (size_t i = 0; i < count; ++i) {
    list->push_back(1 + step * static_cast<double>(i));
    text += (i == 0 ? "" : ", ") + std::to_string(list->back());
  }
  return text + "]";
}

// Phi-4-mini: three quarters of a head, factors for short and long sequences.
TEST(ModelSpec, Phi4Mini) {
  FusedQkvSpec spec = SpecOf({24, 8, 8}, 128, 131072);
  spec.rope.rotary_dim = 96;
  RopeScaling longrope{.kind = Scaling::kLongRope, .factor = 32, .original_max_positions = 4096};
  const std::string lists = R"({"short_factor": )" + Factors(48, 0.125, &longrope.short_factor) +
                            R"(, "long_factor": )" + Factors(48, 0.5, &longrope.long_factor);
  const std::string start = R"({"model_type": "phi3", "attention_bias": false, "embd_pdrop": 0.0,
      "full_attn_mod": 1, "hidden_size": 3072, "interpolate_factor": 1, "lm_head_bias": false,
      "max_position_embeddings": 131072, "mlp_bias": false, "num_attention_heads": 24,
      "num_hidden_layers": 32, "num_key_value_heads": 8, "partial_rotary_factor": 0.75,
      "rms_norm_eps": 1e-05, "rope_theta": 10000.0, "sliding_window": 262144,
      "original_max_position_embeddings": 4096, "torch_dtype": "bfloat16", )";
  for (const std::string type : {"longrope", "su"}) {
    ExpectModel(start + R"("rope_scaling": )" + lists + R"(, "type": ")" + type + "\"}}", "phi3",
                32, spec, TableOf(spec, 1e4, longrope));
  }
  ExpectModel(start + R"("rope_parameters": )" + lists + R"(, "rope_type": "longrope",
      "rope_theta": 10000.0, "partial_rotary_factor": 0.75, "factor": 32.0,
      "original_max_position_embeddings": 4096}})",
              "phi3", 32, spec, TableOf(spec, 1e4, longrope));
  // The table is the caller's to make for the lengths that it serves.
  ModelSpec model = ModelOf(start + R"("rope_scaling": )" + lists + R"(, "type": "longrope"}})");
  EXPECT_EQ(RopeFrequencies(model.rope_tables[0]).status().message(),
            "scaling.sequence_length: is 0, must be at least 1");
  model.rope_tables[0].scaling.sequence_length = 131072;
  EXPECT_TRUE(RopeFrequencies(model.rope_tables[0]).ok());
}

// Phi-4 of 14B parameters is a phi3 without any of that.
TEST(ModelSpec, Phi4) {
  const FusedQkvSpec spec = SpecOf({40, 10, 10}, 128, 16384);
  ExpectModel(R"({"model_type": "phi3", "attention_bias": false, "hidden_size": 5120,
      "max_position_embeddings": 16384, "num_attention_heads": 40, "num_hidden_layers": 40,
      "num_key_value_heads": 10, "original_max_position_embeddings": 16384, "rope_scaling": null,
      "rope_theta": 250000, "sliding_window": null, "torch_dtype": "bfloat16"})",
              "phi3", 40, spec, TableOf(spec, 250000));
}

constexpr char kQwen25Vl[] = R"("hidden_size": 3584, "max_position_embeddings": 128000,
    "max_window_layers": 28, "num_attention_heads": 28, "num_hidden_layers": 28,
    "num_key_value_heads": 4, "rms_norm_eps": 1e-06, "sliding_window": 32768)";

TEST(ModelSpec, Qwen25Vl) {
  FusedQkvSpec spec = SpecOf({28, 4, 4}, 128, 128000);
  spec.bias = DType::kBFloat16;
  spec.rope.sections = RopeSpec::Sections::kConcatenated;
  spec.rope.section_pairs = {16, 24, 24};
  const std::string fields(kQwen25Vl);
  const std::string vision = R"("vision_config": {"depth": 32, "num_heads": 16})";
  const std::string old_rope = R"("rope_theta": 1000000.0, "rope_scaling": {"type": "mrope",
      "mrope_section": [16, 24, 24]})";
  const std::string new_rope = R"("rope_parameters": {"type": "mrope", "rope_type": "default",
      "mrope_section": [16, 24, 24], "rope_theta": 1000000.0})";
  const std::string type = R"({"model_type": "qwen2_5_vl", "torch_dtype": "bfloat16", )";
  const std::string flat = fields + ", " + old_rope;
  for (const std::string& config :
       {type + flat + ", " + vision + "}",  // as published
        type + vision + R"(, "text_config": {)" + fields + ", " + new_rope + "}}",
        type + vision + ", " + flat + R"(, "text_config": {)" + flat + "}}",  // both
        R"({"model_type": "qwen2_5_vl_text", "dtype": "bfloat16", )" + fields + ", " + new_rope +
            "}"}) {
    ExpectModel(config, "qwen2_5_vl_text", 28, spec, TableOf(spec, 1e6));
  }
}

TEST(ModelSpec, DTypeOfTheCallerCounts) {
  const std::string config = R"({"model_type": "olmo2", "hidden_size": 4096,
      "max_position_embeddings": 4096, "num_attention_heads": 32, "num_hidden_layers": 1,
      "torch_dtype": "auto"})";
  const ModelSpec model = ModelOf(config, DType::kFloat16);
  EXPECT_EQ(model.spec.x_dtype, DType::kFloat16);
  EXPECT_EQ(model.spec.q_out.dtype, DType::kFloat16);
  EXPECT_EQ(model.spec.q_norm.gamma_dtype, DType::kFloat16);
  EXPECT_EQ(model.spec.epsilon, 1e-5);
}

TEST(ModelSpec, FromAFile) {
  const std::string path = ::testing::TempDir() + "qkvfuse_model_spec_test.json";
  const std::string config = R"({"model_type": "llama", "hidden_size": 256, "dtype": "float32",
      "max_position_embeddings": 64, "num_attention_heads": 4, "num_hidden_layers": 2})";
  std::ofstream(path) << config;
  const Result<ModelSpec> model = SpecFromConfigFile(path);
  ASSERT_TRUE(model.ok()) << model.status().message();
  EXPECT_TRUE(*model == ModelOf(config));
  EXPECT_EQ(SpecFromConfigFile(path, DType::kBFloat16)->spec.x_dtype, DType::kBFloat16);
  std::remove(path.c_str());
  EXPECT_EQ(SpecFromConfigFile(path).status().message(),
            "path: " + path + " cannot be read, must be a file that can");
}

}  // namespace
}  // namespace qkvfuse::testing
