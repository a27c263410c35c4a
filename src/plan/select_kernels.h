// Which kernels a head group gets, and why.
#pragma once

#include "plan/plan_impl.h"

namespace qkvfuse::internal {

/// The SIMD target that the options or the environment name, else the best.
[[nodiscard]] Result<kernels::Target> ChooseTarget(const PlanOptions& options);

/// The path that the options or the environment name.
[[nodiscard]] Result<Path> ChoosePath(const PlanOptions& options);

/// Fills in the kernels of group g, all of its task but the pointers, and its piece tables. Refuses
/// where fused kernels are asked for and there are none.
[[nodiscard]] Status SelectKernels(const Pipeline& pipeline, const kernels::Target& target,
                                   Path path, size_t g, GroupKernels* out);

}  // namespace qkvfuse::internal
