// The Spec of a published model: from the text of its config.json, as Hugging Face transformers
// writes it, to what MakePlan and FillRopeTable take. docs/models.md lists the models.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "qkvfuse/export.hpp"
#include "qkvfuse/fused_qkv.hpp"
#include "qkvfuse/rope_table.hpp"
#include "qkvfuse/status.hpp"

namespace qkvfuse {

struct ModelSpec {
  std::string model_type;  // of the decoder: gemma3_text also where the config says gemma3
  /// Of every layer: packed q, k and v of x_dtype, parameters and q_out of the same, fp32 tables by
  /// position (kJoined). Caches, slots and dense outputs of k and v are the caller's to add. q is
  /// not multiplied by the attention's scale.
  FusedQkvSpec spec;
  /// What to fill the tables with. The scalings kDynamicNtk and kLongRope still need their
  /// sequence_length. A caller who wants fewer rows sets max_positions here and in spec.rope.
  std::vector<RopeTableSpec> rope_tables;
  /// The table of each layer, an index of rope_tables. Gemma 3: 0 in layers of full attention, 1 in
  /// those with a sliding window.
  std::vector<int32_t> rope_of_layer;

  [[nodiscard]] int64_t layers() const noexcept {
    return static_cast<int64_t>(rope_of_layer.size());
  }
  bool operator==(const ModelSpec&) const = default;
};

/// `dtype` is x_dtype: fp32, fp16 or bf16; absent, it is the config's dtype or torch_dtype. Refused
/// are models that are not known, and fields that may change q, k or v and are not known, or have
/// values that are not known, for the model.
[[nodiscard]] QKVFUSE_API Result<ModelSpec> SpecFromConfig(
    std::string_view config_json, std::optional<DType> dtype = {}) noexcept;

/// The same from a file.
[[nodiscard]] QKVFUSE_API Result<ModelSpec> SpecFromConfigFile(
    const std::string& path, std::optional<DType> dtype = {}) noexcept;

}  // namespace qkvfuse
