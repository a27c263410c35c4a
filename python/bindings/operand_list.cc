// Which arrays the calls of a Spec take.
#include <utility>

#include "operands.h"

namespace qkvfuse::python {
using Form = Operand::Form;

Operands::Operands(const SpecOfArrays& spec, bool measures) : spec_(spec) {
  AddSources(measures);
  if (!measures) AddNorms();
  if (!measures || spec.spec.norm_order == NormOrder::kAfterRope) AddRope();
  AddDequantisation();
  if (measures) {
    const FusedQkvSpec& s = spec_.spec;
    const auto add = [&](const char* name, const NormSpec& norm, int64_t heads, void* Tensors::*p) {
      if (norm.kind != NormSpec::Kind::kFullWidth || norm.total_heads == 0) return;
      operands_.push_back({.name = name,
                           .form = Form::kDenseRows,
                           .dtype = DType::kFloat32,
                           .is_output = true,
                           .width = heads,
                           .output = p});
    };
    add("q_head_sums", s.q_norm, s.heads.q, &Tensors::q_head_sums);
    add("k_head_sums", s.k_norm, s.heads.k, &Tensors::k_head_sums);
    return;
  }
  AddSlots();
  AddOutputs();
  AddCaches();
}

namespace {

struct Part {
  bool is_used;
  int64_t heads;
  int64_t width;
};

struct Parts {
  Part q, k, v;
  int64_t channels;

  explicit Parts(const FusedQkvSpec& s) {
    const bool has_caches = s.k_cache.has_value();
    const int64_t v_width = s.v_head_dim == 0 ? s.head_dim : s.v_head_dim;
    q = {true, s.heads.q, s.head_dim};
    k = {has_caches || s.k_out.has_value(), s.heads.k, s.head_dim};
    v = {has_caches || s.v_out.has_value(), s.heads.v, v_width};
    channels = (s.heads.q + s.heads.k) * s.head_dim + s.heads.v * v_width;
  }
};

Shape ScaleShape(ScaleGranularity granularity, const Part& part) {
  switch (granularity) {
    case ScaleGranularity::kChannel:
      return {part.heads, part.width};
    case ScaleGranularity::kHead:
      return {part.heads};
    case ScaleGranularity::kTensor:
      break;
  }
  return {1};
}

}  // namespace

void Operands::AddSources(bool measures) {
  const FusedQkvSpec& s = spec_.spec;
  const Parts parts(s);
  if (!s.is_separate) {
    operands_.push_back(
        {.name = "x",
         .form = Form::kPackedHeads,
         .dtype = s.x_dtype,
         .may_be_apart = parts.v.width == parts.q.width,
         .heads = s.heads.total(),
         .width = parts.channels,
         .input = &Tensors::x,
         .strides = [](FusedQkvSpec& o) -> TokenStrides& { return o.x_strides.emplace(); }});
    return;
  }
  const auto add = [&](const char* name, const Part& part, const void* Tensors::*input,
                       std::optional<TokenStrides> FusedQkvSpec::*strides) {
    if (!part.is_used) return;
    operands_.push_back({.name = name,
                         .form = Form::kHeads,
                         .dtype = s.x_dtype,
                         .heads = part.heads,
                         .width = part.width,
                         .input = input,
                         .strides = [strides](FusedQkvSpec& o) -> TokenStrides& {
                           return (o.*strides).emplace();
                         }});
  };
  const auto is_gathered = [](const NormSpec& norm) {
    return norm.kind == NormSpec::Kind::kFullWidth && norm.total_heads != 0;
  };
  if (!measures || is_gathered(s.q_norm)) add("q", parts.q, &Tensors::q, &FusedQkvSpec::q_strides);
  if (!measures || is_gathered(s.k_norm)) add("k", parts.k, &Tensors::k, &FusedQkvSpec::k_strides);
  if (!measures) add("v", parts.v, &Tensors::v, &FusedQkvSpec::v_strides);
}

void Operands::AddNorms() {
  const FusedQkvSpec& s = spec_.spec;
  const Parts parts(s);
  const auto add = [&](const char* gamma_name, const char* sums_name, const Part& part,
                       NormSpec FusedQkvSpec::*member, const void* Tensors::*gamma,
                       const void* Tensors::*sums) {
    const NormSpec& norm = s.*member;
    if (!part.is_used || norm.kind == NormSpec::Kind::kNone) return;
    const bool is_full = norm.kind == NormSpec::Kind::kFullWidth;
    if (norm.gamma != NormSpec::Gamma::kNone) {
      operands_.push_back({.name = gamma_name,
                           .form = Form::kElements,
                           .dtype = norm.gamma_dtype.value_or(s.x_dtype),
                           .dims = is_full ? Shape{part.heads, part.width} : Shape{part.width},
                           .input = gamma,
                           .shape = [member](FusedQkvSpec& o) -> StridedShape& {
                             return (o.*member).gamma_shape;
                           }});
    }
    if (is_full && norm.total_heads != 0) {
      operands_.push_back({.name = sums_name,
                           .form = Form::kDenseRows,
                           .dtype = DType::kFloat32,
                           .width = norm.total_heads,
                           .input = sums});
    }
  };
  add("q_gamma", "q_sums", parts.q, &FusedQkvSpec::q_norm, &Tensors::q_gamma, &Tensors::q_sums);
  add("k_gamma", "k_sums", parts.k, &FusedQkvSpec::k_norm, &Tensors::k_gamma, &Tensors::k_sums);
  add("v_gamma", "", parts.v, &FusedQkvSpec::v_norm, &Tensors::v_gamma, nullptr);
}

void Operands::AddRope() {
  const FusedQkvSpec& s = spec_.spec;
  const RopeSpec& rope = s.rope;
  if (rope.pairing == RopeSpec::Pairing::kNone) return;
  const bool is_joined = rope.table == RopeSpec::Table::kJoined;
  const bool has_positions = rope.table != RopeSpec::Table::kRowPerToken;
  const int64_t rotary_dim = rope.rotary_dim == 0 ? s.head_dim : rope.rotary_dim;
  const auto add = [&](const char* name, const void* Tensors::*input,
                       std::optional<TokenStrides> RopeSpec::*strides) {
    operands_.push_back({.name = name,
                         .form = has_positions ? Form::kTable : Form::kRows,
                         .dtype = rope.dtype.value_or(s.x_dtype),
                         .heads = rope.max_positions,
                         .width = rope.half_width && !is_joined ? rotary_dim / 2 : rotary_dim,
                         .input = input,
                         .strides = [strides](FusedQkvSpec& o) -> TokenStrides& {
                           return (o.rope.*strides).emplace();
                         }});
  };
  add("cos", &Tensors::cos, &RopeSpec::cos_strides);
  if (!is_joined) add("sin", &Tensors::sin, &RopeSpec::sin_strides);
  if (!has_positions) return;
  operands_.push_back({.name = "positions",
                       .form = Form::kPositions,
                       .dtype = rope.position_dtype,
                       .input = &Tensors::positions});
}

void Operands::AddDequantisation() {
  const FusedQkvSpec& s = spec_.spec;
  const int64_t channels = Parts(s).channels;
  const auto add = [&](const char* name, DType dtype, Shape dims, const void* Tensors::*input,
                       StridedShape FusedQkvSpec::*shape) {
    operands_.push_back({.name = name,
                         .form = Form::kElements,
                         .dtype = dtype,
                         .dims = std::move(dims),
                         .input = input,
                         .shape = [shape](FusedQkvSpec& o) -> StridedShape& { return o.*shape; }});
  };
  if (s.x_dtype == DType::kInt32) {
    add("weight_scale", DType::kFloat32, {channels}, &Tensors::weight_scale,
        &FusedQkvSpec::weight_scale_shape);
    if (s.has_token_scale) {
      add("token_scale", DType::kFloat32, {}, &Tensors::token_scale,
          &FusedQkvSpec::token_scale_shape);
    }
  }
  if (s.bias) add("bias", *s.bias, {channels}, &Tensors::bias, &FusedQkvSpec::bias_shape);
}

void Operands::AddSlots() {
  const FusedQkvSpec& s = spec_.spec;
  if (!s.k_cache) return;
  const DType dtype = s.slots.dtype;
  operands_.push_back(
      {.name = "slots", .form = Form::kSlots, .dtype = dtype, .input = &Tensors::slots});
  if (s.slots.mode != SlotMode::kPageTable) return;
  operands_.push_back(
      {.name = "lengths", .form = Form::kSequences, .dtype = dtype, .input = &Tensors::lengths});
  operands_.push_back({.name = "row_offsets",
                       .form = Form::kSequences,
                       .dtype = dtype,
                       .extra = 1,
                       .input = &Tensors::row_offsets});
}

void Operands::AddOutputs() {
  const FusedQkvSpec& s = spec_.spec;
  const Parts parts(s);
  const auto add = [&](const char* name, const DenseSpec& dense, const Part& part,
                       void* Tensors::*output, std::function<DenseSpec&(FusedQkvSpec&)> member) {
    operands_.push_back({.name = name,
                         .form = Form::kHeads,
                         .dtype = dense.dtype.value_or(s.x_dtype),
                         .is_output = true,
                         .heads = part.heads,
                         .width = part.width,
                         .output = output,
                         .strides = [member](FusedQkvSpec& o) -> TokenStrides& {
                           return member(o).strides.emplace();
                         }});
  };
  add("q_out", s.q_out, parts.q, &Tensors::q_out,
      [](FusedQkvSpec& o) -> DenseSpec& { return o.q_out; });
  if (s.q_before_quant) {
    add("q_before_quant", *s.q_before_quant, parts.q, &Tensors::q_before_quant,
        [](FusedQkvSpec& o) -> DenseSpec& { return *o.q_before_quant; });
  }
  if (s.k_out) {
    add("k_out", *s.k_out, parts.k, &Tensors::k_out,
        [](FusedQkvSpec& o) -> DenseSpec& { return *o.k_out; });
  }
  if (s.v_out) {
    add("v_out", *s.v_out, parts.v, &Tensors::v_out,
        [](FusedQkvSpec& o) -> DenseSpec& { return *o.v_out; });
  }
  if (!s.q_out.dtype || !IsQuantised(*s.q_out.dtype)) return;
  if (s.q_out.scale_rule == ScaleRule::kDynamic) {
    operands_.push_back({.name = "q_scale_out",
                         .form = Form::kRows,
                         .dtype = DType::kFloat32,
                         .is_output = true,
                         .heads = parts.q.heads,
                         .width = parts.q.heads,
                         .output = &Tensors::q_scale_out,
                         .strides = [](FusedQkvSpec& o) -> TokenStrides& {
                           return o.q_out.scale_out_strides.emplace();
                         }});
    return;
  }
  const Shape shape = ScaleShape(s.q_out.granularity, parts.q);
  operands_.push_back(
      {.name = "q_scale",
       .form = Form::kElements,
       .dtype = DType::kFloat32,
       .dims = shape,
       .input = &Tensors::q_scale,
       .shape = [](FusedQkvSpec& o) -> StridedShape& { return o.q_out.scale_shape; }});
  if (!s.q_out.has_offset) return;
  operands_.push_back(
      {.name = "q_offset",
       .form = Form::kElements,
       .dtype = DType::kFloat32,
       .dims = shape,
       .input = &Tensors::q_offset,
       .shape = [](FusedQkvSpec& o) -> StridedShape& { return o.q_out.offset_shape; }});
}

void Operands::AddCaches() {
  const FusedQkvSpec& s = spec_.spec;
  if (!s.k_cache) return;
  const Parts parts(s);
  using Member = std::optional<CacheSpec> FusedQkvSpec::*;
  const auto add_array = [&](const char* name, DType dtype, const CacheArray* array,
                             void* Tensors::*output, Member member,
                             CacheLayout CacheSpec::*layout) {
    operands_.push_back({.name = name,
                         .form = Form::kCache,
                         .dtype = dtype,
                         .is_output = true,
                         .cache = array,
                         .output = output,
                         .layout = [member, layout](FusedQkvSpec& o) -> CacheLayout& {
                           return (*(o.*member)).*layout;
                         }});
  };
  const auto add_elements = [&](const char* name, const CacheSpec& cache, const Part& part,
                                const void* Tensors::*input, Member member,
                                StridedShape CacheSpec::*shape) {
    operands_.push_back({.name = name,
                         .form = Form::kElements,
                         .dtype = DType::kFloat32,
                         .dims = ScaleShape(cache.granularity, part),
                         .input = input,
                         .shape = [member, shape](FusedQkvSpec& o) -> StridedShape& {
                           return (*(o.*member)).*shape;
                         }});
  };
  struct Names {
    const char *cache, *scale_cache, *scale, *offset;
  };
  const auto add = [&](const Names& names, const Part& part, Member member, const CacheArray* array,
                       const CacheArray* scale_array, void* Tensors::*data,
                       void* Tensors::*scale_data, const void* Tensors::*scale,
                       const void* Tensors::*offset) {
    const CacheSpec& cache = *(s.*member);
    add_array(names.cache, cache.dtype, array, data, member, &CacheSpec::layout);
    if (!IsQuantised(cache.dtype)) return;
    if (cache.scale_rule == ScaleRule::kDynamic) {
      add_array(names.scale_cache, DType::kFloat32, scale_array, scale_data, member,
                &CacheSpec::scale_layout);
      return;
    }
    add_elements(names.scale, cache, part, scale, member, &CacheSpec::scale_shape);
    if (cache.has_offset) {
      add_elements(names.offset, cache, part, offset, member, &CacheSpec::offset_shape);
    }
  };
  add({"k_cache", "k_scale_cache", "k_scale", "k_offset"}, parts.k, &FusedQkvSpec::k_cache,
      &spec_.k_cache, &spec_.k_scale_cache, &Tensors::k_cache, &Tensors::k_scale_cache,
      &Tensors::k_scale, &Tensors::k_offset);
  add({"v_cache", "v_scale_cache", "v_scale", "v_offset"}, parts.v, &FusedQkvSpec::v_cache,
      &spec_.v_cache, &spec_.v_scale_cache, &Tensors::v_cache, &Tensors::v_scale_cache,
      &Tensors::v_scale, &Tensors::v_offset);
}

}  // namespace qkvfuse::python
