// From a Spec to the pipeline: the steps that operators share.
#pragma once

#include <optional>

#include "base/fp_environment.h"
#include "ops/argument_checks.h"
#include "plan/plan_impl.h"

namespace qkvfuse {

/// Describes the rows of a token-major tensor: its own strides, or packed ones.
[[nodiscard]] OperandSpec RowsOperand(const char* name, DType dtype, int64_t heads,
                                      int64_t head_dim, const std::optional<TokenStrides>& strides);
[[nodiscard]] OperandSpec ParameterOperand(const char* name, DType dtype, int64_t count,
                                           const StridedShape& shape);

/// Heads of the three groups, one group after another in the packed row.
void SetHeads(const HeadCounts& heads, Pipeline* pipeline);

/// Adds a dense output of type pipeline->store to a group; SetHeads comes first.
void AddDense(Operand operand, const char* name, size_t group,
              const std::optional<TokenStrides>& strides, Pipeline* pipeline);

/// A cache with its scale and offset.
struct CacheArguments {
  const CacheSpec& spec;
  const char* cache;  // names
  const char* scale;
  const char* offset;
};
[[nodiscard]] Status AddCaches(const CacheArguments& k, const CacheArguments& v,
                               Pipeline* pipeline);
[[nodiscard]] Status AddSlots(const SlotSpec& spec, const char* name, Pipeline* pipeline);

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
