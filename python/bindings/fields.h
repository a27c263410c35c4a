// The fields of the Specs by name, listed once for reading them from Python objects and for writing
// them back. The names, and those of the Python dataclasses, are the members'.
#pragma once

#include "qkvfuse/fused_qkv.hpp"
#include "qkvfuse/rope_table.hpp"

namespace qkvfuse::python {

/// The words of an enumeration, in the order of its values (qkvfuse/_words.py).
template <typename E>
extern const char* const kWords[];  // only what is listed here has words
template <>
inline constexpr const char* kWords<NormSpec::Kind>[] = {"none", "per_head", "full_width"};
template <>
inline constexpr const char* kWords<NormSpec::Gamma>[] = {"plain", "one_plus", "none"};
template <>
inline constexpr const char* kWords<NormOrder>[] = {"before_rope", "after_rope"};
template <>
inline constexpr const char* kWords<RopeSpec::Pairing>[] = {"none", "halves", "interleaved"};
template <>
inline constexpr const char* kWords<RopeSpec::Table>[] = {"row_per_token", "two_tables", "joined"};
template <>
inline constexpr const char* kWords<RopeSpec::Sections>[] = {"none", "concatenated", "interleaved"};
template <>
inline constexpr const char* kWords<ScaleRule>[] = {"divide", "multiply", "dynamic"};
template <>
inline constexpr const char* kWords<ScaleGranularity>[] = {"channel", "head", "tensor"};
template <>
inline constexpr const char* kWords<SlotMode>[] = {"slot_per_token", "start_per_sequence",
                                                   "page_table"};
template <>
inline constexpr const char* kWords<RopeScaling::Kind>[] = {
    "none", "linear", "ntk", "dynamic_ntk", "yarn", "llama3", "long_rope"};

template <typename Visitor>
void VisitFields(NormSpec& norm, Visitor&& visit) {
  visit("kind", norm.kind);
  visit("gamma", norm.gamma);
  visit("gamma_dtype", norm.gamma_dtype);
  visit("total_heads", norm.total_heads);
}

template <typename Visitor>
void VisitFields(RopeSpec& rope, Visitor&& visit) {
  visit("pairing", rope.pairing);
  visit("rotary_dim", rope.rotary_dim);
  visit("rotates_last", rope.rotates_last);
  visit("table", rope.table);
  visit("dtype", rope.dtype);
  visit("half_width", rope.half_width);
  visit("max_positions", rope.max_positions);
  visit("position_dtype", rope.position_dtype);
  visit("sections", rope.sections);
  visit("section_pairs", rope.section_pairs);
}

template <typename Visitor>
void VisitFields(DenseSpec& dense, Visitor&& visit) {
  visit("dtype", dense.dtype);
  visit("has_offset", dense.has_offset);
  visit("scale_rule", dense.scale_rule);
  visit("granularity", dense.granularity);
}

/// All but the layouts, which Python has as arrays.
template <typename Visitor>
void VisitFields(CacheSpec& cache, Visitor&& visit) {
  visit("dtype", cache.dtype);
  visit("has_offset", cache.has_offset);
  visit("scale_rule", cache.scale_rule);
  visit("granularity", cache.granularity);
}

template <typename Visitor>
void VisitFields(SlotSpec& slots, Visitor&& visit) {
  visit("mode", slots.mode);
  visit("dtype", slots.dtype);
  visit("pages", slots.pages);
  visit("zeroes_unused_rows", slots.zeroes_unused_rows);
}

/// All but the caches.
template <typename Visitor>
void VisitFields(FusedQkvSpec& spec, Visitor&& visit) {
  visit("x_dtype", spec.x_dtype);
  visit("heads", spec.heads);
  visit("head_dim", spec.head_dim);
  visit("v_head_dim", spec.v_head_dim);
  visit("is_separate", spec.is_separate);
  visit("has_token_scale", spec.has_token_scale);
  visit("bias", spec.bias);
  visit("q_norm", spec.q_norm);
  visit("k_norm", spec.k_norm);
  visit("v_norm", spec.v_norm);
  visit("norm_order", spec.norm_order);
  visit("epsilon", spec.epsilon);
  visit("rope", spec.rope);
  visit("q_out", spec.q_out);
  visit("q_before_quant", spec.q_before_quant);
  visit("k_out", spec.k_out);
  visit("v_out", spec.v_out);
  visit("slots", spec.slots);
}

template <typename Visitor>
void VisitFields(RopeScaling& scaling, Visitor&& visit) {
  visit("kind", scaling.kind);
  visit("factor", scaling.factor);
  visit("original_max_positions", scaling.original_max_positions);
  visit("sequence_length", scaling.sequence_length);
  visit("beta_fast", scaling.beta_fast);
  visit("beta_slow", scaling.beta_slow);
  visit("truncate", scaling.truncate);
  visit("mscale", scaling.mscale);
  visit("mscale_all_dim", scaling.mscale_all_dim);
  visit("attention_factor", scaling.attention_factor);
  visit("low_freq_factor", scaling.low_freq_factor);
  visit("high_freq_factor", scaling.high_freq_factor);
  visit("short_factor", scaling.short_factor);
  visit("long_factor", scaling.long_factor);
}

template <typename Visitor>
void VisitFields(RopeTableSpec& table, Visitor&& visit) {
  visit("rotary_dim", table.rotary_dim);
  visit("max_positions", table.max_positions);
  visit("theta", table.theta);
  visit("scaling", table.scaling);
}

}  // namespace qkvfuse::python
