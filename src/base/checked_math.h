// 64-bit arithmetic that reports overflow instead of wrapping.
#pragma once

#include <cstdint>

namespace qkvfuse {

/// *result = a * b; false on overflow.
[[nodiscard]] inline bool CheckedMul(int64_t a, int64_t b, int64_t* result) noexcept {
  return !__builtin_mul_overflow(a, b, result);
}

/// *result = a + b; false on overflow.
[[nodiscard]] inline bool CheckedAdd(int64_t a, int64_t b, int64_t* result) noexcept {
  return !__builtin_add_overflow(a, b, result);
}

/// Lowest and highest element offset that a view reaches, from its element with all indices 0.
struct OffsetRange {
  int64_t lowest = 0;
  int64_t highest = 0;

  /// Widens the range by an axis of `size` >= 1 elements; false on overflow.
  [[nodiscard]] bool AddAxis(int64_t size, int64_t stride) noexcept {
    int64_t span = 0;
    if (!CheckedMul(size - 1, stride, &span)) return false;
    return span < 0 ? CheckedAdd(lowest, span, &lowest) : CheckedAdd(highest, span, &highest);
  }
};

}  // namespace qkvfuse
