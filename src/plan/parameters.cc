#include "plan/parameters.h"

#include <algorithm>
#include <cstring>

#include "base/checked_math.h"

namespace qkvfuse::internal {
namespace {

bool IsContiguous(const StridedShape& shape) noexcept {
  int64_t expected = 1;  // fits where there are elements
  for (int axis = shape.rank - 1; axis >= 0; --axis) {
    const auto i = static_cast<size_t>(axis);
    if (shape.dims[i] == 1) continue;
    if (shape.strides[i] != expected) return false;
    if (!CheckedMul(expected, shape.dims[i], &expected)) return false;
  }
  return true;
}

/// Walks the elements of a shape in row-major order.
class Odometer {
 public:
  explicit Odometer(const StridedShape& shape) noexcept : shape_(shape) {}

  [[nodiscard]] int64_t offset() const noexcept { return offset_; }
  void Advance() noexcept {
    for (int axis = shape_.rank - 1; axis >= 0; --axis) {
      const auto i = static_cast<size_t>(axis);
      if (shape_.dims[i] == 1) continue;  // its stride does not matter
      offset_ += shape_.strides[i];
      if (++index_[i] < shape_.dims[i]) return;
      offset_ -= index_[i] * shape_.strides[i];
      index_[i] = 0;
    }
  }

 private:
  const StridedShape& shape_;
  std::array<int64_t, kMaxRank> index_{};
  int64_t offset_ = 0;
};

/// Packs contiguous elements.
void PackRun(const PlanImpl& plan, const OperandSpec& spec, const void* from, int64_t count,
             char* to) {
  if (spec.dtype == DType::kInt32) {
    std::memcpy(to, from, static_cast<size_t>(count) * sizeof(int32_t));
    return;
  }
  auto* const values = reinterpret_cast<float*>(to);
  plan.parameters.widen(spec.dtype, from, count, values);
  if (!spec.adds_one) return;
  for (int64_t i = 0; i < count; ++i) values[i] = 1.0f + values[i];
}

/// Whether runs of elements are one element of the caller's, as a scale per head or tensor has it.
bool RepeatsElements(const StridedShape& shape) noexcept {
  const auto last = static_cast<size_t>(shape.rank - 1);
  return shape.rank > 1 && shape.strides[last] == 0 && shape.dims[last] > 1;
}

/// Packs an element for each run of them, and repeats it.
void PackRepeated(const PlanImpl& plan, const OperandSpec& spec, const void* from, int64_t count,
                  char* to) {
  StridedShape outer = spec.shape;
  const int64_t run = outer.dims[static_cast<size_t>(--outer.rank)];
  const int64_t element_bytes = SizeOf(spec.dtype);
  Odometer odometer(outer);
  for (int64_t done = 0; done < count; done += run) {
    alignas(4) char packed[4];
    PackRun(plan, spec, static_cast<const char*>(from) + odometer.offset() * element_bytes, 1,
            packed);
    odometer.Advance();
    const int64_t end = std::min(done + run, count);
    for (int64_t i = done; i < end; ++i) std::memcpy(to + i * 4, packed, sizeof(packed));
  }
}

}  // namespace

bool NeedsPacking(const OperandSpec& spec) noexcept {
  const bool has_kernel_type = spec.dtype == DType::kFloat32 || spec.dtype == DType::kInt32;
  return !has_kernel_type || spec.adds_one || !IsContiguous(spec.shape);
}

int64_t ParameterCount(const OperandSpec& spec, TokenCount tokens) noexcept {
  return spec.role == Role::kTokenParameter ? tokens.total() : spec.count;
}

void PackParameter(const PlanImpl& plan, const OperandSpec& spec, const void* from, int64_t count,
                   void* to) noexcept {
  char* out = static_cast<char*>(to);
  if (IsContiguous(spec.shape)) return PackRun(plan, spec, from, count, out);
  if (RepeatsElements(spec.shape)) return PackRepeated(plan, spec, from, count, out);
  // Gathers a stretch at a time and widens that.
  constexpr int64_t kStretch = 64;
  alignas(8) char gathered[kStretch * 4];
  const int64_t element_bytes = SizeOf(spec.dtype);
  Odometer odometer(spec.shape);
  for (int64_t done = 0; done < count;) {
    const int64_t stretch = std::min(kStretch, count - done);
    for (int64_t i = 0; i < stretch; ++i) {
      std::memcpy(gathered + i * element_bytes,
                  static_cast<const char*>(from) + odometer.offset() * element_bytes,
                  static_cast<size_t>(element_bytes));
      odometer.Advance();
    }
    PackRun(plan, spec, gathered, stretch, out);
    out += stretch * 4;
    done += stretch;
  }
}

}  // namespace qkvfuse::internal
