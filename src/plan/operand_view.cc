#include "plan/operand_view.h"

#include <algorithm>

#include "base/checked_math.h"
#include "base/message.h"
#include "kernels/kernels.h"
#include "plan/axes.h"

namespace qkvfuse::internal {
namespace {

/// The heads of a row.
struct Heads {
  int64_t count;
  int64_t stride;
  int64_t channels;
};

void AddRows(const TokenStrides& strides, const Heads& heads, TokenCount tokens,
             Axes* axes) noexcept {
  int64_t following = 0;
  const bool follows =
      strides.batch == TokenStrides::kFollows ||
      (CheckedMul(tokens.sequence, strides.token, &following) && strides.batch == following);
  // Sequences that follow each other are one long sequence.
  if (follows) {
    axes->Add(tokens.total(), strides.token);
  } else {
    axes->Add(tokens.batch, strides.batch);
    axes->Add(tokens.sequence, strides.token);
  }
  axes->Add(heads.count, heads.stride);
  axes->Add(heads.channels, strides.channel);
}

void AddSlots(const SlotSpec& slots, TokenCount tokens, Axes* axes) noexcept {
  switch (slots.mode) {
    case SlotMode::kSlotPerToken:
      return axes->Add(tokens.total(), slots.stride);
    case SlotMode::kStartPerSequence:
      return axes->Add(tokens.batch, slots.stride);
    case SlotMode::kPageTable:
      axes->Add(tokens.ragged_sequences, *slots.sequence_stride);
      return axes->Add(slots.pages, slots.stride);
  }
}

void AddPositions(const RopeStage& rope, TokenCount tokens, Axes* axes) noexcept {
  if (!rope.pair_sections.empty()) {
    axes->Add(kernels::kMaxSections, PositionSectionStride(rope, tokens));
  }
  axes->Add(tokens.total(), rope.position_stride);
}

void AddShape(const OperandSpec& spec, int64_t count, Axes* axes) noexcept {
  if (spec.shape.rank == 0) axes->Add(count, 1);
  for (int axis = 0; axis < spec.shape.rank; ++axis) {
    const auto i = static_cast<size_t>(axis);
    axes->Add(spec.shape.dims[i], spec.shape.strides[i]);
  }
}

Axes AxesOf(const Pipeline& pipeline, const OperandSpec& spec, TokenCount tokens) noexcept {
  Axes axes;
  switch (spec.role) {
    case Role::kUnused:
      break;
    case Role::kRows:
      AddRows(spec.strides, {spec.heads, spec.strides.head, spec.channels}, tokens, &axes);
      break;
    case Role::kTable:
      axes.Add(spec.count, spec.strides.token);
      axes.Add(spec.channels, spec.strides.channel);
      break;
    case Role::kCache:
      return qkvfuse::AxesOf(spec.layout, spec.heads, spec.channels);
    case Role::kSlots:
      AddSlots(pipeline.slots, tokens, &axes);
      break;
    case Role::kPositions:
      AddPositions(pipeline.rope, tokens, &axes);
      break;
    case Role::kLengths:
      axes.Add(tokens.ragged_sequences, 1);
      break;
    case Role::kRowOffsets:
      axes.Add(tokens.ragged_sequences + 1, 1);
      break;
    case Role::kParameter:
      AddShape(spec, spec.count, &axes);
      break;
    case Role::kTokenParameter:
      AddShape(spec, tokens.total(), &axes);
      break;
  }
  return axes;
}

int GroupOfDense(const Pipeline& pipeline, Operand operand) noexcept {
  if (pipeline.of(operand).role != Role::kRows) return -1;
  for (size_t g = 0; g < pipeline.groups.size(); ++g) {
    // Only one of two dense outputs can lie on x, else they overlap each other.
    for (const auto& output : pipeline.groups[g].outputs) {
      if (output && output->to == operand) return static_cast<int>(g);
    }
  }
  return -1;
}

/// All axes of a region.
Axes AxesOf(const Pipeline& pipeline, const Region& region, TokenCount tokens) noexcept {
  const OperandSpec& spec = pipeline.of(region.operand);
  if (spec.is_output || region.group < 0) return AxesOf(pipeline, spec, tokens);
  Axes axes;
  const HeadGroup& group = pipeline.groups[static_cast<size_t>(region.group)];
  AddRows(spec.strides, {group.heads, group.source_head_stride, group.head_dim}, tokens, &axes);
  return axes;
}

ByteView ViewOf(const Pipeline& pipeline, const Region& region, const Tensors& tensors,
                TokenCount tokens) noexcept {
  const char* const data = static_cast<const char*>(PointerOf(tensors, region.operand));
  return qkvfuse::ViewOf(AxesOf(pipeline, region, tokens), pipeline.of(region.operand).dtype,
                         data + region.offset);
}

bool LieOnEachOther(const ByteView& a, const ByteView& b) noexcept {
  return a.base == b.base && a.axes == b.axes &&
         std::equal(a.strides.begin(), a.strides.begin() + a.axes, b.strides.begin()) &&
         std::equal(a.sizes.begin(), a.sizes.begin() + a.axes, b.sizes.begin());
}

/// A product that does not fit belongs to a stride that no call of more than one step along it gets
/// past CheckExtents with, so that it may be any number.
int64_t ProductOrZero(int64_t a, int64_t b) noexcept {
  int64_t product = 0;
  return CheckedMul(a, b, &product) ? product : 0;
}

int64_t& StrideOfSlots(SlotMode mode, Region* region) noexcept {
  if (mode == SlotMode::kPageTable) return region->ragged_stride;
  return mode == SlotMode::kSlotPerToken ? region->token_stride : region->batch_stride;
}

Region RegionOf(const Pipeline& pipeline, Operand operand, int group, int64_t offset) {
  const OperandSpec& spec = pipeline.of(operand);
  const int64_t element_bytes = SizeOf(spec.dtype);
  Region region;
  region.operand = operand;
  region.group = group;
  region.offset = offset;
  switch (spec.role) {
    case Role::kRows:
      region.follows = spec.strides.batch == TokenStrides::kFollows;
      region.batch_stride = region.follows ? 0 : ProductOrZero(spec.strides.batch, element_bytes);
      region.token_stride = ProductOrZero(spec.strides.token, element_bytes);
      break;
    case Role::kSlots:
      region.follows = pipeline.slots.mode != SlotMode::kStartPerSequence;
      StrideOfSlots(pipeline.slots.mode, &region) = ProductOrZero(
          pipeline.slots.mode == SlotMode::kPageTable ? *pipeline.slots.sequence_stride
                                                      : pipeline.slots.stride,
          element_bytes);
      break;
    case Role::kLengths:
    case Role::kRowOffsets:
      region.follows = true;
      region.ragged_stride = element_bytes;
      break;
    case Role::kPositions:
      region.follows = true;
      region.token_stride = ProductOrZero(pipeline.rope.position_stride, element_bytes);
      // Packed rows of positions: the later ones begin further away the more tokens there are.
      if (!pipeline.rope.pair_sections.empty() && !pipeline.rope.position_section_stride) {
        region.section_stride = ProductOrZero(pipeline.rope.position_stride, element_bytes);
      }
      break;
    case Role::kTokenParameter:
      region.follows = true;
      if (spec.shape.rank == 0) region.token_stride = element_bytes;
      break;
    default:
      break;
  }
  const Axes axes = AxesOf(pipeline, region, TokenCount::Ragged(1, 1));
  const bool is_near = offset >= -kMaxExtentBytes && offset <= kMaxExtentBytes;
  // What does not fit for one token fits for no call.
  if (axes.IsEmpty() || !is_near || !FitsExtent(axes, spec.dtype)) return region;
  const ByteView one = qkvfuse::ViewOf(axes, spec.dtype, nullptr);
  region.begin = offset + one.begin();
  region.end = offset + one.end();
  return region;
}

/// Bytes of a call.
struct ByteRange {
  int64_t begin;
  int64_t end;
};

ByteRange RangeOf(const Region& region, const void* data, TokenCount tokens) noexcept {
  const auto base = static_cast<int64_t>(reinterpret_cast<uintptr_t>(data));
  ByteRange range{base + region.begin, base + region.end};
  const auto extend = [&range](int64_t span) { (span < 0 ? range.begin : range.end) += span; };
  if (region.follows) {
    extend((tokens.total() - 1) * region.token_stride);
    extend((tokens.total() - 1) * region.section_stride * (kernels::kMaxSections - 1));
    if (tokens.ragged_sequences > 0) extend((tokens.ragged_sequences - 1) * region.ragged_stride);
  } else {
    extend((tokens.batch - 1) * region.batch_stride);
    extend((tokens.sequence - 1) * region.token_stride);
  }
  return range;
}

bool AreApart(const ByteRange& a, const ByteRange& b) noexcept {
  return a.end <= b.begin || b.end <= a.begin;
}

Status Refuse(Overlap overlap, const char* output, const char* other, const char* x) {
  return RefuseOverlap(
      overlap, output, other,
      Concat(" (except a dense output that lies exactly on its own part of ", x, ")"));
}

/// Whether two regions whose byte ranges cross share an element, other than as they may.
Overlap OverlapOf(const Pipeline& pipeline, const Region& output, const Region& other,
                  const Tensors& tensors, TokenCount tokens) noexcept {
  const ByteView a = ViewOf(pipeline, output, tensors, tokens);
  const ByteView b = ViewOf(pipeline, other, tensors, tokens);
  const OperandSpec& other_spec = pipeline.of(other.operand);
  const bool is_own_part = output.group >= 0 && output.group == other.group &&
                           !other_spec.is_output &&
                           other_spec.dtype == pipeline.of(output.operand).dtype;
  return is_own_part && LieOnEachOther(a, b) ? Overlap::kNone : Intersect(a, b);
}

/// The same for the workspace, all of whose bytes count.
Overlap OverlapOf(const Pipeline& pipeline, const ByteRange& workspace, const Region& other,
                  const Tensors& tensors, TokenCount tokens) noexcept {
  ByteView bytes;
  bytes.base = workspace.begin;
  bytes.Add(workspace.end - workspace.begin, 1);
  return Intersect(bytes, ViewOf(pipeline, other, tensors, tokens));
}

}  // namespace

Status CheckOperandExtent(const Pipeline& pipeline, Operand operand, TokenCount tokens) {
  const OperandSpec& spec = pipeline.of(operand);
  return CheckExtent(spec.name, AxesOf(pipeline, spec, tokens), spec.dtype, spec.is_output);
}

void Regions::Make(const Pipeline& pipeline) {
  count = 0;
  for (const bool wants_outputs : {true, false}) {
    for (size_t i = 0; i < kOperandCount; ++i) {
      const auto operand = static_cast<Operand>(i);
      const OperandSpec& spec = pipeline.of(operand);
      if (spec.role == Role::kUnused || spec.is_output != wants_outputs) continue;
      if (spec.is_output || spec.role != Role::kRows) {
        Add(RegionOf(pipeline, operand, GroupOfDense(pipeline, operand), 0));
        continue;
      }
      bool is_source = false;
      for (size_t g = 0; g < pipeline.groups.size(); ++g) {
        const HeadGroup& group = pipeline.groups[g];
        if (group.heads == 0 || group.source != operand) continue;
        is_source = true;
        Add(RegionOf(pipeline, operand, static_cast<int>(g),
                     ProductOrZero(group.source_offset, SizeOf(spec.dtype))));
      }
      if (!is_source) Add(RegionOf(pipeline, operand, -1, 0));
    }
    if (wants_outputs) outputs = count;
  }
}

Status CheckOverlap(const Pipeline& pipeline, const Regions& regions, const Tensors& tensors,
                    TokenCount tokens, Workspace workspace) {
  std::array<ByteRange, Regions::kMax> ranges;
  const auto count = static_cast<size_t>(regions.count);
  const auto base = static_cast<int64_t>(reinterpret_cast<uintptr_t>(workspace.data));
  const ByteRange scratch{base, base + static_cast<int64_t>(workspace.bytes)};
  const char* const x = pipeline.uses(Operand::kX) ? pipeline.of(Operand::kX).name : "q, k or v";
  for (size_t i = 0; i < count; ++i) {
    const Region& region = regions.items[i];
    ranges[i] = RangeOf(region, PointerOf(tensors, region.operand), tokens);
    if (AreApart(scratch, ranges[i])) continue;
    const Overlap overlap = OverlapOf(pipeline, scratch, region, tensors, tokens);
    if (overlap == Overlap::kNone) continue;
    return Refuse(overlap, "workspace", pipeline.of(region.operand).name, x);
  }
  for (size_t o = 0; o < static_cast<size_t>(regions.outputs); ++o) {
    const Region& output = regions.items[o];
    for (size_t i = o + 1; i < count; ++i) {
      if (AreApart(ranges[o], ranges[i])) continue;
      const Region& other = regions.items[i];
      const Overlap overlap = OverlapOf(pipeline, output, other, tensors, tokens);
      if (overlap == Overlap::kNone) continue;
      return Refuse(overlap, pipeline.of(output.operand).name, pipeline.of(other.operand).name, x);
    }
  }
  return {};
}

}  // namespace qkvfuse::internal
