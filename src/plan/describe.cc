// What `explain` and the log print of a plan.
#include "base/message.h"
#include "base/parallel.h"
#include "plan/plan_impl.h"
#include "plan/run.h"

namespace qkvfuse {
namespace {

std::string DescribeGroup(const Pipeline& pipeline, size_t g,
                          const internal::GroupKernels& kernels) {
  static constexpr const char* kNames[] = {"q", "k", "v"};
  const HeadGroup& group = pipeline.groups[g];
  std::string line =
      Concat("  ", kNames[g], ": ", group.heads, " heads, ", Name(pipeline.of(Operand::kX).dtype),
             group.has_norm ? " -> norm" : "", group.has_rope ? " -> rope" : "");
  for (const auto& dense : group.dense) {
    if (dense) line += Concat(" -> ", pipeline.of(*dense).name, " ", Name(pipeline.store));
  }
  if (group.cache) {
    const OperandSpec& cache = pipeline.of(*group.cache);
    line += Concat(" -> ", cache.name, " ", Name(cache.dtype), group.offset ? " with offset" : "");
  }
  return Concat(line, "\n     ", kernels.description, "\n");
}

std::string DescribeCache(const OperandSpec& cache) {
  return Concat("  ", cache.name, ": ", cache.layout.name, ", ", cache.layout.blocks, " blocks of ",
                cache.layout.block_size, " rows\n");
}

}  // namespace

std::string Plan::Describe(TokenCount tokens) const noexcept try {
  const Pipeline& pipeline = impl_->pipeline;
  std::string text = Concat(pipeline.operator_name, ", head_dim ", pipeline.head_dim, ", target ",
                            impl_->target.name, pipeline.strict ? ", strict\n" : ", lenient\n");
  for (size_t g = 0; g < impl_->groups.size(); ++g) {
    text += DescribeGroup(pipeline, g, impl_->groups[g]);
  }
  text += DescribeCache(pipeline.of(Operand::kKCache));
  text += DescribeCache(pipeline.of(Operand::kVCache));
  const Traffic traffic = TrafficOf(tokens);
  const int parts = internal::PartsOf(*impl_, tokens, RunOptions{});
  const int64_t total = IsTokenCount(tokens) ? tokens.total() : 0;
  text += Concat("  ", total, " tokens: reads ", traffic.read_bytes, " bytes, writes ",
                 traffic.write_bytes, ", workspace ", WorkspaceBytes(tokens), "\n");
  text += Concat(
      "  work: ", parts, parts == 1 ? " part" : " parts", " of the tokens, ", ParallelBackend(),
      parts == 1 ? " (no more is offered, or the work is too small to fork for)\n" : "\n");
  return text;
} catch (...) {
  return {};
}

}  // namespace qkvfuse
