#include "ops/pipeline_builder.h"

#include "base/checked_math.h"
#include "base/message.h"

namespace qkvfuse {
namespace {

/// The shape of a scale or offset with an element for every head and channel: stride 0 along what
/// shares one.
Result<StridedShape> ExpandShape(const char* name, const StridedShape& given,
                                 ScaleGranularity granularity, int64_t heads, int64_t head_dim) {
  if (granularity == ScaleGranularity::kChannel) return given;
  const bool is_per_head = granularity == ScaleGranularity::kHead;
  const int64_t count = is_per_head ? heads : 1;
  if (given.rank < 0 || given.rank > 1 || (given.rank == 1 && given.dims[0] != count)) {
    return Invalid(name, ": shape is ", ShapeText(given), ", must be [", count, "] for a scale ",
                   is_per_head ? "per head" : "per tensor");
  }
  StridedShape shape;
  shape.rank = 2;
  shape.dims = {heads, head_dim};
  if (is_per_head) shape.strides[0] = given.rank == 1 ? given.strides[0] : 1;
  return shape;
}

/// `offset_name` is null where the output has no operand for one.
Status CheckRule(const Quantisation& quantisation, const char* name, const char* offset_name) {
  const auto& [dtype, has_offset, scale_shape, offset_shape, rule, granularity] = quantisation;
  if (rule > ScaleRule::kDynamic) {
    return Invalid(name, ": scale_rule is ", static_cast<int>(rule),
                   ", must be kDivide, kMultiply or kDynamic");
  }
  if (granularity > ScaleGranularity::kTensor) {
    return Invalid(name, ": granularity is ", static_cast<int>(granularity),
                   ", must be kChannel, kHead or kTensor");
  }
  const bool takes_scale = IsQuantised(dtype) && rule != ScaleRule::kDynamic;
  if (!IsQuantised(dtype) && rule != ScaleRule::kDivide) {
    return Invalid(name, ": scale_rule is given for type ", Name(dtype),
                   ", needs int8, fp8_e4m3 or fp8_e5m2");
  }
  if (!takes_scale && granularity != ScaleGranularity::kChannel) {
    return Invalid(name, ": granularity is given, needs an 8-bit type with static scales");
  }
  if (!takes_scale && scale_shape.rank != 0) {
    return Invalid(name, ": scale_shape is given, needs an 8-bit type with static scales");
  }
  if (!has_offset && offset_shape.rank != 0) {
    return Invalid(name, ": offset_shape is given, needs has_offset");
  }
  if (!has_offset || (dtype == DType::kInt8 && takes_scale)) return {};
  if (offset_name == nullptr) {
    return Invalid(name, ": has_offset is true for type ", Name(dtype), ", must be false");
  }
  if (dtype == DType::kInt8) {
    return Invalid(offset_name, ": is given for dynamic scales, needs static ones");
  }
  return Invalid(offset_name, ": is given for a ", name, " of type ", Name(dtype), ", needs int8");
}

struct ScaleOperands {
  Operand scale;
  Operand offset;
};
constexpr ScaleOperands kScaleOperands[] = {{Operand::kQScale, Operand::kQOffset},
                                            {Operand::kKScale, Operand::kKOffset},
                                            {Operand::kVScale, Operand::kVOffset}};

/// Whether anything but the name differs from the default, which is that of the caller's library.
bool IsGiven(CacheLayout layout) {
  const CacheLayout none;
  layout.name = none.name;
  return layout != none;
}

Status CheckScaleLayout(const CacheSpec& spec, const char* name) {
  const CacheLayout& scales = spec.scale_layout;
  if (spec.scale_rule != ScaleRule::kDynamic) {
    if (!IsGiven(scales)) return {};
    return Invalid(name, ": scale_layout is given, needs dynamic scales");
  }
  if (scales.blocks != spec.layout.blocks || scales.block_size != spec.layout.block_size) {
    return Invalid(name, ": scale_layout has ", scales.blocks, " blocks of ", scales.block_size,
                   " rows, must have those of the cache, ", spec.layout.blocks, " blocks of ",
                   spec.layout.block_size);
  }
  return {};
}

OperandSpec CacheOperand(const char* name, DType dtype, const HeadGroup& group, int64_t channels,
                         const CacheLayout& layout) {
  OperandSpec spec;
  spec.role = Role::kCache;
  spec.dtype = dtype;
  spec.name = name;
  spec.is_output = true;
  spec.heads = group.heads;
  spec.channels = channels;
  spec.layout = layout;
  if (spec.layout.name == nullptr) spec.layout.name = "unnamed";
  return spec;
}

Status CheckSlotSpec(const SlotSpec& spec, const char* name) {
  if (spec.mode < SlotMode::kSlotPerToken || spec.mode > SlotMode::kPageTable) {
    return Invalid(name, ": mode is ", static_cast<int>(spec.mode),
                   ", must be kSlotPerToken, kStartPerSequence or kPageTable");
  }
  if (spec.dtype != DType::kInt64 && spec.dtype != DType::kInt32) {
    return Invalid(name, ": type is ", Name(spec.dtype), ", must be int64 or int32");
  }
  if (spec.mode == SlotMode::kPageTable) {
    if (spec.pages >= 1 && spec.pages <= kMaxTokens) return {};
    return Invalid(name, ": has ", spec.pages, " pages for a sequence, must have from 1 to ",
                   kMaxTokens);
  }
  if (spec.pages == 0 && !spec.sequence_stride && !spec.zeroes_unused_rows) return {};
  return Invalid(name,
                 ": pages, sequence_stride and zeroes_unused_rows are given, need mode kPageTable");
}

}  // namespace

OperandNames MemberNames() {
  OperandNames names;
  static constexpr const char* kNames[] = {"x",
                                           "q",
                                           "k",
                                           "v",
                                           "q_gamma",
                                           "k_gamma",
                                           "v_gamma",
                                           "cos",
                                           "sin",
                                           "positions",
                                           "slots",
                                           "lengths",
                                           "row_offsets",
                                           "q_scale",
                                           "k_scale",
                                           "v_scale",
                                           "q_offset",
                                           "k_offset",
                                           "v_offset",
                                           "weight_scale",
                                           "token_scale",
                                           "bias",
                                           "q_sums",
                                           "k_sums",
                                           "q_out",
                                           "q_before_quant",
                                           "k_out",
                                           "v_out",
                                           "q_scale_out",
                                           "q_head_sums",
                                           "k_head_sums",
                                           "k_cache",
                                           "v_cache",
                                           "k_scale_cache",
                                           "v_scale_cache"};
  static_assert(std::size(kNames) == kOperandCount);
  for (size_t i = 0; i < kOperandCount; ++i) names.items[i] = kNames[i];
  return names;
}

OperandSpec RowsOperand(const char* name, DType dtype, int64_t heads, int64_t channels,
                        const std::optional<TokenStrides>& strides) {
  OperandSpec spec;
  spec.role = Role::kRows;
  spec.dtype = dtype;
  spec.name = name;
  spec.heads = heads;
  spec.channels = channels;
  spec.strides = strides.value_or(PackedStrides(heads, channels));
  return spec;
}

OperandSpec ParameterOperand(const char* name, DType dtype, int64_t count,
                             const StridedShape& shape) {
  OperandSpec spec;
  spec.role = Role::kParameter;
  spec.dtype = dtype;
  spec.name = name;
  spec.count = count;
  spec.shape = shape;
  return spec;
}

Status AddOutput(const Quantisation& quantisation, const GroupOutput& given,
                 const OperandNames& names, size_t group, Pipeline* pipeline) {
  HeadGroup& heads = pipeline->groups[group];
  GroupOutput output = given;
  const auto& [scale, offset] = kScaleOperands[group];
  const bool has_offset_operand = output.to != Operand::kQBeforeQuant &&
                                  output.to != Operand::kKOut && output.to != Operand::kVOut;
  Status status =
      CheckRule(quantisation, names[output.to], has_offset_operand ? names[offset] : nullptr);
  if (!status.ok()) return status;
  output.rule = quantisation.rule;
  const auto add = [&](Operand operand, const StridedShape& shape) -> Status {
    const Result<StridedShape> expanded =
        ExpandShape(names[operand], shape, quantisation.granularity, heads.heads, heads.head_dim);
    if (!expanded.ok()) return expanded.status();
    const int64_t count = heads.heads * heads.head_dim;
    OperandSpec& spec = pipeline->operands[operand];
    spec = ParameterOperand(names[operand], DType::kFloat32, count, *expanded);
    if (quantisation.granularity == ScaleGranularity::kHead) spec.shared_by = heads.head_dim;
    if (quantisation.granularity == ScaleGranularity::kTensor) spec.shared_by = count;
    return {};
  };
  if (IsQuantised(quantisation.dtype) && quantisation.rule != ScaleRule::kDynamic) {
    output.scale = scale;
    status = add(scale, quantisation.scale_shape);
  }
  if (status.ok() && quantisation.has_offset) {
    output.offset = offset;
    status = add(offset, quantisation.offset_shape);
  }
  (heads.outputs[0] ? heads.outputs[1] : heads.outputs[0]) = output;
  return status;
}

Status CheckChannelScales(const CacheSpec& spec, const char* name) {
  if (spec.scale_rule == ScaleRule::kDivide && spec.granularity == ScaleGranularity::kChannel &&
      !IsGiven(spec.scale_layout)) {
    return {};
  }
  return Invalid(name,
                 ": scale_rule, granularity or scale_layout is given, must keep the default, ",
                 "a scale per channel that divides (FusedQkvSpec has the others)");
}

Status AddCache(const CacheSpec& spec, const OperandNames& names, size_t group,
                Pipeline* pipeline) {
  const HeadGroup& heads = pipeline->groups[group];
  const bool is_k = group == 1;
  GroupOutput output;
  output.to = is_k ? Operand::kKCache : Operand::kVCache;
  const char* const name = names[output.to];
  pipeline->operands[output.to] =
      CacheOperand(name, spec.dtype, heads, heads.head_dim, spec.layout);
  Status status = CheckScaleLayout(spec, name);
  if (!status.ok()) return status;
  if (spec.scale_rule == ScaleRule::kDynamic) {
    output.scale_out = is_k ? Operand::kKScaleCache : Operand::kVScaleCache;
    pipeline->operands[*output.scale_out] =
        CacheOperand(names[*output.scale_out], DType::kFloat32, heads, 1, spec.scale_layout);
  }
  return AddOutput(QuantisationOf(spec, spec.dtype), output, names, group, pipeline);
}

Status AddSlots(const SlotSpec& spec, const OperandNames& names, Pipeline* pipeline) {
  const char* const name = names[Operand::kSlots];
  Status status = CheckSlotSpec(spec, name);
  if (!status.ok()) return status;
  const auto add = [&](Operand operand, Role role) {
    OperandSpec& added = pipeline->operands[operand];
    added.role = role;
    added.dtype = spec.dtype;
    added.name = names[operand];
  };
  add(Operand::kSlots, Role::kSlots);
  pipeline->slots = spec;
  if (spec.mode != SlotMode::kPageTable) return {};
  add(Operand::kLengths, Role::kLengths);
  add(Operand::kRowOffsets, Role::kRowOffsets);
  if (spec.sequence_stride) return {};
  int64_t& sequence_stride = pipeline->slots.sequence_stride.emplace();
  if (CheckedMul(spec.pages, spec.stride, &sequence_stride)) return {};
  return Invalid(name, ": stride ", spec.stride, " of ", spec.pages, " pages is too large");
}

}  // namespace qkvfuse
