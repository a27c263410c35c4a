// Arrays of the caller as strided views, without copies: whatever has DLPack or the buffer protocol
// (NumPy, PyTorch, JAX), and the NumPy arrays of ml_dtypes, which have neither.
#pragma once

#include <nanobind/ndarray.h>

#include <cstddef>
#include <string>
#include <vector>

#include "qkvfuse/tensor.hpp"
#include "refuse.h"

namespace qkvfuse::python {

inline constexpr const char* kAllDTypes =
    "float32, float16, bfloat16, int8, int32, int64, float8_e4m3fn or float8_e5m2";

/// Imports what arrays of ml_dtypes need; once, when the module is imported.
void LoadExtensionTypes();

enum class Access { kRead, kWrite };

/// One array of a call. Holds its memory until it is destroyed, which needs the GIL.
class Array {
 public:
  /// Raises TypeError for what is no array, lies on a device or has a dtype that qkvfuse does not
  /// know, `allowed` in the sentence, and ValueError for a read-only one that is to be written.
  Array(nb::handle object, const char* name, Access access, const char* allowed = kAllDTypes);

  [[nodiscard]] const TensorView& view() const noexcept { return view_; }
  [[nodiscard]] const StridedShape& shape() const noexcept { return view_.shape; }

 private:
  nb::ndarray<nb::ro> owner_;
  TensorView view_;
};

/// NumPy's and ml_dtypes' name: float32, bfloat16, float8_e4m3fn, ...
[[nodiscard]] const char* NumpyName(DType dtype) noexcept;

/// The dtype of a name of NumPy's or ml_dtypes'.
[[nodiscard]] DType DTypeOf(std::string_view numpy_name, const char* argument);

/// Whether the elements follow each other in row-major order.
[[nodiscard]] bool IsPacked(const StridedShape& shape) noexcept;

/// The elements in row-major order.
[[nodiscard]] std::vector<std::byte> PackedCopy(const TensorView& view);

/// [2, 3, 4]
[[nodiscard]] std::string ShapeText(const StridedShape& shape);

}  // namespace qkvfuse::python
