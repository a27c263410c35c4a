#include "plan/overlap.h"

#include <algorithm>
#include <cstdlib>

namespace qkvfuse {
namespace {

// Where strides nest, at most three values of an index can reach the target at each level, so this
// many visits are far more than such a search takes.
constexpr int kMaxVisits = 4096;

/// Looks for integers u_i in [low_i, high_i] with sum(u_i * stride_i) strictly between two bounds:
/// the difference of two elements' addresses. Axes are sorted by falling stride.
class DifferenceSearch {
 public:
  /// An index difference in [low, high] along a stride; negative strides are mirrored.
  void AddAxis(int64_t stride, int64_t low, int64_t high) noexcept {
    if (stride < 0) {
      stride = -stride;
      std::swap(low, high);
      low = -low;
      high = -high;
    }
    axes_[static_cast<size_t>(count_++)] = {stride, low, high, 0, 0};
  }

  /// Whether some combination lies in (-below, above) around `target`. With `skips_zero` the
  /// combination of all zeros does not count.
  [[nodiscard]] Overlap Find(int64_t target, int64_t below, int64_t above,
                             bool skips_zero) noexcept {
    if (SortAndMerge() && skips_zero) return Overlap::kSome;  // (1, -1) along equal strides
    below_ = below;
    above_ = above;
    skips_zero_ = skips_zero;
    return Visit(0, target, true);
  }

 private:
  struct Axis {
    int64_t stride;
    int64_t low;
    int64_t high;
    int64_t rest_low;  // what the following axes can add
    int64_t rest_high;
  };

  /// Sorts by falling stride and adds up the ranges of equal strides, which reach the same sums.
  /// Returns whether there were any.
  bool SortAndMerge() noexcept {
    const auto begin = axes_.begin();
    std::sort(begin, begin + count_,
              [](const Axis& a, const Axis& b) { return a.stride > b.stride; });
    int merged = 0;
    for (int i = 0; i < count_; ++i) {
      const Axis axis = axes_[static_cast<size_t>(i)];
      if (merged > 0 && axes_[static_cast<size_t>(merged - 1)].stride == axis.stride) {
        axes_[static_cast<size_t>(merged - 1)].low += axis.low;
        axes_[static_cast<size_t>(merged - 1)].high += axis.high;
      } else {
        axes_[static_cast<size_t>(merged++)] = axis;
      }
    }
    const bool has_equal_strides = merged < count_;
    count_ = merged;
    SumUpRests();
    return has_equal_strides;
  }

  void SumUpRests() noexcept {
    int64_t rest_low = 0;
    int64_t rest_high = 0;
    for (int i = count_ - 1; i >= 0; --i) {
      Axis& axis = axes_[static_cast<size_t>(i)];
      axis.rest_low = rest_low;
      axis.rest_high = rest_high;
      rest_low += axis.low * axis.stride;
      rest_high += axis.high * axis.stride;
    }
  }

  // Differences d = sum - target must satisfy -below < d < above at the end.
  [[nodiscard]] Overlap Visit(int level, int64_t target, bool all_zero) noexcept {
    if (++visits_ > kMaxVisits) return Overlap::kUnknown;
    if (level == count_) {
      const bool within = -below_ < -target && -target < above_;
      return within && !(skips_zero_ && all_zero) ? Overlap::kSome : Overlap::kNone;
    }
    const Axis& axis = axes_[static_cast<size_t>(level)];
    if (axis.stride == 0) return VisitStrideZero(level, target, all_zero);
    // u*stride must lie in (target - rest_high - below, target - rest_low + above).
    const int64_t lowest = target - axis.rest_high - below_ + 1;
    const int64_t highest = target - axis.rest_low + above_ - 1;
    const int64_t first = std::max(axis.low, CeilDivide(lowest, axis.stride));
    const int64_t last = std::min(axis.high, FloorDivide(highest, axis.stride));
    Overlap answer = Overlap::kNone;
    for (int64_t u = first; u <= last; ++u) {
      const Overlap found = Visit(level + 1, target - u * axis.stride, all_zero && u == 0);
      if (found == Overlap::kSome) return found;
      if (found == Overlap::kUnknown) answer = found;
      if (visits_ > kMaxVisits) return Overlap::kUnknown;
    }
    return answer;
  }

  /// Along a stride of 0 every difference reaches the same address; a difference that is not zero
  /// is possible, which is all that matters.
  [[nodiscard]] Overlap VisitStrideZero(int level, int64_t target, bool all_zero) noexcept {
    const Axis& axis = axes_[static_cast<size_t>(level)];
    const bool can_differ = axis.low < 0 || axis.high > 0;
    return Visit(level + 1, target, all_zero && !can_differ);
  }

  static int64_t FloorDivide(int64_t a, int64_t b) noexcept { return a / b - (a % b < 0 ? 1 : 0); }
  static int64_t CeilDivide(int64_t a, int64_t b) noexcept { return a / b + (a % b > 0 ? 1 : 0); }

  std::array<Axis, 2 * ByteView::kMaxAxes> axes_{};
  int count_ = 0;
  int visits_ = 0;
  int64_t below_ = 0;
  int64_t above_ = 0;
  bool skips_zero_ = false;
};

/// Whether each axis steps over all that the axes after it span: the usual case, seen at a glance.
bool AxesNestAsListed(const ByteView& view) noexcept {
  int64_t span = view.element_bytes;
  for (int axis = view.axes - 1; axis >= 0; --axis) {
    const auto i = static_cast<size_t>(axis);
    const int64_t step = std::abs(view.strides[i]);
    if (step < span) return false;
    span += (view.sizes[i] - 1) * step;
  }
  return true;
}

}  // namespace

int64_t ByteView::begin() const noexcept {
  int64_t lowest = base;
  for (int axis = 0; axis < axes; ++axis) {
    const auto i = static_cast<size_t>(axis);
    lowest += std::min<int64_t>(0, (sizes[i] - 1) * strides[i]);
  }
  return lowest;
}

int64_t ByteView::end() const noexcept {
  int64_t highest = base;
  for (int axis = 0; axis < axes; ++axis) {
    const auto i = static_cast<size_t>(axis);
    highest += std::max<int64_t>(0, (sizes[i] - 1) * strides[i]);
  }
  return highest + element_bytes;
}

Overlap Intersect(const ByteView& a, const ByteView& b) noexcept {
  if (a.end() <= b.begin() || b.end() <= a.begin()) return Overlap::kNone;
  // Two elements share a byte when the difference of their addresses, a's less b's, lies in
  // (-a.element_bytes, b.element_bytes).
  DifferenceSearch search;
  for (int axis = 0; axis < a.axes; ++axis) {
    const auto i = static_cast<size_t>(axis);
    search.AddAxis(a.strides[i], 0, a.sizes[i] - 1);
  }
  for (int axis = 0; axis < b.axes; ++axis) {
    const auto i = static_cast<size_t>(axis);
    search.AddAxis(b.strides[i], -(b.sizes[i] - 1), 0);
  }
  return search.Find(b.base - a.base, a.element_bytes, b.element_bytes, /*skips_zero=*/false);
}

Overlap OverlapsItself(const ByteView& view) noexcept {
  if (AxesNestAsListed(view)) return Overlap::kNone;
  DifferenceSearch search;
  for (int axis = 0; axis < view.axes; ++axis) {
    const auto i = static_cast<size_t>(axis);
    search.AddAxis(view.strides[i], -(view.sizes[i] - 1), view.sizes[i] - 1);
  }
  return search.Find(0, view.element_bytes, view.element_bytes, /*skips_zero=*/true);
}

}  // namespace qkvfuse
