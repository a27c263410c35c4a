// Strides of each pattern, and the extent of the storage under them.
#include "cases/strides.h"

#include <algorithm>
#include <vector>

namespace qkvfuse::cases {
namespace {

// Odd, so that rows start at addresses that no vector is aligned to.
constexpr int64_t kPitchGap = 5;
constexpr int64_t kHeadGap = 3;
constexpr int64_t kOffsetElements = 3;

// Element strides of dense storage whose dimensions nest in the order of `axes`, outermost first.
// Rows of `gap_axis` are `gap` elements apart, and elements `step`.
struct Nesting {
  std::vector<size_t> axes;
  size_t gap_axis;
  int64_t gap = 0;
  int64_t step = 1;
};

void SetStrides(StridedShape& shape, const Nesting& nesting) {
  int64_t stride = nesting.step;
  for (auto axis = nesting.axes.rbegin(); axis != nesting.axes.rend(); ++axis) {
    if (*axis == nesting.gap_axis) stride += nesting.gap;
    shape.strides[*axis] = stride;
    stride *= std::max<int64_t>(shape.dims[*axis], 1);
  }
}

Nesting NestingOf(int rank, StridePattern pattern, int head_axis) {
  Nesting nesting;
  for (int axis = 0; axis < rank; ++axis) nesting.axes.push_back(static_cast<size_t>(axis));
  nesting.gap_axis = rank > 2 ? 1 : 0;
  if (pattern == StridePattern::kPitch) nesting.gap = kPitchGap;
  if (pattern == StridePattern::kChannel) nesting.step = 2;
  if (pattern == StridePattern::kHeadPitch) {
    nesting.gap_axis = static_cast<size_t>(std::max(rank - 2, 0));
    nesting.gap = kHeadGap;
  }
  if (pattern == StridePattern::kHeadsFirst) {
    const auto head = nesting.axes.begin() + head_axis;
    std::rotate(nesting.axes.begin(), head, head + 1);
  }
  return nesting;
}

void Reverse(StridedShape& shape, StridePattern pattern) {
  const int axes = pattern == StridePattern::kMirrored   ? shape.rank
                   : pattern == StridePattern::kReversed ? std::max(shape.rank - 1, 1)
                                                         : 0;
  for (int axis = 0; axis < axes; ++axis) {
    int64_t& stride = shape.strides[static_cast<size_t>(axis)];
    stride = -stride;
  }
}

void Broadcast(StridedShape& shape) {
  const int axes = shape.rank == 4 ? 2 : std::max(shape.rank - 1, 1);
  for (int axis = 0; axis < axes; ++axis) shape.strides[static_cast<size_t>(axis)] = 0;
}

}  // namespace

Placement Place(const StridedShape& dims, StridePattern pattern, int head_axis) {
  Placement placement;
  placement.shape = dims;
  StridedShape& shape = placement.shape;
  if (pattern == StridePattern::kLonger) shape.dims[0] += 1;
  SetStrides(shape, NestingOf(shape.rank, pattern, head_axis));
  Reverse(shape, pattern);
  if (pattern == StridePattern::kBroadcast) Broadcast(shape);
  int64_t lowest = 0;
  int64_t highest = 0;
  for (size_t axis = 0; axis < static_cast<size_t>(shape.rank); ++axis) {
    const int64_t reach = std::max<int64_t>(shape.dims[axis] - 1, 0) * shape.strides[axis];
    (reach < 0 ? lowest : highest) += reach;
  }
  const int64_t lead = pattern == StridePattern::kOffset ? kOffsetElements : 0;
  placement.first = lead - lowest;
  placement.elements = lead + highest - lowest + 1;
  return placement;
}

}  // namespace qkvfuse::cases
