// Configurations that make no Spec: what is not known, missing, of a wrong kind or contradictory,
// each by its name; and texts that are no configurations at all.
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "qkvfuse/model_spec.hpp"

namespace qkvfuse::testing {
namespace {

std::string Refusal(const std::string& config, std::optional<DType> dtype = {}) {
  return SpecFromConfig(config, dtype).status().message();
}

/// A small configuration of that type with more fields: "\"a\": 1, \"b\": 2". They come last, and
/// of two fields with a name the last one counts.
std::string With(const std::string& fields, const std::string& type = "llama") {
  return R"({"hidden_size": 512, "num_attention_heads": 8, "num_hidden_layers": 2,
      "max_position_embeddings": 4096, "dtype": "bfloat16", "model_type": ")" +
         type + "\"" + (fields.empty() ? "" : ", ") + fields + "}";
}

constexpr char kTypes[] =
    "gemma3, gemma3_text, glm, glm4, glm4_moe, gpt_oss, llama, mistral, olmo2, phi3, qwen2_5_vl, "
    "qwen2_5_vl_text, qwen3, qwen3_moe";

TEST(ModelSpecRefusals, TheBaseIsFine) { EXPECT_EQ(Refusal(With("")), ""); }

TEST(ModelSpecRefusals, Texts) {
  for (const char* text : {"", "{", "[]", "3", "null", "{\"a\": NaN}", "{} {}", "\xff"}) {
    EXPECT_EQ(Refusal(text), "config: is not the text of a JSON object, must be one") << text;
  }
  EXPECT_EQ(Refusal(std::string(1000000, '[')), "config: nests deeper than 32, must not");
  EXPECT_EQ(Refusal(With(R"("note": "]]{{[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[\"[[[[")")), "");
}

TEST(ModelSpecRefusals, Types) {
  EXPECT_EQ(Refusal("{}"), std::string("model_type: is missing, must be one of ") + kTypes);
  EXPECT_EQ(Refusal(With("", "qwen2")),
            std::string("model_type: is \"qwen2\", must be one of ") + kTypes);
  EXPECT_EQ(Refusal(R"({"model_type": ["llama"]})"), "model_type: is a list, must be a string");
  EXPECT_EQ(Refusal(With("", "gemma3")), "text_config: is missing, must be given for gemma3");
  EXPECT_EQ(Refusal(With(R"("text_config": {})")),
            "text_config: is given, must be absent for llama");
  EXPECT_EQ(Refusal(With(R"("text_config": 3)")), "text_config: is 3, must be an object");
  EXPECT_EQ(Refusal(R"({"model_type": "gemma3", "dtype": "float16",
                "text_config": {"model_type": "gemma2"}})"),
            "text_config.model_type: is \"gemma2\", must be gemma3_text");
}

TEST(ModelSpecRefusals, MissingFields) {
  for (const char* field :
       {"num_attention_heads", "hidden_size", "num_hidden_layers", "max_position_embeddings"}) {
    EXPECT_EQ(Refusal(With(std::string("\"") + field + "\": null")),
              std::string(field) + ": is missing, must be given");
  }
  EXPECT_EQ(Refusal(With("\"head_dim\": null")), "");
  EXPECT_EQ(Refusal(With("\"head_dim\": null", "qwen3")),
            "head_dim: is null, must be a number or absent for qwen3");
  EXPECT_EQ(Refusal(With("\"dtype\": null")),
            "dtype: is neither in the configuration nor given, one of the two must name it");
  EXPECT_EQ(Refusal(With("", "gpt_oss")),
            "rope_scaling, rope_parameters: are missing, one must be given for gpt_oss");
}

TEST(ModelSpecRefusals, WrongKinds) {
  EXPECT_EQ(Refusal(With(R"("num_attention_heads": 0)")),
            "num_attention_heads: is 0, must be an integer from 1 to 65536");
  EXPECT_EQ(Refusal(With(R"("num_key_value_heads": 2.5)")),
            "num_key_value_heads: is 2.5, must be an integer from 1 to 65536");
  EXPECT_EQ(Refusal(With(R"("num_hidden_layers": 18446744073709551615)")),
            "num_hidden_layers: is 18446744073709551615, must be an integer from 1 to 65536");
  EXPECT_EQ(Refusal(With(R"("max_position_embeddings": 1e5)")),
            "max_position_embeddings: is 100000.0, must be an integer from 1 to 2147483647");
  EXPECT_EQ(Refusal(With(R"("head_dim": "64")")),
            "head_dim: is \"64\", must be an integer from 1 to 2147483647");
  EXPECT_EQ(Refusal(With(R"("rope_theta": {"a": 1})")),
            "rope_theta: is an object, must be a number");
  EXPECT_EQ(Refusal(With(R"("attention_bias": "qkv")")),
            "attention_bias: is \"qkv\", must be true or false");
  EXPECT_EQ(Refusal(With(R"("rope_scaling": "yarn")")),
            "rope_scaling: is \"yarn\", must be an object");
  EXPECT_EQ(Refusal(With(R"("rms_norm_eps": -1)", "olmo2")),
            "rms_norm_eps: is -1, must not be negative");
  EXPECT_EQ(Refusal(With(R"("layer_types": "full_attention")", "gemma3_text")),
            "layer_types: is \"full_attention\", must be a list of strings");
}

TEST(ModelSpecRefusals, DTypes) {
  EXPECT_EQ(Refusal(With(R"("dtype": "float8_e4m3fn")")),
            "dtype: is \"float8_e4m3fn\", must be float32, float16 or bfloat16, unless the caller "
            "gives dtype");
  EXPECT_EQ(Refusal(With(R"("torch_dtype": "bfloat16")")), "");
  const std::string contradiction = R"("torch_dtype": "float32")";
  EXPECT_EQ(Refusal(With(contradiction)),
            "torch_dtype: is \"float32\", must be that of dtype, \"bfloat16\", unless the caller "
            "gives dtype");
  EXPECT_EQ(Refusal(With(contradiction), DType::kFloat16), "");
  EXPECT_EQ(Refusal(With(""), DType::kInt8), "dtype: is int8, must be fp32, fp16 or bf16");
}

TEST(ModelSpecRefusals, FieldsThatAreNotKnown) {
  for (const char* field :
       {"use_qk_norm", "qk_layernorm", "rope_interleave", "clip_qkv", "no_rope_layers",
        "v_head_dim", "rotary_pct", "attention_multiplier", "position_embedding_type", "qkv_bias",
        "kv_lora_rank", "per_layer_config", "attn_logit_softcapping", "use_alibi"}) {
    EXPECT_EQ(Refusal(With(std::string("\"") + field + "\": true")),
              std::string(field) +
                  ": is not known for llama, must be absent, as it may change q, k or v");
  }
  // null, empty, or of no such subject.
  EXPECT_EQ(Refusal(With(R"("clip_qkv": null, "pruned_heads": {}, "resid_pdrop": 0.5)")), "");
}

TEST(ModelSpecRefusals, FieldsBesideTextConfig) {
  const auto config = [](const std::string& outside, const std::string& inside) {
    return R"({"model_type": "gemma3", "dtype": "float16", )" + outside + R"(, "text_config": {)" +
           inside + "}}";
  };
  const std::string sentence = ": is given beside text_config, must be the same inside of it";
  EXPECT_EQ(Refusal(config(R"("head_dim": 64)", R"("head_dim": 128)")), "head_dim" + sentence);
  EXPECT_EQ(Refusal(config(R"("head_dim": 64)", "")), "head_dim" + sentence);
  EXPECT_EQ(Refusal(config(R"("rope_scaling": {"rope_type": "yarn"})", "")),
            "rope_scaling" + sentence);
  EXPECT_EQ(Refusal(config(R"("qk_norm": true)", "")), "qk_norm" + sentence);
  EXPECT_EQ(Refusal(config(R"("head_dim": 128)", R"("head_dim": 128)")), "");
  EXPECT_EQ(Refusal(config(R"("x": 1)", R"("torch_dtype": "float16")")), "");
  EXPECT_EQ(
      Refusal(config(R"("x": 1)", R"("torch_dtype": "float32")")),
      "dtype: is \"float16\", must be that of text_config.torch_dtype, \"float32\", unless the "
      "caller gives dtype");
  EXPECT_EQ(
      Refusal(config(R"("x": 1)", R"("qk_norm": true)")),
      "text_config.qk_norm: is not known for gemma3_text, must be absent, as it may change q, "
      "k or v");
}

TEST(ModelSpecRefusals, HeadsAndRotaryDim) {
  EXPECT_EQ(Refusal(With(R"("hidden_size": 500)")),
            "hidden_size: is 500, must be a multiple of num_attention_heads, 8");
  const std::string dims =
      ", must give an even number of channels from 2 to 1024, and at most all of a head";
  EXPECT_EQ(Refusal(With(R"("head_dim": 63)")),
            "head_dim, partial_rotary_factor: are 63 and 1" + dims);
  EXPECT_EQ(Refusal(With(R"("head_dim": 2048)")),
            "head_dim, partial_rotary_factor: are 2048 and 1" + dims);
  for (const char* factor : {"0", "-0.5", "1.5", "0.4"}) {
    EXPECT_EQ(Refusal(With(std::string(R"("partial_rotary_factor": )") + factor, "phi3")),
              std::string("head_dim, partial_rotary_factor: are 64 and ") + factor + dims);
  }
  EXPECT_EQ(Refusal(With(R"("partial_rotary_factor": 0.5)")),
            "partial_rotary_factor: is 0.5, must be 1, as llama rotates whole heads");
  EXPECT_EQ(Refusal(With(R"("head_dim": 128, "rope_scaling": {"type": "mrope",
                "mrope_section": [8, 12, 12]})",
                         "qwen2_5_vl")),
            "head_dim: is 128, must be 64, hidden_size / num_attention_heads, for qwen2_5_vl_text");
}

TEST(ModelSpecRefusals, Biases) {
  EXPECT_EQ(Refusal(With(R"("attention_bias": true)", "mistral")),
            "attention_bias: is true, must be false or absent for mistral");
  EXPECT_EQ(Refusal(With(R"("attention_bias": true)", "phi3")),
            "attention_bias: is true, must be false or absent for phi3");
  EXPECT_EQ(Refusal(With(R"("attention_bias": false, "rope_scaling": {"type": "mrope",
                "mrope_section": [8, 12, 12]})",
                         "qwen2_5_vl")),
            "attention_bias: is false, must be true or absent for qwen2_5_vl_text");
}

std::string RopeRefusal(const std::string& parameters, const std::string& more = "",
                        const std::string& type = "llama") {
  return Refusal(With(R"("rope_scaling": {)" + parameters + "}" + more, type));
}

TEST(ModelSpecRefusals, RopeTypes) {
  EXPECT_EQ(RopeRefusal(R"("rope_type": "proportional")"),
            "rope_scaling.rope_type: is \"proportional\", must be one of default, linear, dynamic, "
            "yarn, llama3, longrope");
  EXPECT_EQ(
      RopeRefusal(R"("type": "mrope")"),
      "rope_scaling.type: is \"mrope\", must be one of default, linear, dynamic, yarn, llama3, "
      "longrope");
  EXPECT_EQ(RopeRefusal(R"("type": "yarn")", "", "phi3"),
            "rope_scaling.type: is \"yarn\", must be one of default, longrope");
  EXPECT_EQ(RopeRefusal(R"("type": "yarn", "rope_type": "linear", "factor": 2)"),
            "rope_scaling.type: is yarn, must be linear, as rope_type is");
}

TEST(ModelSpecRefusals, RopeFields) {
  EXPECT_EQ(RopeRefusal(R"("rope_type": "default", "factor": 2)"),
            "rope_scaling.factor: is not known for this rope_type of llama, must be absent");
  EXPECT_EQ(RopeRefusal(R"("type": "dynamic", "factor": 2, "alpha": 1000)"),
            "rope_scaling.alpha: is not known for this rope_type of llama, must be absent");
  EXPECT_EQ(RopeRefusal(R"("rope_type": "linear")"),
            "rope_scaling.factor: is missing, must be given");
  EXPECT_EQ(RopeRefusal(R"("rope_type": "llama3", "factor": 8, "high_freq_factor": 4)"),
            "rope_scaling.low_freq_factor: is missing, must be given");
  EXPECT_EQ(RopeRefusal(R"("rope_type": "yarn", "truncate": 1)"),
            "rope_scaling.truncate: is 1, must be true or false");
  EXPECT_EQ(RopeRefusal(R"("rope_type": "longrope", "short_factor": [1, "2"])"),
            "rope_scaling.short_factor: is a list, must be a list of numbers");
  EXPECT_EQ(RopeRefusal(R"("rope_type": "yarn", "truncate": false)", "", "gemma3_text"),
            "rope_scaling.truncate: is false, must be true or absent for gemma3_text");
}

// What the table itself refuses.
TEST(ModelSpecRefusals, RopeValues) {
  EXPECT_EQ(RopeRefusal(R"("rope_type": "linear", "factor": 0.5)"),
            "rope_scaling: scaling.factor: is 0.5, must be finite and at least 1");
  EXPECT_EQ(RopeRefusal(R"("rope_type": "longrope", "short_factor": [1], "long_factor": [1])"),
            "rope_scaling: scaling.short_factor: has 1 elements, must have 32, half of rotary_dim");
  EXPECT_EQ(Refusal(With(R"("rope_theta": 1)")), "rope_theta: is 1, must be more than 1");
}

TEST(ModelSpecRefusals, RopeContradictions) {
  const std::string outside = ", as it is outside of this object";
  EXPECT_EQ(RopeRefusal(R"("rope_theta": 5000)", R"(, "rope_theta": 10000)"),
            "rope_scaling.rope_theta: is 5000, must be 10000" + outside);
  EXPECT_EQ(
      RopeRefusal(R"("partial_rotary_factor": 1)", R"(, "partial_rotary_factor": 0.5)", "glm"),
      "rope_scaling.partial_rotary_factor: is 1, must be 0.5" + outside);
  EXPECT_EQ(RopeRefusal(R"("type": "yarn", "original_max_position_embeddings": 2048)",
                        R"(, "original_max_position_embeddings": 1024)"),
            "rope_scaling.original_max_position_embeddings: is 2048, must be 1024" + outside);
  EXPECT_EQ(Refusal(With(R"("rope_scaling": {"type": "default"}, "rope_parameters": {"a": 1})")),
            "rope_scaling: is given, must not be, where rope_parameters are");
  EXPECT_EQ(RopeRefusal(R"("type": "longrope", "factor": 2,
                "original_max_position_embeddings": 1024)"),
            "rope_scaling.factor: is 2, must be 4, max_position_embeddings / "
            "original_max_position_embeddings");
  EXPECT_EQ(RopeRefusal(R"("type": "longrope")", "", "phi3"),
            "rope_scaling.original_max_position_embeddings: is missing, must be given for phi3");
}

TEST(ModelSpecRefusals, MropeSections) {
  const auto sections = [](const char* list) {
    return RopeRefusal(std::string(R"("type": "mrope", "mrope_section": )") + list, "",
                       "qwen2_5_vl");
  };
  const std::string must = ", must have 3, whole and not negative, of sum 32";
  EXPECT_EQ(sections("null"), "rope_scaling.mrope_section: has 0 elements of sum 0" + must);
  EXPECT_EQ(sections("[16, 24, 24]"),
            "rope_scaling.mrope_section: has 3 elements of sum 64" + must);
  EXPECT_EQ(sections("[16, 16]"), "rope_scaling.mrope_section: has 2 elements of sum 32" + must);
  EXPECT_EQ(sections("[-8, 20, 20]"),
            "rope_scaling.mrope_section: has 3 elements of sum 32" + must);
  EXPECT_EQ(sections("[7.5, 12, 12.5]"),
            "rope_scaling.mrope_section: has 3 elements of sum 32" + must);
  EXPECT_EQ(RopeRefusal(R"("type": "mrope", "mrope_section": [8, 12, 12],
                "mrope_interleaved": true)",
                        "", "qwen2_5_vl"),
            "rope_scaling.mrope_interleaved: is not known for this rope_type of qwen2_5_vl_text, "
            "must be absent");
}

TEST(ModelSpecRefusals, LayerTypesOfGemma) {
  const auto refusal = [](const std::string& fields) {
    return Refusal(With(fields, "gemma3_text"));
  };
  EXPECT_EQ(refusal(R"("layer_types": ["full_attention"])"),
            "layer_types: has 1 elements, must have 2, num_hidden_layers");
  EXPECT_EQ(
      refusal(R"("layer_types": ["full_attention", "chunked_attention"])"),
      "layer_types: has \"chunked_attention\", must have full_attention and sliding_attention "
      "only");
  EXPECT_EQ(refusal(R"("_sliding_window_pattern": 2)"),
            "layer_types: is missing, must be given beside _sliding_window_pattern");
  EXPECT_EQ(refusal(R"("rope_parameters": {"rope_theta": 10000})"),
            "rope_parameters.rope_theta: is not known for gemma3_text, must be absent beside "
            "full_attention and sliding_attention");
  EXPECT_EQ(
      refusal(R"("rope_local_base_freq": 5000,
                "rope_parameters": {"sliding_attention": {"rope_theta": 10000}})"),
      "rope_parameters.sliding_attention.rope_theta: is 10000, must be 5000, as it is outside "
      "of this object");
}

// Every field of a configuration with every kind of value, and every part of its text: an answer,
// and the same one again.
TEST(ModelSpecRefusals, AnyTextHasAnAnswer) {
  const std::string config = With(R"("text_config": {"rope_scaling": {"rope_type": "yarn",
      "factor": 2}, "layer_types": ["full_attention"]}, "rope_theta": 1e4)",
                                  "gemma3");
  for (size_t length = 0; length < config.size(); ++length) {
    EXPECT_FALSE(SpecFromConfig(config.substr(0, length)).ok());
    std::string changed = config;
    for (const char byte : {'"', '{', '}', '[', ']', ',', '0', '\\', '\xff'}) {
      changed[length] = byte;
      EXPECT_EQ(Refusal(changed), Refusal(changed));
    }
  }
  for (const char* type : {"gemma3_text", "glm4_moe", "gpt_oss", "phi3", "qwen2_5_vl", "qwen3"}) {
    for (const char* field : {"model_type",
                              "dtype",
                              "num_attention_heads",
                              "num_key_value_heads",
                              "head_dim",
                              "hidden_size",
                              "attention_bias",
                              "rms_norm_eps",
                              "num_hidden_layers",
                              "rope_theta",
                              "max_position_embeddings",
                              "rope_scaling",
                              "rope_parameters",
                              "partial_rotary_factor",
                              "original_max_position_embeddings",
                              "layer_types",
                              "use_qk_norm",
                              "text_config",
                              "sliding_window_pattern",
                              "rope_local_base_freq"}) {
      for (const char* value : {"null", "true", "-1", "1e300", "\"\"", "[]", "{}", "[[1], null]",
                                "{\"rope_type\": [], \"mrope_section\": 1e300}"}) {
        const std::string text = With(std::string("\"") + field + "\": " + value, type);
        EXPECT_EQ(Refusal(text), Refusal(text));
      }
    }
  }
}

}  // namespace
}  // namespace qkvfuse::testing
