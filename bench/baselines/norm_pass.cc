// Tasks from the general path's, which differ in the kernel only.
#include "bench/baselines/norm_pass.h"

#include <array>

#include "bench/baselines/baselines.h"
#include "bench/baselines/tile_pass.h"
#include "plan/plan_impl.h"
#include "plan/workspace.h"

namespace qkvfuse::bench {

using internal::PlanImpl;
using kernels::GroupTask;
using kernels::Tile;

namespace {

bool IsPlainNorm(const PlanImpl& plan, const HeadGroup& group) {
  constexpr int64_t kHeadDimUnit = 64;
  return group.has_norm && !group.norms_full_width && !group.has_rope && group.gamma &&
         Is16Bit(plan.pipeline.of(group.source).dtype) && group.head_dim % kHeadDimUnit == 0 &&
         !plan.pipeline.uses(Operand::kBias);
}

/// One head group of a call.
struct NormTask {
  GroupTask task;
  const float* gamma = nullptr;
};

NormTask TaskOf(const PlanImpl& plan, size_t g, const Tensors& tensors,
                const internal::WorkspaceParts& parts) {
  const HeadGroup& group = plan.pipeline.groups[g];
  NormTask norm{plan.groups[g].task, nullptr};
  norm.task.source.data = PointerOf(tensors, group.source);
  norm.task.source.token_stride = plan.pipeline.of(group.source).strides.token;
  const Operand to = group.outputs[0]->to;
  const TokenStrides& strides = plan.pipeline.of(to).strides;
  kernels::Destination& rows = norm.task.dense[0];
  rows.data = OutputOf(tensors, to);
  rows.token_stride = strides.token;
  rows.head_stride = strides.head;
  rows.pieces = plan.groups[g].pieces[0].data();
  const void* const packed = parts.Parameter(*group.gamma);
  norm.gamma =
      static_cast<const float*>(packed != nullptr ? packed : PointerOf(tensors, *group.gamma));
  return norm;
}

}  // namespace

StageKernel NormKernelOf(const Plan& plan) {
  const PlanImpl& impl = plan.impl();
  DType type = DType::kFloat32;
  for (const HeadGroup& group : impl.pipeline.groups) {
    if (group.heads == 0) continue;
    if (!IsPlainNorm(impl, group)) return nullptr;
    type = impl.pipeline.of(group.source).dtype;
  }
  return Is16Bit(type) ? SelectNormalise(impl.target.id, type) : nullptr;
}

Status RunNorm(const Plan& plan, StageKernel kernel, const Tensors& tensors, TokenCount tokens,
               Workspace workspace, int threads) {
  Status status = plan.Check(tensors, tokens, workspace);
  if (!status.ok()) return status;
  const PlanImpl& impl = plan.impl();
  const internal::WorkspaceParts parts(impl, tokens, workspace.data);
  std::array<NormTask, 3> norms;
  for (size_t g = 0; g < norms.size(); ++g) {
    if (impl.pipeline.groups[g].heads > 0) norms[g] = TaskOf(impl, g, tensors, parts);
  }
  const auto body = [&](const Tile& tile) {
    for (const NormTask& norm : norms) {
      if (norm.gamma != nullptr) kernel(norm.task, norm.gamma, WithHeads(tile, norm.task));
    }
  };
  TilePass(tokens, PartsOf(plan, tokens, threads), body).Run();
  return status;
}

}  // namespace qkvfuse::bench
