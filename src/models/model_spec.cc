// From config.json to a ModelSpec.
#include "qkvfuse/model_spec.hpp"

#include <fstream>
#include <utility>

#include "base/fp_environment.h"
#include "models/model_facts.h"
#include "models/rope_config.h"

namespace qkvfuse {
namespace {

constexpr int kDeepest = 32;  // objects and lists in each other
constexpr int64_t kMostLayers = 65536;
constexpr int64_t kMostHeads = 65536;
constexpr int64_t kMostChannels = INT32_MAX;

constexpr std::pair<const char*, DType> kDTypes[] = {
    {"float32", DType::kFloat32}, {"float16", DType::kFloat16}, {"bfloat16", DType::kBFloat16}};

/// The decoder's fields, and those around them, where the configuration has several parts. Each is
/// refused for fields of its own.
struct Config {
  const ModelFacts& facts;
  ConfigObject decoder;
  ConfigObject outer;
};

/// One fact under an old name and a new one, inside and outside of text_config: wherever it is
/// given, it must be the same.
std::optional<DType> ReadDType(Config* config) {
  std::optional<std::string> first;
  std::string first_place;
  std::optional<DType> found;
  for (ConfigObject* const object : {&config->decoder, &config->outer}) {
    for (const char* field : {"dtype", "torch_dtype"}) {
      const std::optional<std::string> word = object->Word(field);
      if (!word) continue;
      if (first && *word != *first) {
        object->Refuse(field, "is ", Shown(*word), ", must be that of ", first_place, ", ",
                       Shown(*first), ", unless the caller gives dtype");
      }
      if (!first) first_place = object->prefix() + field;
      if (!first) first = word;
      for (const auto& [name, dtype] : kDTypes) {
        if (*word == name) found = dtype;
      }
      if (found) continue;
      object->Refuse(field, "is ", Shown(*word),
                     ", must be float32, float16 or bfloat16, unless the caller gives dtype");
    }
  }
  return found;
}

/// The caller's, the decoder's, or that of the whole configuration.
DType DTypeOf(std::optional<DType> given, Config* config) {
  if (given && !IsFloat(*given)) {
    config->decoder.Fail(Invalid("dtype: is ", Name(*given), ", must be fp32, fp16 or bf16"));
  }
  if (given) return *given;
  const std::optional<DType> dtype = ReadDType(config);
  if (!dtype) {
    config->decoder.Fail(
        Invalid("dtype: is neither in the configuration nor given, one of the two must name it"));
  }
  return dtype.value_or(DType::kBFloat16);
}

bool HasBias(const ModelFacts& facts, ConfigObject* decoder) {
  using Bias = ModelFacts::Bias;
  const std::optional<bool> field = decoder->Flag("attention_bias");
  const bool by_default = facts.bias == Bias::kAlways || facts.bias == Bias::kUnlessFalse;
  const bool is_fixed = facts.bias == Bias::kAlways || facts.bias == Bias::kNever;
  if (is_fixed && field && *field != by_default) {
    decoder->Refuse("attention_bias", "is ", *field ? "true" : "false", ", must be ",
                    by_default ? "true" : "false", " or absent for ", facts.model_type);
  }
  return field.value_or(by_default);
}

int64_t ReadKvHeads(const ModelFacts& facts, int64_t q_heads, ConfigObject* decoder) {
  const std::optional<int64_t> heads = decoder->Integer("num_key_value_heads", kMostHeads);
  if (heads) return *heads;
  const bool is_as_q = facts.defaults.kv_heads == 0 || decoder->IsNull("num_key_value_heads");
  return is_as_q ? q_heads : facts.defaults.kv_heads;
}

int64_t ReadHeadDim(const ModelFacts& facts, int64_t q_heads, ConfigObject* decoder) {
  const std::optional<int64_t> given = decoder->Integer("head_dim", kMostChannels);
  // This model's attention does not look at head_dim.
  const bool is_derived = facts.rope == ModelFacts::Rope::kMrope;
  if (!is_derived && given) return *given;
  if (!is_derived && facts.defaults.head_dim != 0) {
    if (decoder->IsNull("head_dim")) {
      decoder->Refuse("head_dim", "is null, must be a number or absent for ", facts.model_type);
    }
    return facts.defaults.head_dim;
  }
  const int64_t hidden =
      decoder->Required("hidden_size", kMostChannels, facts.defaults.hidden_size);
  if (hidden % q_heads != 0) {
    decoder->Refuse("hidden_size", "is ", hidden, ", must be a multiple of num_attention_heads, ",
                    q_heads);
  }
  if (given && *given != hidden / q_heads) {
    decoder->Refuse("head_dim", "is ", *given, ", must be ", hidden / q_heads,
                    ", hidden_size / num_attention_heads, for ", facts.model_type);
  }
  return hidden / q_heads;
}

void ReadNorms(const ModelFacts& facts, ConfigObject* decoder, FusedQkvSpec* spec) {
  if (facts.norm == NormSpec::Kind::kNone) return;
  if (facts.norm_flag != nullptr && !decoder->Flag(facts.norm_flag).value_or(false)) return;
  spec->q_norm.kind = facts.norm;
  spec->q_norm.gamma = facts.gamma;
  spec->q_norm.gamma_dtype = spec->x_dtype;
  spec->k_norm = spec->q_norm;
  spec->epsilon = decoder->Number("rms_norm_eps").value_or(facts.defaults.epsilon);
  if (spec->epsilon < 0) {
    decoder->Refuse("rms_norm_eps", "is ", spec->epsilon, ", must not be negative");
  }
}

/// All but the rotation.
FusedQkvSpec ReadSpec(DType dtype, Config* config) {
  const ModelFacts& facts = config->facts;
  ConfigObject* const decoder = &config->decoder;
  FusedQkvSpec spec;
  spec.x_dtype = dtype;
  spec.q_out.dtype = dtype;
  spec.heads.q = decoder->Required("num_attention_heads", kMostHeads, facts.defaults.q_heads);
  spec.heads.k = spec.heads.v = ReadKvHeads(facts, spec.heads.q, decoder);
  spec.head_dim = ReadHeadDim(facts, spec.heads.q, decoder);
  if (HasBias(facts, decoder)) spec.bias = dtype;
  ReadNorms(facts, decoder, &spec);
  return spec;
}

/// The object that has the parameters of the rotation, and what it is called.
struct RopeObject {
  const Json* json = nullptr;
  const char* name = "rope_scaling";
};

RopeObject FindRope(const ModelFacts& facts, ConfigObject* decoder) {
  RopeObject old{decoder->Object("rope_scaling"), "rope_scaling"};
  RopeObject current{decoder->Object("rope_parameters"), "rope_parameters"};
  if (old.json != nullptr && current.json != nullptr) {
    decoder->Refuse("rope_scaling", "is given, must not be, where rope_parameters are");
  }
  if (facts.rope == ModelFacts::Rope::kMustBeGiven && old.json == nullptr &&
      current.json == nullptr) {
    decoder->Fail(Invalid("rope_scaling, rope_parameters: are missing, one must be given for ",
                          facts.model_type));
  }
  return current.json != nullptr ? current : old;
}

/// The parameters of the layer types of Gemma 3, in the order of ModelSpec::rope_tables.
Result<std::vector<RopeConfig>> ReadRopePerLayerType(RopeContext context, const RopeObject& rope,
                                                     ConfigObject* decoder) {
  const bool is_nested = rope.json != nullptr && std::string(rope.name) == "rope_parameters";
  ConfigObject nested(is_nested ? rope.json : nullptr, "rope_parameters.");
  const Json* const full = is_nested ? nested.Object("full_attention") : rope.json;
  const Json* const sliding = nested.Object("sliding_attention");
  for (const std::string& name : nested.Unread()) {
    nested.Refuse(name, "is not known for ", context.facts.model_type,
                  ", must be absent beside full_attention and sliding_attention");
  }
  if (!nested.status().ok()) return nested.status();
  std::vector<RopeConfig> configs;
  const std::string prefix = is_nested ? "rope_parameters.full_attention." : "rope_scaling.";
  Result<RopeConfig> config = ReadRope(context, ConfigObject(full, prefix));
  if (!config.ok()) return config.status();
  configs.push_back(*config);
  context.theta = decoder->Number("rope_local_base_freq");
  context.default_theta = 10000;
  config = ReadRope(context, ConfigObject(sliding, "rope_parameters.sliding_attention."));
  if (!config.ok()) return config.status();
  configs.push_back(*config);
  return configs;
}

Result<std::vector<RopeConfig>> ReadRopes(const FusedQkvSpec& spec, int64_t max_positions,
                                          Config* config) {
  ConfigObject* const decoder = &config->decoder;
  const RopeObject rope = FindRope(config->facts, decoder);
  const RopeContext context{.facts = config->facts,
                            .head_dim = spec.head_dim,
                            .max_positions = max_positions,
                            .default_theta = config->facts.defaults.theta,
                            .theta = decoder->Number("rope_theta"),
                            .partial_rotary_factor = decoder->Number("partial_rotary_factor"),
                            .original_max_positions = decoder->Integer(
                                "original_max_position_embeddings", kMostPositions)};
  // What the fields before these lack comes first.
  if (!decoder->status().ok()) return decoder->status();
  if (config->facts.rope == ModelFacts::Rope::kPerLayerType) {
    return ReadRopePerLayerType(context, rope, decoder);
  }
  const Result<RopeConfig> read =
      ReadRope(context, ConfigObject(rope.json, std::string(rope.name) + "."));
  if (!read.ok()) return read.status();
  return std::vector<RopeConfig>{*read};
}

void SetRope(const ModelFacts& facts, const RopeConfig& config, RopeSpec* rope) {
  rope->pairing = facts.pairing;
  rope->rotary_dim = config.table.rotary_dim;
  rope->table = RopeSpec::Table::kJoined;
  rope->dtype = DType::kFloat32;
  rope->max_positions = config.table.max_positions;
  if (facts.rope == ModelFacts::Rope::kMrope) {
    rope->sections = RopeSpec::Sections::kConcatenated;
    rope->section_pairs = config.section_pairs;
  }
}

/// The tables of Gemma 3's layers: by name, or every n-th of full attention.
std::vector<int32_t> ReadLayerTypes(int64_t layers, ConfigObject* decoder) {
  std::vector<int32_t> ropes;
  const std::vector<std::string> types = decoder->Words("layer_types");
  const int64_t pattern = decoder->Integer("sliding_window_pattern", kMostLayers).value_or(6);
  // What transformers writes beside layer_types, and does not read.
  const int64_t written =
      decoder->Integer("_sliding_window_pattern", kMostLayers).value_or(pattern);
  if (types.empty()) {
    if (written != pattern) {
      decoder->Refuse("layer_types", "is missing, must be given beside _sliding_window_pattern");
    }
    for (int64_t layer = 1; layer <= layers; ++layer) ropes.push_back(layer % pattern == 0 ? 0 : 1);
    return ropes;
  }
  if (static_cast<int64_t>(types.size()) != layers) {
    decoder->Refuse("layer_types", "has ", types.size(), " elements, must have ", layers,
                    ", num_hidden_layers");
  }
  for (const std::string& type : types) {
    if (type != "full_attention" && type != "sliding_attention") {
      decoder->Refuse("layer_types", "has ", Shown(type),
                      ", must have full_attention and sliding_attention only");
    }
    ropes.push_back(type == "full_attention" ? 0 : 1);
  }
  return ropes;
}

/// Fields that nobody read and that may matter. Some configurations of several parts repeat fields
/// of the decoder outside of it.
void RefuseUnknownFields(Config* config) {
  ConfigObject& decoder = config->decoder;
  ConfigObject& outer = config->outer;
  const char* const type = config->facts.model_type;
  for (const std::string& name : decoder.Unread()) {
    if (!MayMatter(name, type)) continue;
    decoder.Refuse(name, "is not known for ", type, ", must be absent, as it may change q, k or v");
  }
  for (const std::string& name : outer.Unread()) {
    const Json* const inside = decoder.Peek(name);
    const bool is_repeated = inside != nullptr && *inside == *outer.Peek(name);
    if (is_repeated || !(decoder.WasRead(name) || MayMatter(name, type))) continue;
    outer.Refuse(name, "is given beside text_config, must be the same inside of it");
  }
}

Result<ModelSpec> Read(Config config, std::optional<DType> dtype) {
  ConfigObject* const decoder = &config.decoder;
  const ModelFacts& facts = config.facts;
  ModelSpec model;
  model.model_type = facts.model_type;
  model.spec = ReadSpec(DTypeOf(dtype, &config), &config);
  const int64_t layers = decoder->Required("num_hidden_layers", kMostLayers, facts.defaults.layers);
  const int64_t positions =
      decoder->Required("max_position_embeddings", kMostPositions, facts.defaults.max_positions);
  const Result<std::vector<RopeConfig>> ropes = ReadRopes(model.spec, positions, &config);
  if (!ropes.ok()) return ropes.status();
  SetRope(facts, ropes->front(), &model.spec.rope);
  for (const RopeConfig& rope : *ropes) model.rope_tables.push_back(rope.table);
  model.rope_of_layer = facts.rope == ModelFacts::Rope::kPerLayerType
                            ? ReadLayerTypes(layers, decoder)
                            : std::vector<int32_t>(static_cast<size_t>(layers), 0);
  RefuseUnknownFields(&config);
  if (!decoder->status().ok()) return decoder->status();
  if (!config.outer.status().ok()) return config.outer.status();
  return model;
}

/// The brackets of a text nest no deeper than any configuration's: what walks the values is
/// recursive.
bool IsShallow(std::string_view text) {
  int depth = 0;
  bool is_in_string = false;
  for (size_t i = 0; i < text.size() && depth <= kDeepest; ++i) {
    const char c = text[i];
    if (is_in_string && c == '\\') ++i;
    if (c == '"') is_in_string = !is_in_string;
    if (is_in_string) continue;
    if (c == '{' || c == '[') ++depth;
    if (c == '}' || c == ']') --depth;
  }
  return depth <= kDeepest;
}

/// What is known of a type, refused where that is nothing.
Result<const ModelFacts*> KnownFacts(const std::optional<std::string>& type) {
  if (!type) return Invalid("model_type: is missing, must be one of ", KnownModelTypes());
  const ModelParts* const parts = PartsOf(*type);
  const ModelFacts* const facts = FactsOf(parts == nullptr ? *type : parts->decoder);
  if (facts != nullptr) return facts;
  return Invalid("model_type: is ", Shown(*type), ", must be one of ", KnownModelTypes());
}

Result<ModelSpec> FromObject(const Json& json, std::optional<DType> dtype) {
  ConfigObject outer(&json, "");
  const std::optional<std::string> type = outer.Word("model_type");
  const Json* const text_config = outer.Object("text_config");
  if (!outer.status().ok()) return outer.status();
  const Result<const ModelFacts*> facts = KnownFacts(type);
  if (!facts.ok()) return facts.status();
  const ModelParts* const parts = PartsOf(*type);
  if (text_config == nullptr) {
    if (parts != nullptr && !parts->may_be_flat) {
      return Invalid("text_config: is missing, must be given for ", *type);
    }
    return Read({**facts, outer, ConfigObject(nullptr, "")}, dtype);
  }
  if (parts == nullptr) return Invalid("text_config: is given, must be absent for ", *type);
  ConfigObject decoder(text_config, "text_config.");
  const char* const known = (*facts)->model_type;
  const std::string inner = decoder.Word("model_type").value_or(known);
  if (inner != known) decoder.Refuse("model_type", "is ", Shown(inner), ", must be ", known);
  return Read({**facts, decoder, outer}, dtype);
}

Result<ModelSpec> FromText(std::string_view text, std::optional<DType> dtype) {
  if (!IsShallow(text)) return Invalid("config: nests deeper than ", kDeepest, ", must not");
  const Json json = Json::parse(text, nullptr, false);
  if (!json.is_object()) return Invalid("config: is not the text of a JSON object, must be one");
  return FromObject(json, dtype);
}

}  // namespace

Result<ModelSpec> SpecFromConfig(std::string_view config_json, std::optional<DType> dtype) noexcept
    try {
  const ScopedFpEnvironment environment;
  return FromText(config_json, dtype);
} catch (...) {
  return Status(StatusCode::kOutOfMemory, {});
}

Result<ModelSpec> SpecFromConfigFile(const std::string& path, std::optional<DType> dtype) noexcept
    try {
  std::ifstream file(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  if (!file) return Invalid("path: ", path, " cannot be read, must be a file that can");
  return SpecFromConfig(text, dtype);
} catch (const std::ios_base::failure&) {  // a folder
  return Invalid("path: ", path, " cannot be read, must be a file that can");
} catch (...) {
  return Status(StatusCode::kOutOfMemory, {});
}

}  // namespace qkvfuse
