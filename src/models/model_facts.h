// What is known of each model type: how its attention treats q, k and v before the scores, what its
// configuration may leave out, and which of its fields change nothing here.
#pragma once

#include <string>
#include <string_view>

#include "qkvfuse/fused_qkv.hpp"

namespace qkvfuse {

struct ModelFacts {
  /// Whether the projections of q, k and v have a bias.
  enum class Bias : uint8_t {
    kNever,   // attention_bias must be false, where it is given
    kAlways,  // must be true
    kUnlessFalse,
    kIfTrue,
  };
  /// Where the parameters of the rotation are, and which are known.
  enum class Rope : uint8_t {
    kAny,           // rope_theta and rope_scaling, or rope_parameters
    kLongRopeOnly,  // the same, of type default, longrope or su
    kMustBeGiven,   // the same, but rope_scaling or rope_parameters may not be absent
    kMrope,         // the same, with mrope_section
    kPerLayerType,  // other ones in layers with a sliding window
  };

  const char* model_type;
  NormSpec::Kind norm;  // of q and k, before they are rotated
  NormSpec::Gamma gamma = NormSpec::Gamma::kPlain;
  const char* norm_flag = nullptr;  // the field without which there is no norm
  RopeSpec::Pairing pairing = RopeSpec::Pairing::kHalves;
  Rope rope = Rope::kAny;
  Bias bias = Bias::kIfTrue;
  /// Where a field is absent. 0: it must be given, or as the comment says.
  struct Defaults {
    int64_t layers = 0;
    int64_t q_heads = 0;
    int64_t kv_heads = 0;  // 0: num_attention_heads
    int64_t hidden_size = 0;
    int64_t head_dim = 0;  // 0: hidden_size / num_attention_heads
    int64_t max_positions = 0;
    double epsilon = 1e-6;
    double theta = 10000;
    double partial_rotary_factor = 1;  // 1: and no other is allowed, unless may_be_partial
  } defaults{};
  bool may_be_partial = false;
};

/// Null where the type is not known.
[[nodiscard]] const ModelFacts* FactsOf(std::string_view model_type);

/// "gemma3, gemma3_text, glm, ..."
[[nodiscard]] std::string KnownModelTypes();

/// A configuration of several parts, whose text_config is the decoder's.
struct ModelParts {
  std::string_view model_type;
  std::string_view decoder;
  bool may_be_flat;  // old ones have the decoder's fields in place of text_config
};
/// Null where the type is that of a decoder.
[[nodiscard]] const ModelParts* PartsOf(std::string_view model_type);

/// Whether a field that is not read may change q, k or v, for all that is known: its name has a
/// word of the subject, and it is not one of those known not to.
[[nodiscard]] bool MayMatter(std::string_view field, std::string_view model_type);

}  // namespace qkvfuse
