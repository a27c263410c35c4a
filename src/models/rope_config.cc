// From the parameters of a rotation, as transformers names them, to a RopeTableSpec.
#include "models/rope_config.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "models/rope_frequencies.h"

namespace qkvfuse {
namespace {

using Kind = RopeScaling::Kind;

constexpr std::pair<const char*, Kind> kTypes[] = {
    {"default", Kind::kNone}, {"linear", Kind::kLinear}, {"dynamic", Kind::kDynamicNtk},
    {"yarn", Kind::kYarn},    {"llama3", Kind::kLlama3}, {"longrope", Kind::kLongRope},
};

/// Whether a type of rotation is known for a model.
bool IsAllowed(Kind kind, ModelFacts::Rope rope) {
  return rope != ModelFacts::Rope::kLongRopeOnly || kind == Kind::kNone || kind == Kind::kLongRope;
}

/// The names by which some models know a type.
std::string Canonical(const std::string& type, ModelFacts::Rope rope) {
  if (rope == ModelFacts::Rope::kMrope && type == "mrope") return "default";
  if (rope == ModelFacts::Rope::kLongRopeOnly && type == "su") return "longrope";
  return type;
}

Kind ReadKind(ModelFacts::Rope rope, ConfigObject* object) {
  const std::optional<std::string> type = object->Word("rope_type");
  const std::optional<std::string> old_type = object->Word("type");
  if (type && old_type && Canonical(*type, rope) != Canonical(*old_type, rope)) {
    object->Refuse("type", "is ", *old_type, ", must be ", *type, ", as rope_type is");
  }
  const std::string given = type ? *type : old_type.value_or("default");
  std::string allowed;
  for (const auto& [name, kind] : kTypes) {
    if (!IsAllowed(kind, rope)) continue;
    if (Canonical(given, rope) == name) return kind;
    allowed += (allowed.empty() ? "" : ", ") + std::string(name);
  }
  object->Refuse(type ? "rope_type" : "type", "is ", Shown(given), ", must be one of ", allowed);
  return Kind::kNone;
}

/// The value of a field of the object or of the one outside, which must not differ.
template <typename T>
std::optional<T> OneOf(const char* name, std::optional<T> inside, std::optional<T> outside,
                       ConfigObject* object) {
  if (inside && outside && *inside != *outside) {
    object->Refuse(name, "is ", *inside, ", must be ", *outside,
                   ", as it is outside of this object");
  }
  return inside ? inside : outside;
}

int64_t ReadOriginal(const RopeContext& context, ConfigObject* object) {
  constexpr auto kName = "original_max_position_embeddings";
  const std::optional<int64_t> original =
      OneOf(kName, object->Integer(kName, kMostPositions), context.original_max_positions, object);
  if (!original && context.facts.rope == ModelFacts::Rope::kLongRopeOnly) {
    object->Refuse(kName, "is missing, must be given for ", context.facts.model_type);
  }
  return original.value_or(context.max_positions);
}

double ReadFactor(ConfigObject* object) {
  const std::optional<double> factor = object->Number("factor");
  if (!factor) object->Refuse("factor", "is missing, must be given");
  return factor.value_or(1);
}

/// How many times longer the longest context is, where no factor says so.
double Extension(const RopeContext& context, const RopeScaling& scaling) {
  return static_cast<double>(context.max_positions) /
         static_cast<double>(scaling.original_max_positions);
}

void ReadYarn(const RopeContext& context, ConfigObject* object, RopeScaling* scaling) {
  scaling->original_max_positions = ReadOriginal(context, object);
  scaling->factor = object->Number("factor").value_or(Extension(context, *scaling));
  scaling->attention_factor = object->Number("attention_factor");
  scaling->beta_fast = object->Number("beta_fast").value_or(scaling->beta_fast);
  scaling->beta_slow = object->Number("beta_slow").value_or(scaling->beta_slow);
  scaling->mscale = object->Number("mscale").value_or(0);
  scaling->mscale_all_dim = object->Number("mscale_all_dim").value_or(0);
  scaling->truncate = object->Flag("truncate").value_or(true);
  // transformers reads it beside the parameters of the layer types, not in them.
  if (!scaling->truncate && context.facts.rope == ModelFacts::Rope::kPerLayerType) {
    object->Refuse("truncate", "is false, must be true or absent for ", context.facts.model_type);
  }
}

void ReadLlama3(const RopeContext& context, ConfigObject* object, RopeScaling* scaling) {
  scaling->factor = ReadFactor(object);
  scaling->original_max_positions = ReadOriginal(context, object);
  for (const auto& [name, member] : {std::pair{"low_freq_factor", &scaling->low_freq_factor},
                                     std::pair{"high_freq_factor", &scaling->high_freq_factor}}) {
    const std::optional<double> value = object->Number(name);
    if (!value) object->Refuse(name, "is missing, must be given");
    *member = value.value_or(*member);
  }
}

/// Versions of transformers differ in whether `factor` or the ratio of the lengths counts, so they
/// must be the same.
void ReadLongRope(const RopeContext& context, ConfigObject* object, RopeScaling* scaling) {
  scaling->original_max_positions = ReadOriginal(context, object);
  scaling->factor = Extension(context, *scaling);
  const double factor = object->Number("factor").value_or(scaling->factor);
  if (factor != scaling->factor) {
    object->Refuse("factor", "is ", factor, ", must be ", scaling->factor,
                   ", max_position_embeddings / original_max_position_embeddings");
  }
  scaling->attention_factor = object->Number("attention_factor");
  scaling->short_factor = object->Numbers("short_factor");
  scaling->long_factor = object->Numbers("long_factor");
}

RopeScaling ReadScaling(const RopeContext& context, ConfigObject* object) {
  RopeScaling scaling;
  scaling.kind = ReadKind(context.facts.rope, object);
  switch (scaling.kind) {
    case Kind::kNone:
    case Kind::kNtk:  // has no name in configurations
      break;
    case Kind::kLinear:
      scaling.factor = ReadFactor(object);
      break;
    case Kind::kDynamicNtk:
      scaling.factor = ReadFactor(object);
      scaling.original_max_positions = context.max_positions;
      break;
    case Kind::kYarn:
      ReadYarn(context, object, &scaling);
      break;
    case Kind::kLlama3:
      ReadLlama3(context, object, &scaling);
      break;
    case Kind::kLongRope:
      ReadLongRope(context, object, &scaling);
      break;
  }
  return scaling;
}

/// The share of a head's channels that rotate, and how many they are.
int64_t ReadRotaryDim(const RopeContext& context, ConfigObject* object) {
  constexpr auto kName = "partial_rotary_factor";
  const double factor = OneOf(kName, object->Number(kName), context.partial_rotary_factor, object)
                            .value_or(context.facts.defaults.partial_rotary_factor);
  if (factor != 1 && !context.facts.may_be_partial) {
    object->Fail(Invalid(kName, ": is ", factor, ", must be 1, as ", context.facts.model_type,
                         " rotates whole heads"));
  }
  const bool is_share = factor > 0 && factor <= 1;
  // Cut, not rounded, as transformers has it.
  const auto rotary_dim =
      static_cast<int64_t>(static_cast<double>(context.head_dim) * (is_share ? factor : 1.0));
  if (!is_share || rotary_dim < 2 || rotary_dim > kMostRotaryDim || rotary_dim % 2 != 0) {
    object->Fail(Invalid("head_dim, partial_rotary_factor: are ", context.head_dim, " and ", factor,
                         ", must give an even number of channels from 2 to ", kMostRotaryDim,
                         ", and at most all of a head"));
  }
  return rotary_dim;
}

double ReadTheta(const RopeContext& context, ConfigObject* object) {
  constexpr auto kName = "rope_theta";
  const double theta =
      OneOf(kName, object->Number(kName), context.theta, object).value_or(context.default_theta);
  if (theta <= 1) object->Fail(Invalid(kName, ": is ", theta, ", must be more than 1"));
  return theta;
}

/// The pairs of each of the three positions.
std::array<int64_t, 3> ReadSections(int64_t rotary_dim, ConfigObject* object) {
  constexpr auto kName = "mrope_section";
  std::array<int64_t, 3> pairs{};
  const std::vector<double> sections = object->Numbers(kName);
  const double sum = std::accumulate(sections.begin(), sections.end(), 0.0);
  const bool are_counts = std::all_of(sections.begin(), sections.end(), [](double section) {
    return section >= 0 && section == std::floor(section);
  });
  if (!are_counts || sections.size() != pairs.size() ||
      sum != static_cast<double>(rotary_dim / 2)) {
    object->Refuse(kName, "has ", sections.size(), " elements of sum ", sum,
                   ", must have 3, whole and not negative, of sum ", rotary_dim / 2);
    return pairs;
  }
  std::transform(sections.begin(), sections.end(), pairs.begin(),
                 [](double section) { return static_cast<int64_t>(section); });
  return pairs;
}

/// The table's own checks, with some length where the caller still has to say one.
Status CheckTable(RopeTableSpec table) {
  const Kind kind = table.scaling.kind;
  const bool needs_length = kind == Kind::kDynamicNtk || kind == Kind::kLongRope;
  if (needs_length) table.scaling.sequence_length = 1;
  return RopeFrequencies(table).status();
}

}  // namespace

Result<RopeConfig> ReadRope(const RopeContext& context, ConfigObject object) {
  RopeConfig config;
  config.table.max_positions = context.max_positions;
  config.table.rotary_dim = ReadRotaryDim(context, &object);
  config.table.theta = ReadTheta(context, &object);
  config.table.scaling = ReadScaling(context, &object);
  if (context.facts.rope == ModelFacts::Rope::kMrope) {
    config.section_pairs = ReadSections(config.table.rotary_dim, &object);
  }
  for (const std::string& name : object.Unread()) {
    object.Refuse(name, "is not known for this rope_type of ", context.facts.model_type,
                  ", must be absent");
  }
  if (!object.status().ok()) return object.status();
  if (const Status status = CheckTable(config.table); !status.ok()) {
    return Invalid(object.prefix().substr(0, object.prefix().size() - 1), ": ", status.message());
  }
  return config;
}

}  // namespace qkvfuse
