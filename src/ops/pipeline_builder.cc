#include "ops/pipeline_builder.h"

#include "base/message.h"

namespace qkvfuse {
namespace {

Status AddCache(const CacheArguments& arguments, size_t group, Pipeline* pipeline) {
  const CacheSpec& spec = arguments.spec;
  HeadGroup& heads = pipeline->groups[group];
  const bool is_k = group == 1;
  const bool is_int8 = spec.dtype == DType::kInt8;
  OperandSpec cache;
  cache.role = Role::kCache;
  cache.dtype = spec.dtype;
  cache.name = arguments.cache;
  cache.is_output = true;
  cache.heads = heads.heads;
  cache.layout = spec.layout;
  if (cache.layout.name == nullptr) cache.layout.name = "unnamed";
  heads.cache = is_k ? Operand::kKCache : Operand::kVCache;
  pipeline->operands[*heads.cache] = cache;
  const int64_t count = heads.heads * pipeline->head_dim;
  if (is_int8) {
    heads.scale = is_k ? Operand::kKScale : Operand::kVScale;
    pipeline->operands[*heads.scale] =
        ParameterOperand(arguments.scale, DType::kFloat32, count, spec.scale_shape);
  }
  if (!spec.has_offset) return {};
  if (!is_int8) {
    return Invalid(arguments.offset, ": is given for a cache of type ", Name(spec.dtype),
                   ", needs an int8 cache");
  }
  heads.offset = is_k ? Operand::kKOffset : Operand::kVOffset;
  pipeline->operands[*heads.offset] =
      ParameterOperand(arguments.offset, DType::kFloat32, count, spec.offset_shape);
  return {};
}

}  // namespace

OperandSpec RowsOperand(const char* name, DType dtype, int64_t heads, int64_t head_dim,
                        const std::optional<TokenStrides>& strides) {
  OperandSpec spec;
  spec.role = Role::kRows;
  spec.dtype = dtype;
  spec.name = name;
  spec.heads = heads;
  spec.strides = strides.value_or(PackedStrides(heads, head_dim));
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

void SetHeads(const HeadCounts& heads, Pipeline* pipeline) {
  auto& [q, k, v] = pipeline->groups;
  q.heads = heads.q;
  k.heads = heads.k;
  v.heads = heads.v;
  k.first_head = q.heads;
  v.first_head = q.heads + k.heads;
}

void AddDense(Operand operand, const char* name, size_t group,
              const std::optional<TokenStrides>& strides, Pipeline* pipeline) {
  HeadGroup& heads = pipeline->groups[group];
  OperandSpec& spec = pipeline->operands[operand];
  spec = RowsOperand(name, pipeline->store, heads.heads, pipeline->head_dim, strides);
  spec.is_output = true;
  (heads.dense[0] ? heads.dense[1] : heads.dense[0]) = operand;
}

Status AddCaches(const CacheArguments& k, const CacheArguments& v, Pipeline* pipeline) {
  Status status = AddCache(k, 1, pipeline);
  return status.ok() ? AddCache(v, 2, pipeline) : status;
}

Status AddSlots(const SlotSpec& spec, const char* name, Pipeline* pipeline) {
  if (spec.mode != SlotMode::kSlotPerToken && spec.mode != SlotMode::kStartPerSequence) {
    return Invalid(name, ": mode is ", static_cast<int>(spec.mode),
                   ", must be kSlotPerToken or kStartPerSequence");
  }
  if (spec.dtype != DType::kInt64 && spec.dtype != DType::kInt32) {
    return Invalid(name, ": type is ", Name(spec.dtype), ", must be int64 or int32");
  }
  OperandSpec operand;
  operand.role = Role::kSlots;
  operand.dtype = spec.dtype;
  operand.name = name;
  pipeline->operands[Operand::kSlots] = operand;
  pipeline->slots = spec;
  return {};
}

}  // namespace qkvfuse
