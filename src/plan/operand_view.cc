#include "plan/operand_view.h"

#include <algorithm>

#include "base/checked_math.h"
#include "base/message.h"

namespace qkvfuse::internal {
namespace {

// Keeps sums and differences of extents inside 64 bits.
constexpr int64_t kMaxExtentBytes = int64_t{1} << 60;

/// Axes of an operand, strides in elements.
struct Axes {
  static constexpr int kMax = kMaxRank;
  std::array<int64_t, kMax> sizes{};
  std::array<int64_t, kMax> strides{};
  int count = 0;

  /// The stride of an axis of one element does not matter and may be anything.
  void Add(int64_t size, int64_t stride) noexcept {
    if (size == 1) return;
    sizes[static_cast<size_t>(count)] = size;
    strides[static_cast<size_t>(count)] = stride;
    ++count;
  }
};

void AddRows(const OperandSpec& spec, int64_t heads, int64_t head_dim, TokenCount tokens,
             Axes* axes) noexcept {
  const TokenStrides& strides = spec.strides;
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
  axes->Add(heads, strides.head);
  axes->Add(head_dim, strides.channel);
}

void AddCache(const OperandSpec& spec, int64_t head_dim, Axes* axes) noexcept {
  const CacheLayout& layout = spec.layout;
  axes->Add(layout.blocks, layout.block_stride);
  axes->Add(spec.heads, layout.head_stride);
  const int64_t rows = layout.row_chunk == 0 ? layout.block_size : layout.row_chunk;
  axes->Add(layout.block_size / rows, layout.row_chunk_stride);
  axes->Add(rows, layout.row_stride);
  const int64_t channels = layout.channel_chunk == 0 ? head_dim : layout.channel_chunk;
  axes->Add(head_dim / channels, layout.channel_chunk_stride);
  axes->Add(channels, layout.channel_stride);
}

Axes AxesOf(const Pipeline& pipeline, const OperandSpec& spec, TokenCount tokens) noexcept {
  Axes axes;
  switch (spec.role) {
    case Role::kUnused:
      break;
    case Role::kRows:
      AddRows(spec, spec.heads, pipeline.head_dim, tokens, &axes);
      break;
    case Role::kCache:
      AddCache(spec, pipeline.head_dim, &axes);
      break;
    case Role::kSlots:
      axes.Add(pipeline.slots.mode == SlotMode::kSlotPerToken ? tokens.total() : tokens.batch,
               pipeline.slots.stride);
      break;
    case Role::kParameter:
    case Role::kTokenParameter:
      if (spec.shape.rank == 0) {
        axes.Add(spec.role == Role::kParameter ? spec.count : tokens.total(), 1);
      }
      for (int axis = 0; axis < spec.shape.rank; ++axis) {
        const auto i = static_cast<size_t>(axis);
        axes.Add(spec.shape.dims[i], spec.shape.strides[i]);
      }
      break;
  }
  return axes;
}

ByteView ViewOf(const Axes& axes, DType dtype, const void* data) noexcept {
  ByteView view;
  view.base = static_cast<int64_t>(reinterpret_cast<uintptr_t>(data));
  view.element_bytes = SizeOf(dtype);
  for (int axis = 0; axis < axes.count; ++axis) {
    const auto i = static_cast<size_t>(axis);
    view.Add(axes.sizes[i], axes.strides[i] * view.element_bytes);
  }
  return view;
}

bool FitsExtent(const Axes& axes, DType dtype) noexcept {
  OffsetRange range;
  const int64_t limit = kMaxExtentBytes / SizeOf(dtype);
  for (int axis = 0; axis < axes.count; ++axis) {
    const auto i = static_cast<size_t>(axis);
    if (axes.sizes[i] < 1) return true;  // no elements
    if (!range.AddAxis(axes.sizes[i], axes.strides[i])) return false;
    if (range.highest > limit || range.lowest < -limit) return false;
  }
  return true;
}

/// One operand of a call in memory; x is taken apart into its q, k and v heads, and what lies
/// exactly on one of them may be that group's dense output.
struct Region {
  const OperandSpec* spec = nullptr;
  const void* data = nullptr;
  Axes axes;
  int group = -1;     // of x, or of a dense output
  int64_t begin = 0;  // first byte, and one past the last
  int64_t end = 0;

  [[nodiscard]] ByteView view() const noexcept { return ViewOf(axes, spec->dtype, data); }
};

bool LieOnEachOther(const Region& a, const Region& b) noexcept {
  if (a.group < 0 || a.group != b.group || a.spec->dtype != b.spec->dtype) return false;
  const ByteView x = a.view();
  const ByteView y = b.view();
  return x.base == y.base && x.axes == y.axes &&
         std::equal(x.strides.begin(), x.strides.begin() + x.axes, y.strides.begin()) &&
         std::equal(x.sizes.begin(), x.sizes.begin() + x.axes, y.sizes.begin());
}

int GroupOfDense(const Pipeline& pipeline, Operand operand) noexcept {
  for (size_t g = 0; g < pipeline.groups.size(); ++g) {
    // Only one of two dense outputs can lie on x, else they overlap each other.
    for (const auto& dense : pipeline.groups[g].dense) {
      if (dense == operand) return static_cast<int>(g);
    }
  }
  return -1;
}

/// The regions of a call, outputs first.
struct Regions {
  std::array<Region, kOperandCount + 3> items;
  int count = 0;
  int outputs = 0;

  void Add(const OperandSpec& spec, int group, const Axes& axes, const void* data) noexcept {
    Region& region = items[static_cast<size_t>(count++)];
    region.spec = &spec;
    region.data = data;
    region.axes = axes;
    region.group = group;
    region.begin = region.end = static_cast<int64_t>(reinterpret_cast<uintptr_t>(data));
    const int64_t element_bytes = SizeOf(spec.dtype);
    for (int axis = 0; axis < axes.count; ++axis) {
      const auto i = static_cast<size_t>(axis);
      const int64_t span = (axes.sizes[i] - 1) * axes.strides[i] * element_bytes;
      (span < 0 ? region.begin : region.end) += span;
    }
    region.end += element_bytes;
  }
};

void AddPartsOfX(const Pipeline& pipeline, const Tensors& tensors, TokenCount tokens,
                 Regions* regions) noexcept {
  const OperandSpec& x = pipeline.of(Operand::kX);
  for (size_t g = 0; g < pipeline.groups.size(); ++g) {
    const HeadGroup& group = pipeline.groups[g];
    Axes axes;
    AddRows(x, group.heads, pipeline.head_dim, tokens, &axes);
    const char* const data =
        static_cast<const char*>(tensors.x) + group.first_head * x.strides.head * SizeOf(x.dtype);
    regions->Add(x, static_cast<int>(g), axes, data);
  }
}

void CollectRegions(const Pipeline& pipeline, const Tensors& tensors, TokenCount tokens,
                    Regions* regions) noexcept {
  for (const bool wants_outputs : {true, false}) {
    for (size_t i = 0; i < kOperandCount; ++i) {
      const auto operand = static_cast<Operand>(i);
      const OperandSpec& spec = pipeline.of(operand);
      if (spec.role == Role::kUnused || spec.is_output != wants_outputs) continue;
      if (operand == Operand::kX) {
        AddPartsOfX(pipeline, tensors, tokens, regions);
        continue;
      }
      regions->Add(spec, GroupOfDense(pipeline, operand), AxesOf(pipeline, spec, tokens),
                   PointerOf(tensors, operand));
    }
    if (wants_outputs) regions->outputs = regions->count;
  }
}

}  // namespace

Status CheckOperandExtent(const Pipeline& pipeline, Operand operand, TokenCount tokens) {
  const OperandSpec& spec = pipeline.of(operand);
  const Axes axes = AxesOf(pipeline, spec, tokens);
  if (!FitsExtent(axes, spec.dtype)) {
    return Invalid(spec.name, ": its sizes and strides span more than 2^60 bytes");
  }
  if (!spec.is_output) return {};
  switch (OverlapsItself(ViewOf(axes, spec.dtype, nullptr))) {
    case Overlap::kNone:
      return {};
    case Overlap::kSome:
      return Invalid(spec.name,
                     ": its strides put two elements at one address, an output must not overlap "
                     "itself");
    case Overlap::kUnknown:
      break;
  }
  return Invalid(spec.name,
                 ": its strides do not nest, so its elements cannot be shown to be disjoint, as an "
                 "output's must be");
}

Status CheckOverlap(const Pipeline& pipeline, const Tensors& tensors, TokenCount tokens,
                    Workspace workspace) {
  Regions regions;
  OperandSpec scratch;
  scratch.dtype = DType::kInt8;
  scratch.name = "workspace";
  scratch.is_output = true;
  Axes bytes;
  bytes.Add(static_cast<int64_t>(workspace.bytes), 1);
  regions.Add(scratch, -1, bytes, workspace.data);
  CollectRegions(pipeline, tensors, tokens, &regions);
  for (int o = 0; o < regions.outputs; ++o) {
    const Region& output = regions.items[static_cast<size_t>(o)];
    for (int i = o + 1; i < regions.count; ++i) {
      const Region& other = regions.items[static_cast<size_t>(i)];
      if (output.end <= other.begin || other.end <= output.begin) continue;
      if (!other.spec->is_output && LieOnEachOther(output, other)) continue;
      switch (Intersect(output.view(), other.view())) {
        case Overlap::kNone:
          continue;
        case Overlap::kSome:
          return Invalid(output.spec->name, ": overlaps ", other.spec->name,
                         ", an output must not share an element with another tensor (except a "
                         "dense output that lies exactly on its own part of ",
                         pipeline.of(Operand::kX).name, ")");
        case Overlap::kUnknown:
          return Invalid(output.spec->name, ": its byte range crosses that of ", other.spec->name,
                         " and their strides do not nest, so they cannot be shown to be disjoint, "
                         "as they must be");
      }
    }
  }
  return {};
}

}  // namespace qkvfuse::internal
