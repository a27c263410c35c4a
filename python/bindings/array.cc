#include "array.h"

#include <array>
#include <optional>
#include <utility>

namespace qkvfuse::python {
namespace {

struct DTypeRow {
  DType dtype;
  const char* numpy_name;
  nb::dlpack::dtype dlpack;
};

constexpr nb::dlpack::dtype DlType(nb::dlpack::dtype_code code, uint8_t bits) {
  return {static_cast<uint8_t>(code), bits, 1};
}

using Code = nb::dlpack::dtype_code;
constexpr std::array<DTypeRow, 8> kDTypes{{
    {DType::kFloat32, "float32", DlType(Code::Float, 32)},
    {DType::kFloat16, "float16", DlType(Code::Float, 16)},
    {DType::kBFloat16, "bfloat16", DlType(Code::Bfloat, 16)},
    {DType::kInt8, "int8", DlType(Code::Int, 8)},
    {DType::kInt32, "int32", DlType(Code::Int, 32)},
    {DType::kInt64, "int64", DlType(Code::Int, 64)},
    {DType::kFloat8E4M3, "float8_e4m3fn", DlType(Code::Float8_E4M3FN, 8)},
    {DType::kFloat8E5M2, "float8_e5m2", DlType(Code::Float8_E5M2, 8)},
}};

constexpr const char* kAllowedDTypes =
    "float32, float16, bfloat16, int8, int32, int64, float8_e4m3fn or float8_e5m2";

std::string TypeName(nb::handle object) { return nb::cast<std::string>(nb::inst_name(object)); }

/// What Python calls the dtype of an array, for sentences.
std::string DTypeName(nb::handle object) {
  const nb::object dtype = nb::getattr(object, "dtype", nb::none());
  return nb::cast<std::string>(nb::str(dtype.is_none() ? object.type() : nb::handle(dtype)));
}

const DTypeRow* Find(nb::dlpack::dtype dlpack) {
  for (const DTypeRow& row : kDTypes) {
    if (row.dlpack == dlpack) return &row;
  }
  return nullptr;
}

/// ml_dtypes' types, whose NumPy arrays export neither DLPack nor buffers: such an array is viewed
/// as integers of the same size.
struct ExtensionTypes {
  nb::object ndarray = nb::module_::import_("numpy").attr("ndarray");
  std::array<std::pair<nb::object, const DTypeRow*>, 3> types;

  ExtensionTypes() {
    const nb::module_ ml_dtypes = nb::module_::import_("ml_dtypes");
    size_t count = 0;
    for (const DTypeRow& row : kDTypes) {
      if (row.dtype == DType::kBFloat16 || IsFloat8(row.dtype)) {
        types[count++] = {ml_dtypes.attr(row.numpy_name), &row};
      }
    }
  }

  static const ExtensionTypes& Get() {
    // Never destroyed: its objects would be released after the interpreter's end.
    static const auto* const instance = new ExtensionTypes;
    return *instance;
  }
};

const DTypeRow* ExtensionTypeOf(nb::handle object) {
  const ExtensionTypes& extension = ExtensionTypes::Get();
  if (!nb::isinstance(object, extension.ndarray)) return nullptr;
  const nb::object type = object.attr("dtype").attr("type");
  for (const auto& [known, row] : extension.types) {
    if (type.is(known)) return row;
  }
  return nullptr;
}

/// JAX arrays are immutable, but their DLPack does not say so.
bool IsOfJax(nb::handle object) {
  return nb::cast<std::string>(object.type().attr("__module__")).starts_with("jax");
}

/// Writable memory of the object, or none where it is read-only or no array.
std::optional<nb::ndarray<>> ImportWritable(nb::handle object) {
  if (IsOfJax(object)) return std::nullopt;
  nb::ndarray<> array;
  if (!nb::try_cast(object, array, false)) return std::nullopt;
  return array;
}

[[noreturn]] void RefuseObject(nb::handle object, const char* name) {
  if (nb::hasattr(object, "requires_grad") && nb::cast<bool>(object.attr("requires_grad"))) {
    RefuseValue(name, ": is a ", TypeName(object), " that requires gradients, must be detached");
  }
  if (nb::hasattr(object, "__dlpack__")) {
    RefuseType(name, ": is a ", TypeName(object), " of dtype ", DTypeName(object),
               " that cannot be viewed, must be a strided array in CPU memory of dtype ",
               kAllowedDTypes);
  }
  RefuseType(name, ": is a ", TypeName(object),
             ", must be an array with DLPack or the buffer protocol");
}

}  // namespace

const char* NumpyName(DType dtype) noexcept {
  for (const DTypeRow& row : kDTypes) {
    if (row.dtype == dtype) return row.numpy_name;
  }
  return "unknown";
}

DType DTypeOf(std::string_view numpy_name, const char* argument) {
  for (const DTypeRow& row : kDTypes) {
    if (numpy_name == row.numpy_name) return row.dtype;
  }
  RefuseValue(argument, ": is ", numpy_name, ", must be ", kAllowedDTypes);
}

std::string ShapeText(const StridedShape& shape) {
  std::string text = "[";
  for (int axis = 0; axis < shape.rank; ++axis) {
    if (axis != 0) text += ", ";
    text += std::to_string(shape.dims[static_cast<size_t>(axis)]);
  }
  return text + "]";
}

void CheckPacked(const char* name, const StridedShape& shape) {
  if (shape.ElementCount() == 0) return;
  StridedShape packed = shape;
  packed.MakeContiguous();
  for (size_t axis = 0; axis < static_cast<size_t>(shape.rank); ++axis) {
    if (shape.dims[axis] <= 1 || shape.strides[axis] == packed.strides[axis]) continue;
    RefuseValue(name, ": stride of dimension ", axis, " is ", shape.strides[axis],
                " elements, must be ", packed.strides[axis], ", that of a contiguous array");
  }
}

Array::Array(nb::handle object, const char* name, Access access) {
  const DTypeRow* row = ExtensionTypeOf(object);
  nb::object exported = nb::borrow(object);
  if (row != nullptr) exported = object.attr("view")(SizeOf(row->dtype) == 2 ? "uint16" : "uint8");
  if (access == Access::kWrite) {
    if (auto writable = ImportWritable(exported)) owner_ = nb::ndarray<nb::ro>(*writable);
  }
  if (!owner_.is_valid()) {
    if (!nb::try_cast(exported, owner_, false)) RefuseObject(object, name);
    if (access == Access::kWrite) {
      RefuseValue(name, ": is read-only, must be writable, since it is an output");
    }
  }
  if (owner_.device_type() != nb::device::cpu::value) {
    RefuseType(
        name, ": lies on ",
        nb::cast<std::string>(nb::str(nb::getattr(object, "device", nb::str("another device")))),
        ", must be in CPU memory");
  }
  if (row == nullptr) row = Find(owner_.dtype());
  if (row == nullptr) {
    RefuseType(name, ": type is ", DTypeName(object), ", must be ", kAllowedDTypes);
  }
  if (owner_.ndim() > kMaxRank) {
    RefuseValue(name, ": has ", owner_.ndim(), " dimensions, must have from 0 to ", kMaxRank);
  }
  view_.dtype = row->dtype;
  view_.data = const_cast<void*>(owner_.data());
  view_.shape.rank = static_cast<int>(owner_.ndim());
  for (size_t axis = 0; axis < owner_.ndim(); ++axis) {
    view_.shape.dims[axis] = static_cast<int64_t>(owner_.shape(axis));
    view_.shape.strides[axis] = owner_.stride(axis);
  }
}

}  // namespace qkvfuse::python
