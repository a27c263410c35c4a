// From a Spec to the pipeline: the operands of every kind, and the plan of the whole.
#pragma once

#include <optional>

#include "base/fp_environment.h"
#include "ops/argument_checks.h"
#include "plan/plan_impl.h"

namespace qkvfuse {

/// The names of the operands, as a door spells them.
using OperandNames = PerOperand<const char*>;

/// The names of Tensors.
[[nodiscard]] OperandNames MemberNames();

/// Rows of heads, one for each token: their own strides, or packed ones.
[[nodiscard]] OperandSpec RowsOperand(const char* name, DType dtype, int64_t heads,
                                      int64_t channels, const std::optional<TokenStrides>& strides);
[[nodiscard]] OperandSpec ParameterOperand(const char* name, DType dtype, int64_t count,
                                           const StridedShape& shape);

/// How an output becomes codes: the members that CacheSpec and DenseSpec have in common.
struct Quantisation {
  DType dtype;
  bool has_offset;
  const StridedShape& scale_shape;
  const StridedShape& offset_shape;
  ScaleRule rule;
  ScaleGranularity granularity;
};
template <typename Spec>
[[nodiscard]] Quantisation QuantisationOf(const Spec& spec, DType dtype) {
  return {dtype,           spec.has_offset, spec.scale_shape, spec.offset_shape,
          spec.scale_rule, spec.granularity};
}

/// Adds an output to a group, with its scale and offset where it has them. The operand of `output`
/// is in the pipeline. A scale of kDynamic is the caller's to add.
[[nodiscard]] Status AddOutput(const Quantisation& quantisation, const GroupOutput& output,
                               const OperandNames& names, size_t group, Pipeline* pipeline);

/// The operators of Ascend divide by a scale per channel and know nothing else.
[[nodiscard]] Status CheckChannelScales(const CacheSpec& spec, const char* name);

/// Adds the k (group 1) or v (group 2) cache.
[[nodiscard]] Status AddCache(const CacheSpec& spec, const OperandNames& names, size_t group,
                              Pipeline* pipeline);
[[nodiscard]] Status AddSlots(const SlotSpec& spec, const OperandNames& names, Pipeline* pipeline);

/// The plan of the pipeline that `make_pipeline(spec, style)` returns.
template <typename Spec, typename MakePipeline>
Result<Plan> PlanFrom(const Spec& spec, NameStyle style, const PlanOptions& options,
                      const MakePipeline& make_pipeline) noexcept try {
  const ScopedFpEnvironment environment;  // float(epsilon) is arithmetic too
  const Result<Pipeline> pipeline = make_pipeline(spec, style);
  if (!pipeline.ok()) return pipeline.status();
  return internal::BuildPlan(*pipeline, options);
} catch (...) {
  return Status(StatusCode::kOutOfMemory, {});
}

}  // namespace qkvfuse
