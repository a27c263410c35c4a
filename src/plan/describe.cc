// What `explain` and the log print of a plan.
#include "base/message.h"
#include "base/parallel.h"
#include "plan/plan_impl.h"
#include "plan/run.h"

namespace qkvfuse {
namespace {

std::string DescribeNorm(const HeadGroup& group) {
  if (!group.has_norm) return "";
  return group.norms_full_width ? " -> full-width norm" : " -> norm";
}

std::string DescribeRope(const Pipeline& pipeline, const HeadGroup& group) {
  if (!group.has_rope) return "";
  const RopeStage& rope = pipeline.rope;
  const bool is_interleaved = rope.pairing == RopeSpec::Pairing::kInterleaved;
  std::string how = is_interleaved ? "interleaved" : "";
  if (rope.rotary_dim != group.head_dim) {
    how += Concat(how.empty() ? "" : ", ", rope.first_channel == 0 ? "first " : "last ",
                  rope.rotary_dim);
  }
  return how.empty() ? " -> rope" : Concat(" -> rope (", how, ")");
}

std::string DescribeOutput(const Pipeline& pipeline, const GroupOutput& output) {
  const OperandSpec& spec = pipeline.of(output.to);
  std::string text = Concat(" -> ", spec.name, " ", Name(spec.dtype));
  if (output.offset) text += " with offset";
  if (output.rule == ScaleRule::kMultiply) text += ", multiplied";
  if (output.rule == ScaleRule::kDynamic) text += ", dynamic";
  return text;
}

std::string DescribeGroup(const Pipeline& pipeline, size_t g,
                          const internal::GroupKernels& kernels) {
  static constexpr const char* kNames[] = {"q", "k", "v"};
  const HeadGroup& group = pipeline.groups[g];
  if (kernels.group == nullptr) return "";
  std::string line = Concat("  ", kNames[g], ": ", group.heads, " heads of ", group.head_dim, ", ",
                            Name(pipeline.of(group.source).dtype));
  if (pipeline.uses(Operand::kBias)) line += " -> bias";
  const std::string rope = DescribeRope(pipeline, group);
  if (group.norms_after_rope) line += rope;
  line += DescribeNorm(group);
  if (!group.norms_after_rope) line += rope;
  if (group.head_sums) line += Concat(" -> ", pipeline.of(*group.head_sums).name);
  for (const auto& output : group.outputs) {
    if (output) line += DescribeOutput(pipeline, *output);
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
  std::string text = Concat(pipeline.operator_name, ", target ", impl_->target.name,
                            pipeline.strict ? ", strict\n" : ", lenient\n");
  for (size_t g = 0; g < impl_->groups.size(); ++g) {
    text += DescribeGroup(pipeline, g, impl_->groups[g]);
  }
  for (const Operand cache : {Operand::kKCache, Operand::kVCache}) {
    if (pipeline.uses(cache)) text += DescribeCache(pipeline.of(cache));
  }
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
