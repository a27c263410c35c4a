// A norm alone, which no fused kernel of the library does: the kernel that the baselines of
// Ascend's operator have, on a plan of the general operator.
#pragma once

#include "bench/baselines/stages.h"
#include "qkvfuse/qkvfuse.hpp"

namespace qkvfuse::bench {

/// The kernel for a plan that does nothing but normalise heads of 16 bits one by one, with a
/// weight, into dense rows of their type; nullptr for other plans.
[[nodiscard]] StageKernel NormKernelOf(const Plan& plan);

/// Plan::Run with that kernel: Check, then all tokens in parallel.
Status RunNorm(const Plan& plan, StageKernel kernel, const Tensors& tensors, TokenCount tokens,
               Workspace workspace, int threads);

}  // namespace qkvfuse::bench
