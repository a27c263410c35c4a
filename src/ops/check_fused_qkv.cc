// What a FusedQkvSpec may say: every member is used and none contradicts another.
#include <tuple>

#include "base/message.h"
#include "ops/fused_qkv.h"

namespace qkvfuse {
namespace {

using Kind = NormSpec::Kind;
using Gamma = NormSpec::Gamma;
using Pairing = RopeSpec::Pairing;
using Sections = RopeSpec::Sections;
using Table = RopeSpec::Table;

/// A type that goes with x: fp32, or x's own, which is also meant where there is none; of an int32
/// x any float, which must be given.
bool GoesWithX(std::optional<DType> dtype, DType x) {
  if (x == DType::kInt32) return dtype && IsFloat(*dtype);
  return !dtype || *dtype == DType::kFloat32 || *dtype == x;
}

const char* NameOf(std::optional<DType> dtype) { return dtype ? Name(*dtype) : "absent"; }

std::string TypesWithX(DType x) {
  if (x == DType::kInt32) return "fp32, fp16 or bf16";
  return x == DType::kFloat32 ? "fp32" : Concat("fp32 or ", Name(x), ", that of x");
}

Status CheckSource(const FusedQkvSpec& spec, const OperandNames& names) {
  const char* const x = names[Operand::kX];
  const bool is_int32 = spec.x_dtype == DType::kInt32;
  if (!is_int32 && !IsFloat(spec.x_dtype)) {
    return Invalid(x, ": type is ", Name(spec.x_dtype), ", must be fp32, fp16, bf16 or int32");
  }
  if (!is_int32 && spec.has_token_scale) {
    return Invalid("has_token_scale: is true for x of type ", Name(spec.x_dtype),
                   ", must be false unless x is int32");
  }
  if (!is_int32 && spec.weight_scale_shape.rank != 0) {
    return Invalid("weight_scale_shape: is given for x of type ", Name(spec.x_dtype),
                   ", needs an int32 x");
  }
  if (!spec.has_token_scale && spec.token_scale_shape.rank != 0) {
    return Invalid("token_scale_shape: is given, needs has_token_scale");
  }
  if (!spec.bias && spec.bias_shape.rank != 0) {
    return Invalid("bias_shape: is given, needs a bias");
  }
  if (!spec.bias || GoesWithX(spec.bias, spec.x_dtype)) return {};
  if (is_int32 && *spec.bias == DType::kInt32) return {};
  return Invalid(names[Operand::kBias], ": type is ", Name(*spec.bias), ", must be ",
                 is_int32 ? "fp32 or fp16 or bf16 or int32" : TypesWithX(spec.x_dtype));
}

Status CheckSizes(const FusedQkvSpec& spec) {
  Status status = CheckHeads(spec.heads, "heads", spec.head_dim, "head_dim");
  if (!status.ok()) return status;
  const int64_t v = VHeadDim(spec);
  if (v >= 2 && v <= kernels::kMaxHeadDim && v % 2 == 0) return {};
  return Invalid("v_head_dim: is ", v, ", must be 0 or an even number from 2 to ",
                 kernels::kMaxHeadDim);
}

/// Strides of tensors that the Spec does not have, and of packed rows that cannot have them.
Status CheckForm(const FusedQkvSpec& spec) {
  const auto refuse = [](const char* name, const char* why) -> Status {
    return Invalid(name, ": is given, must be absent where ", why);
  };
  if (spec.is_separate && spec.x_strides) {
    return refuse("x_strides", "q, k and v are tensors of their own");
  }
  if (!spec.is_separate && spec.q_strides) return refuse("q_strides", "x is packed");
  if (!spec.is_separate && spec.k_strides) return refuse("k_strides", "x is packed");
  if (!spec.is_separate && spec.v_strides) return refuse("v_strides", "x is packed");
  if (spec.k_strides && !WantsK(spec)) return refuse("k_strides", "k has neither output nor cache");
  if (spec.v_strides && !WantsV(spec)) return refuse("v_strides", "v has neither output nor cache");
  if (!spec.x_strides || VHeadDim(spec) == spec.head_dim) return {};
  const int64_t head = spec.x_strides->head;
  if (head / spec.head_dim == spec.x_strides->channel && head % spec.head_dim == 0) return {};
  return Invalid("x_strides: head is ", head, ", must be head_dim times channel, ", spec.head_dim,
                 " times ", spec.x_strides->channel, ", where v_head_dim differs from head_dim");
}

Status CheckNoNorm(const NormSpec& norm, const char* name) {
  const char* const given = norm.gamma_shape.rank != 0     ? "gamma_shape"
                            : norm.total_heads != 0        ? "total_heads"
                            : norm.gamma != Gamma::kPlain  ? "gamma"
                            : norm.gamma_dtype.has_value() ? "gamma_dtype"
                                                           : nullptr;
  if (given == nullptr) return {};
  return Invalid(name, ": kind is kNone, but ", given, " is given, must be left out");
}

Status CheckNorm(const NormSpec& norm, const char* name, int64_t heads, DType x) {
  if (norm.kind > Kind::kFullWidth) {
    return Invalid(name, ": kind is ", static_cast<int>(norm.kind),
                   ", must be kNone, kPerHead or kFullWidth");
  }
  if (norm.gamma > Gamma::kNone) {
    return Invalid(name, ": gamma is ", static_cast<int>(norm.gamma),
                   ", must be kPlain, kOnePlus or kNone");
  }
  if (norm.kind == Kind::kNone) return CheckNoNorm(norm, name);
  if (norm.gamma == Gamma::kNone && (norm.gamma_shape.rank != 0 || norm.gamma_dtype)) {
    return Invalid(name, ": ", norm.gamma_dtype ? "gamma_dtype" : "gamma_shape",
                   " is given, but gamma is kNone, must be left out");
  }
  if (norm.gamma != Gamma::kNone && !GoesWithX(norm.gamma_dtype, x)) {
    return Invalid(name, ": gamma_dtype is ", NameOf(norm.gamma_dtype), ", must be ",
                   TypesWithX(x));
  }
  if (norm.total_heads == 0) return {};
  if (norm.kind != Kind::kFullWidth) {
    return Invalid(name, ": total_heads is ", norm.total_heads, ", must be 0 for a norm per head");
  }
  if (norm.total_heads >= heads && norm.total_heads <= kMaxHeads) return {};
  return Invalid(name, ": total_heads is ", norm.total_heads, ", must be 0, or from ", heads,
                 ", those of this call, to ", kMaxHeads);
}

Status CheckNorms(const FusedQkvSpec& spec) {
  const DType x = spec.x_dtype;
  Status status = CheckNorm(spec.q_norm, "q_norm", spec.heads.q, x);
  if (status.ok()) status = CheckNorm(spec.k_norm, "k_norm", spec.heads.k, x);
  if (status.ok()) status = CheckNorm(spec.v_norm, "v_norm", spec.heads.v, x);
  if (!status.ok()) return status;
  for (const auto& [norm, name, is_wanted] :
       {std::tuple{&spec.k_norm, "k_norm", WantsK(spec)}, {&spec.v_norm, "v_norm", WantsV(spec)}}) {
    if (is_wanted || norm->kind == Kind::kNone) continue;
    return Invalid(name, ": is given, but its part has neither output nor cache, must be left out");
  }
  if (spec.v_norm.total_heads != 0) {
    return Invalid("v_norm: total_heads is ", spec.v_norm.total_heads,
                   ", must be 0, sums are gathered for q and k only");
  }
  if (spec.norm_order > NormOrder::kAfterRope) {
    return Invalid("norm_order: is ", static_cast<int>(spec.norm_order),
                   ", must be kBeforeRope or kAfterRope");
  }
  const bool norms_qk = spec.q_norm.kind != Kind::kNone || spec.k_norm.kind != Kind::kNone;
  const bool has_both = norms_qk && spec.rope.pairing != Pairing::kNone;
  if (spec.norm_order == NormOrder::kAfterRope && !has_both) {
    return Invalid("norm_order: is kAfterRope, but q and k have no ",
                   norms_qk ? "rotation" : "norm", ", must be kBeforeRope");
  }
  if (norms_qk || spec.v_norm.kind != Kind::kNone) return CheckEpsilon(spec.epsilon);
  if (spec.epsilon == FusedQkvSpec{}.epsilon) return {};
  return Invalid("epsilon: is ", spec.epsilon, ", but there is no norm, must be left out");
}

/// Without a rotation there is nothing to say about it.
Status CheckNoRope(const RopeSpec& rope) {
  RopeSpec nothing;
  nothing.pairing = Pairing::kNone;
  if (rope == nothing) return {};
  return Invalid("rope: pairing is kNone, but ",
                 rope.rotary_dim != 0 ? Concat("rotary_dim is ", rope.rotary_dim)
                                      : std::string("other members are given"),
                 ", must be left out");
}

Status CheckSections(const RopeSpec& rope, int64_t pairs) {
  const auto& [first, second, third] = rope.section_pairs;
  if (rope.sections > Sections::kInterleaved) {
    return Invalid("rope.sections: is ", static_cast<int>(rope.sections),
                   ", must be kNone, kConcatenated or kInterleaved");
  }
  if (rope.sections == Sections::kNone) {
    if (rope.position_section_stride) {
      return Invalid("rope.position_section_stride: is given, needs sections");
    }
    if (first == 0 && second == 0 && third == 0) return {};
    return Invalid("rope.section_pairs: are given, need sections");
  }
  const bool in_range = first >= 0 && second >= 0 && third >= 0 && first <= pairs &&
                        second <= pairs && third <= pairs;
  if (!in_range || first + second + third != pairs) {
    return Invalid("rope.section_pairs: are ", first, ", ", second, " and ", third,
                   ", their sum must be ", pairs, ", half of rotary_dim");
  }
  // Pair 3*(n-1) + 1 (or 2) is the last of n interleaved ones.
  const bool reaches =
      rope.sections == Sections::kConcatenated ||
      ((second == 0 || 3 * second - 2 < pairs) && (third == 0 || 3 * third - 1 < pairs));
  if (reaches) return {};
  return Invalid("rope.section_pairs: are ", first, ", ", second, " and ", third,
                 ", the second must be at most ", (pairs + 1) / 3, " and the third at most ",
                 pairs / 3, ", every third one of ", pairs, " pairs");
}

Status CheckTable(const RopeSpec& rope) {
  if (rope.table > Table::kJoined) {
    return Invalid("rope.table: is ", static_cast<int>(rope.table),
                   ", must be kRowPerToken, kTwoTables or kJoined");
  }
  if (rope.table == Table::kJoined && (rope.half_width || rope.sin_strides)) {
    return Invalid("rope.", rope.half_width ? "half_width" : "sin_strides",
                   ": is given for a joined table, must be left out");
  }
  if (rope.position_dtype != DType::kInt64 && rope.position_dtype != DType::kInt32) {
    return Invalid("positions: type is ", Name(rope.position_dtype), ", must be int64 or int32");
  }
  if (rope.table == Table::kRowPerToken) {
    const RopeSpec none;
    const char* const given = rope.max_positions != 0                        ? "max_positions"
                              : rope.sections != Sections::kNone             ? "sections"
                              : rope.position_dtype != none.position_dtype   ? "position_dtype"
                              : rope.position_stride != none.position_stride ? "position_stride"
                                                                             : nullptr;
    if (given == nullptr) return {};
    return Invalid("rope.", given, ": is given, needs tables by position");
  }
  if (rope.max_positions < 1 || rope.max_positions > kMaxTokens) {
    return Invalid("rope.max_positions: is ", rope.max_positions, ", must be from 1 to ",
                   kMaxTokens);
  }
  for (const auto& strides : {rope.cos_strides, rope.sin_strides}) {
    if (!strides || strides->batch == TokenStrides::kFollows) continue;
    return Invalid("rope.", strides == rope.cos_strides ? "cos_strides" : "sin_strides",
                   ": batch is ", strides->batch, ", must be left out for tables by position");
  }
  return {};
}

Status CheckRope(const FusedQkvSpec& spec, const OperandNames& names) {
  const RopeSpec& rope = spec.rope;
  if (rope.pairing > Pairing::kInterleaved) {
    return Invalid("rope.pairing: is ", static_cast<int>(rope.pairing),
                   ", must be kNone, kHalves or kInterleaved");
  }
  if (rope.pairing == Pairing::kNone) return CheckNoRope(rope);
  const int64_t rotary_dim = RotaryDim(spec);
  if (rotary_dim < 2 || rotary_dim > spec.head_dim || rotary_dim % 2 != 0) {
    return Invalid("rope.rotary_dim: is ", rotary_dim, ", must be 0 or an even number from 2 to ",
                   spec.head_dim, ", the head_dim");
  }
  if (rope.rotates_last && rotary_dim == spec.head_dim) {
    return Invalid("rope.rotates_last: is true, but all channels are rotated, must be left out");
  }
  if (!GoesWithX(rope.dtype, spec.x_dtype)) {
    return Invalid(names[Operand::kCos], ": type is ", NameOf(rope.dtype), ", must be ",
                   TypesWithX(spec.x_dtype));
  }
  Status status = CheckTable(rope);
  return status.ok() ? CheckSections(rope, rotary_dim / 2) : status;
}

/// An output of floats; where its type is absent, it is that of x.
Status CheckPlainOutput(const std::optional<DenseSpec>& output, DType x, const char* name) {
  if (!output || IsFloat(output->dtype.value_or(x))) return {};
  return Invalid(name, ": type is ", NameOf(output->dtype), ", must be fp32, fp16 or bf16");
}

Status CheckOutputs(const FusedQkvSpec& spec, const OperandNames& names) {
  const DType x = spec.x_dtype;
  const auto check_type = [x](std::optional<DType> dtype, const char* name) -> Status {
    if (IsFloat(dtype.value_or(x)) || IsQuantised(dtype.value_or(x))) return {};
    return Invalid(name, ": type is ", NameOf(dtype),
                   ", must be fp32, fp16, bf16, int8, fp8_e4m3 or fp8_e5m2");
  };
  Status status = check_type(spec.q_out.dtype, names[Operand::kQOut]);
  if (status.ok()) {
    status = CheckPlainOutput(spec.q_before_quant, x, names[Operand::kQBeforeQuant]);
  }
  if (status.ok()) status = CheckPlainOutput(spec.k_out, x, names[Operand::kKOut]);
  if (status.ok()) status = CheckPlainOutput(spec.v_out, x, names[Operand::kVOut]);
  if (status.ok() && spec.k_cache)
    status = check_type(spec.k_cache->dtype, names[Operand::kKCache]);
  if (status.ok() && spec.v_cache)
    status = check_type(spec.v_cache->dtype, names[Operand::kVCache]);
  if (!status.ok()) return status;
  if (spec.k_cache.has_value() != spec.v_cache.has_value()) {
    const bool has_k = spec.k_cache.has_value();
    return Invalid(names[has_k ? Operand::kVCache : Operand::kKCache], ": is absent, but ",
                   names[has_k ? Operand::kKCache : Operand::kVCache],
                   " is given, must be given with it");
  }
  if (spec.k_cache || spec.slots == SlotSpec{}) return {};
  return Invalid(names[Operand::kSlots], ": are given, need caches");
}

}  // namespace

Status CheckFusedQkvSpec(const FusedQkvSpec& spec, const OperandNames& names) {
  Status status = CheckSource(spec, names);
  if (status.ok()) status = CheckSizes(spec);
  if (status.ok()) status = CheckForm(spec);
  if (status.ok()) status = CheckNorms(spec);
  if (status.ok()) status = CheckRope(spec, names);
  if (status.ok()) status = CheckOutputs(spec, names);
  return status;
}

}  // namespace qkvfuse
