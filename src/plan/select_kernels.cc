#include "plan/select_kernels.h"

#include <cstdlib>

#include "base/message.h"
#include "kernels/copy.h"
#include "plan/cache_layout.h"

namespace qkvfuse::internal {
namespace {

using kernels::GroupTask;
using kernels::KernelKey;
using kernels::Output;
using kernels::SinkKind;
using kernels::SourceKind;
using kernels::Stages;
using kernels::Transform;

SourceKind SourceOfGroup(const Pipeline& pipeline, const HeadGroup& group) {
  const DType x = pipeline.of(group.source).dtype;
  const bool has_bias = pipeline.uses(Operand::kBias);
  if (x == DType::kInt32) {
    if (!has_bias) return SourceKind::kInt32NoBias;
    return pipeline.of(Operand::kBias).dtype == DType::kInt32 ? SourceKind::kInt32IntBias
                                                              : SourceKind::kInt32FloatBias;
  }
  if (!has_bias) return kernels::SourceOf(x);
  if (x == DType::kFloat32) return SourceKind::kFloatBias;
  return x == DType::kFloat16 ? SourceKind::kHalfBias : SourceKind::kBFloat16Bias;
}

/// Halves, all of head_dim.
bool IsPlainRope(const RopeStage& rope, int64_t head_dim) {
  return rope.pairing == RopeSpec::Pairing::kHalves && rope.rotary_dim == head_dim;
}

/// The transform of a group whose outputs the emitters of both paths know.
Transform TransformOfGroup(const Pipeline& pipeline, const HeadGroup& group) {
  if (group.head_sums) return Transform::kStages;
  if (!group.has_rope) return group.has_norm ? Transform::kStages : Transform::kNone;
  if (!IsPlainRope(pipeline.rope, group.head_dim)) return Transform::kStages;
  if (!group.has_norm) return Transform::kRope;
  const bool is_plain = group.gamma && !group.norms_full_width && !group.norms_after_rope;
  return is_plain ? Transform::kNormRope : Transform::kStages;
}

bool IsComputed(const Pipeline& pipeline, const HeadGroup& group) {
  return group.has_rope || group.has_norm || pipeline.uses(Operand::kBias) ||
         pipeline.of(group.source).dtype == DType::kInt32;
}

bool CopiesBits(const Pipeline& pipeline, const HeadGroup& group, const GroupOutput& output) {
  return !IsComputed(pipeline, group) &&
         pipeline.of(output.to).dtype == pipeline.of(group.source).dtype;
}

bool DividesToInt8(const Pipeline& pipeline, const GroupOutput& output) {
  return pipeline.of(output.to).dtype == DType::kInt8 && output.rule == ScaleRule::kDivide;
}

/// The type of a group's 16-bit outputs, or of what stands for them where there are none.
DType StoreOfGroup(const Pipeline& pipeline, const HeadGroup& group) {
  for (const auto& output : group.outputs) {
    if (output && Is16Bit(pipeline.of(output->to).dtype)) return pipeline.of(output->to).dtype;
  }
  const DType x = pipeline.of(group.source).dtype;
  if (Is16Bit(x)) return x;
  const OperandSpec& table = pipeline.of(Operand::kCos);
  return table.role != Role::kUnused && Is16Bit(table.dtype) ? table.dtype : DType::kBFloat16;
}

/// The sink of outputs that the emitters of both paths know: one or two of 16 bits and one type,
/// one of int8 that divides, or both kinds. kOutputs where they are others.
SinkKind SinkOfGroup(const Pipeline& pipeline, const HeadGroup& group) {
  const DType store = StoreOfGroup(pipeline, group);
  int stores = 0;
  const GroupOutput* codes = nullptr;
  for (const auto& output : group.outputs) {
    if (!output) continue;
    const DType dtype = pipeline.of(output->to).dtype;
    if (DividesToInt8(pipeline, *output) && codes == nullptr) {
      codes = &*output;
    } else if (dtype == store &&
               (IsComputed(pipeline, group) || CopiesBits(pipeline, group, *output))) {
      ++stores;
    } else {
      return SinkKind::kOutputs;
    }
  }
  if (codes == nullptr) return stores == 2 ? SinkKind::kStoreTwice : SinkKind::kStore;
  if (codes->offset) return stores > 0 ? SinkKind::kInt8OffsetStore : SinkKind::kInt8Offset;
  return stores > 0 ? SinkKind::kInt8Store : SinkKind::kInt8;
}

Stages StagesOfGroup(const Pipeline& pipeline, const HeadGroup& group) {
  Stages stages;
  if (group.has_norm) {
    stages.norm = group.norms_after_rope ? Stages::Norm::kAfterRope : Stages::Norm::kBeforeRope;
  }
  stages.norms_full_width = group.norms_full_width;
  stages.norm_channels = group.head_dim;
  if (group.norms_full_width) {
    stages.total_heads = group.sums ? pipeline.of(*group.sums).heads : group.heads;
    stages.norm_channels *= stages.total_heads;
    stages.gamma_head_stride = group.head_dim;
  }
  if (!group.has_rope) return stages;
  stages.pairing = pipeline.rope.pairing;
  stages.first_channel = pipeline.rope.first_channel;
  stages.rotary_dim = pipeline.rope.rotary_dim;
  return stages;
}

/// All of a task but its pointers.
GroupTask TaskTemplate(const Pipeline& pipeline, const HeadGroup& group) {
  GroupTask task;
  task.source_kind = SourceOfGroup(pipeline, group);
  task.transform = TransformOfGroup(pipeline, group);
  task.sink = SinkOfGroup(pipeline, group);
  task.store = StoreOfGroup(pipeline, group);
  task.heads = group.heads;
  task.head_dim = group.head_dim;
  task.epsilon = static_cast<float>(pipeline.epsilon);
  task.source.head_stride = group.source_head_stride;
  task.source.channel_stride = pipeline.of(group.source).strides.channel;
  // Outputs of other kinds are written from heads that are finished in their tiles.
  if (task.sink == SinkKind::kOutputs && task.transform != Transform::kNone) {
    task.transform = Transform::kStages;
  }
  if (task.transform == Transform::kStages) task.stages = StagesOfGroup(pipeline, group);
  if (task.sink != SinkKind::kOutputs) return task;
  for (const auto& output : group.outputs) {
    if (!output) continue;
    Output& out = task.outputs[task.output_count++];
    out.dtype = pipeline.of(output->to).dtype;
    out.copies_bits = CopiesBits(pipeline, group, *output);
    out.rule = output->rule;
    if (out.copies_bits) task.store = out.dtype;
  }
  return task;
}

KernelKey KeyOf(const Pipeline& pipeline, const GroupTask& task) {
  KernelKey key;
  key.source = task.source_kind;
  key.transform = task.transform;
  key.sink = task.sink;
  key.store = task.store;
  const OperandSpec& cos = pipeline.of(Operand::kCos);
  const OperandSpec& sin = pipeline.of(Operand::kSin);
  const RopeStage& rope = pipeline.rope;
  key.table = cos.dtype;
  key.has_plain_table = !rope.half_width && rope.pair_sections.empty() &&
                        cos.strides.channel == 1 && sin.strides.channel == 1;
  key.head_dim = task.head_dim;
  return key;
}

// Why a group cannot take the fused kernels, or "" when nothing but the list can say no.

std::string StridedText(const OperandSpec& spec, int64_t stride) {
  return Concat(spec.name, " has channel stride ", stride);
}

std::string ReasonOfStages(const Pipeline& pipeline, const HeadGroup& group) {
  if (group.norms_full_width) return "a norm over the full width";
  if (group.norms_after_rope) return "a norm after the rotation";
  if (group.has_norm && !group.has_rope) return "a norm without a rotation";
  if (group.has_rope && pipeline.rope.pairing == RopeSpec::Pairing::kInterleaved) {
    return "pairs are interleaved";
  }
  if (group.has_rope && pipeline.rope.rotary_dim != group.head_dim) {
    return Concat(pipeline.rope.rotary_dim, " of ", group.head_dim, " channels are rotated");
  }
  return group.has_norm && !group.gamma ? "a norm without a weight" : "";
}

std::string ReasonOfOutputs(const Pipeline& pipeline, const HeadGroup& group) {
  for (const auto& output : group.outputs) {
    if (!output) continue;
    const OperandSpec& spec = pipeline.of(output->to);
    if (IsFloat8(spec.dtype) || spec.dtype == DType::kFloat32) {
      return Concat(spec.name, " is ", Name(spec.dtype));
    }
    if (spec.dtype != DType::kInt8 || output->rule == ScaleRule::kDivide) continue;
    return Concat(spec.name, output->rule == ScaleRule::kDynamic ? " has dynamic scales"
                                                                 : " has scales that multiply");
  }
  return "outputs are of several types";
}

std::string ReasonOfOutput(const OperandSpec& spec) {
  if (spec.role != Role::kCache) {
    return spec.strides.channel == 1 ? "" : StridedText(spec, spec.strides.channel);
  }
  const CacheLayout& layout = spec.layout;
  if (layout.channel_stride != 1) return StridedText(spec, layout.channel_stride);
  if (layout.channel_chunk % kernels::kPieceChannels != 0) {
    return Concat(spec.name, " has chunks of ", layout.channel_chunk, " channels");
  }
  return "";
}

std::string ReasonForGeneral(const Pipeline& pipeline, const HeadGroup& group,
                             const GroupTask& task) {
  const OperandSpec& x = pipeline.of(group.source);
  if (group.head_dim % kernels::kPieceChannels != 0) {
    return Concat("head_dim ", group.head_dim, " is not a multiple of ", kernels::kPieceChannels);
  }
  if (x.strides.channel != 1) return StridedText(x, x.strides.channel);
  std::string reason = ReasonOfStages(pipeline, group);
  if (reason.empty() && task.sink == SinkKind::kOutputs) reason = ReasonOfOutputs(pipeline, group);
  for (const auto& output : group.outputs) {
    if (reason.empty() && output) reason = ReasonOfOutput(pipeline.of(output->to));
  }
  return reason;
}

/// Why the list has no kernel for a group that nothing else keeps from it.
std::string ReasonOfList(const Pipeline& pipeline, const HeadGroup& group, const GroupTask& task) {
  const DType x = pipeline.of(group.source).dtype;
  if (task.source_kind >= SourceKind::kFloatBias) return Concat("a bias on x of ", Name(x));
  const char* const stages = task.transform == Transform::kNone   ? "without norm and rotation"
                             : task.transform == Transform::kRope ? "with a rotation alone"
                                                                  : "with a norm and a rotation";
  return Concat("no kernel for x of ", Name(x), " ", stages, " into these outputs");
}

void UseKernels(const kernels::SelectedKernels& selected, const HeadGroup& group,
                GroupKernels* out) {
  out->group = selected.group;
  out->coefficients = group.has_rope ? selected.coefficients : nullptr;
}

/// Whether all that a group's outputs want is the bits of x.
bool OnlyCopies(const Pipeline& pipeline, const HeadGroup& group) {
  for (const auto& output : group.outputs) {
    if (output && !CopiesBits(pipeline, group, *output)) return false;
  }
  return group.outputs[0].has_value();
}

void UseCopy(const Pipeline& pipeline, const HeadGroup& group, GroupKernels* out) {
  out->task.store = pipeline.of(group.source).dtype;
  out->task.sink = group.outputs[1] ? SinkKind::kStoreTwice : SinkKind::kStore;
  out->task.output_count = 0;
  out->group = kernels::SelectCopy(out->task.store);
  out->is_fused = true;
  out->description = "copy of bits";
}

Status SelectGroup(const Pipeline& pipeline, const kernels::Target& target, Path path, size_t g,
                   GroupKernels* out) {
  const HeadGroup& group = pipeline.groups[g];
  out->task = TaskTemplate(pipeline, group);
  if (OnlyCopies(pipeline, group)) {
    UseCopy(pipeline, group, out);
    return {};
  }
  const KernelKey key = KeyOf(pipeline, out->task);
  std::string reason =
      path == Path::kGeneral ? "asked for" : ReasonForGeneral(pipeline, group, out->task);
  if (reason.empty()) {
    const kernels::SelectedKernels fused = kernels::SelectFused(target.id, key);
    if (fused.group != nullptr) {
      UseKernels(fused, group, out);
      if (key.sink == SinkKind::kStore && group.cache() == nullptr) {
        KernelKey streaming = key;
        streaming.sink = SinkKind::kStream;
        out->streaming = kernels::SelectFused(target.id, streaming).group;
      }
      out->is_fused = true;
      out->description = Concat("fused kernel ", fused.name);
      return {};
    }
    reason = ReasonOfList(pipeline, group, out->task);
  }
  if (path == Path::kFused) {
    static constexpr const char* kNames[] = {"q", "k", "v"};
    return Invalid("path: is fused, but the ", kNames[g], " heads need the general path: ", reason);
  }
  UseKernels(kernels::SelectGeneral(target.id), group, out);
  out->description = Concat("general path (", reason, ")");
  return {};
}

/// Tables for the destinations that keep every kPieceChannels channels together: all of a fused
/// group's. The general path goes through a copy of its own where it finds none.
void MakePieceTables(const Pipeline& pipeline, const HeadGroup& group, GroupKernels* out) {
  // The general path pads each half of a head that is rotated on the way.
  const bool pads_halves = !out->is_fused && (out->task.transform == Transform::kRope ||
                                              out->task.transform == Transform::kNormRope);
  const int64_t part = pads_halves ? group.head_dim / 2 : group.head_dim;
  if (part % kernels::kPieceChannels != 0) return;
  for (size_t o = 0; o < group.outputs.size(); ++o) {
    if (!group.outputs[o]) continue;
    const OperandSpec& spec = pipeline.of(group.outputs[o]->to);
    if (!ReasonOfOutput(spec).empty()) continue;
    const CacheLayout& layout = spec.layout;  // not chunked where it is no cache
    out->pieces[o] = PieceTable(group.head_dim, SizeOf(spec.dtype), layout.channel_chunk,
                                layout.channel_chunk_stride);
  }
}

}  // namespace

Result<kernels::Target> ChooseTarget(const PlanOptions& options) {
  const std::vector<kernels::Target>& targets = kernels::SupportedTargets();
  std::string wanted = options.target;
  const char* const environment = std::getenv("QKVFUSE_TARGET");
  if (wanted.empty() && environment != nullptr) wanted = environment;
  if (wanted.empty()) return targets.front();
  std::string names;
  for (const auto& target : targets) {
    if (target.name == wanted) return target;
    if (!names.empty()) names += ", ";
    names += target.name;
  }
  return Invalid("target: is ", wanted, ", must be one of ", names);
}

Result<Path> ChoosePath(const PlanOptions& options) {
  switch (options.path) {
    case Path::kAuto:
    case Path::kGeneral:
    case Path::kFused:
      break;
    default:
      return Invalid("path: is ", static_cast<int>(options.path),
                     ", must be kAuto, kGeneral or kFused");
  }
  const char* const environment = std::getenv("QKVFUSE_PATH");
  if (options.path != Path::kAuto || environment == nullptr) return options.path;
  const std::string wanted = environment;
  if (wanted == "general") return Path::kGeneral;
  if (wanted == "fused") return Path::kFused;
  if (wanted.empty() || wanted == "auto") return Path::kAuto;
  return Invalid("QKVFUSE_PATH: is ", wanted, ", must be auto, general or fused");
}

Status SelectKernels(const Pipeline& pipeline, const kernels::Target& target, Path path, size_t g,
                     GroupKernels* out) {
  const HeadGroup& group = pipeline.groups[g];
  if (!group.outputs[0] && !group.head_sums) return {};  // nothing is wanted of it
  Status status = SelectGroup(pipeline, target, path, g, out);
  if (status.ok()) MakePieceTables(pipeline, group, out);
  return status;
}

}  // namespace qkvfuse::internal
