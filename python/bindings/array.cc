#include "array.h"

#include <array>
#include <cstring>
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

std::string TypeName(nb::handle object) { return nb::cast<std::string>(nb::inst_name(object)); }

/// What Python calls the dtype of an array, for sentences.
std::string DTypeName(nb::handle object) {
  const nb::object dtype = nb::getattr(object, "dtype", nb::none());
  if (dtype.is_none()) return TypeName(object);
  return nb::str(dtype).c_str();
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
  nb::object masked = nb::module_::import_("numpy.ma").attr("MaskedArray");
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

/// Refuses NumPy arrays whose memory is not what they show.
const DTypeRow* ExtensionTypeOf(nb::handle object, const char* name, const char* allowed) {
  const ExtensionTypes& extension = ExtensionTypes::Get();
  if (!nb::isinstance(object, extension.ndarray)) return nullptr;
  if (nb::isinstance(object, extension.masked)) {
    RefuseType(name, ": is a masked array, must be an array without a mask");
  }
  const nb::object dtype = object.attr("dtype");
  if (!nb::cast<bool>(dtype.attr("isnative"))) {
    RefuseType(name, ": type is ", nb::str(dtype).c_str(), " of another byte order, must be ",
               allowed);
  }
  const nb::object type = dtype.attr("type");
  for (const auto& [known, row] : extension.types) {
    if (type.is(known)) return row;
  }
  return nullptr;
}

enum class Framework { kOther, kTorch, kJax };

Framework FrameworkOf(nb::handle object) {
  const auto module = nb::cast<std::string>(object.type().attr("__module__"));
  if (module.starts_with("torch")) return Framework::kTorch;
  return module.starts_with("jax") ? Framework::kJax : Framework::kOther;
}

/// The capsule of a tensor: its __dlpack__ is written in Python, and takes longer than a small
/// call. Where there is none, the tensor itself, which is then refused as what it is.
nb::object TorchCapsule(nb::handle tensor, const char* name, Access access) {
  const auto is = [tensor](const char* property) {
    return nb::hasattr(tensor, property) && PyObject_IsTrue(tensor.attr(property).ptr()) == 1;
  };
  if (!nb::hasattr(tensor, "is_neg")) return nb::borrow(tensor);  // not a tensor, but of torch
  if (!is("is_cpu")) {
    const nb::object device = tensor.attr("device");
    RefuseType(name, ": lies on ", nb::str(device).c_str(), ", must be in CPU memory");
  }
  if (nb::cast<bool>(tensor.attr("is_neg")())) {
    RefuseValue(name, ": is a view that negates its memory, must be resolved (resolve_neg)");
  }
  if (access == Access::kWrite && is("requires_grad")) {
    RefuseValue(name, ": requires gradients, must be detached, since it is an output");
  }
  try {
    return nb::module_::import_("torch.utils.dlpack").attr("to_dlpack")(tensor);
  } catch (const nb::python_error&) {
    return nb::borrow(tensor);
  }
}

/// What is imported for the object: NumPy's types of ml_dtypes as integers, tensors as capsules,
/// and what has only the buffer protocol as a memoryview, which has strides where ctypes has none.
nb::object Exported(nb::handle object, const DTypeRow* row, Framework framework, const char* name,
                    Access access) {
  if (row != nullptr) return object.attr("view")(SizeOf(row->dtype) == 2 ? "uint16" : "uint8");
  if (framework == Framework::kTorch) return TorchCapsule(object, name, access);
  if (!nb::hasattr(object, "__dlpack__") && PyObject_CheckBuffer(object.ptr()) != 0) {
    nb::object view = nb::steal(PyMemoryView_FromObject(object.ptr()));
    if (view.is_valid()) return view;
    PyErr_Clear();
  }
  return nb::borrow(object);
}

/// Writable memory of the object, or none where it is read-only or no array.
std::optional<nb::ndarray<>> ImportWritable(nb::handle object, Framework framework) {
  // JAX arrays are immutable, but their DLPack does not say so.
  if (framework == Framework::kJax) return std::nullopt;
  nb::ndarray<> array;
  if (!nb::try_cast(object, array, false)) return std::nullopt;
  return array;
}

[[noreturn]] void RefuseObject(nb::handle object, const char* name, const char* allowed) {
  if (nb::hasattr(object, "__dlpack__")) {
    RefuseType(name, ": is a ", TypeName(object), " of dtype ", DTypeName(object),
               " that cannot be viewed, must be a strided array in CPU memory of dtype ", allowed);
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
  RefuseValue(argument, ": is ", numpy_name, ", must be ", kAllDTypes);
}

std::string ShapeText(const StridedShape& shape) {
  std::string text = "[";
  for (int axis = 0; axis < shape.rank; ++axis) {
    if (axis != 0) text += ", ";
    text += std::to_string(shape.dims[static_cast<size_t>(axis)]);
  }
  return text + "]";
}

void LoadExtensionTypes() { (void)ExtensionTypes::Get(); }

bool IsPacked(const StridedShape& shape) noexcept {
  if (shape.ElementCount() == 0) return true;
  StridedShape packed = shape;
  packed.MakeContiguous();
  for (size_t axis = 0; axis < static_cast<size_t>(shape.rank); ++axis) {
    if (shape.dims[axis] > 1 && shape.strides[axis] != packed.strides[axis]) return false;
  }
  return true;
}

std::vector<std::byte> PackedCopy(const TensorView& view) {
  const auto size = static_cast<size_t>(SizeOf(view.dtype));
  const int64_t count = view.shape.ElementCount();
  std::vector<std::byte> copy(static_cast<size_t>(count) * size);
  const auto* const data = static_cast<const std::byte*>(view.data);
  for (int64_t i = 0; i < count; ++i) {
    int64_t offset = 0;
    int64_t rest = i;
    for (int axis = view.shape.rank - 1; axis >= 0; --axis) {
      const auto a = static_cast<size_t>(axis);
      offset += rest % view.shape.dims[a] * view.shape.strides[a];
      rest /= view.shape.dims[a];
    }
    std::memcpy(copy.data() + static_cast<size_t>(i) * size,
                data + offset * static_cast<int64_t>(size), size);
  }
  return copy;
}

Array::Array(nb::handle object, const char* name, Access access, const char* allowed) {
  const DTypeRow* row = ExtensionTypeOf(object, name, allowed);
  const Framework framework = row != nullptr ? Framework::kOther : FrameworkOf(object);
  const nb::object exported = Exported(object, row, framework, name, access);
  if (access == Access::kWrite) {
    if (auto writable = ImportWritable(exported, framework)) {
      owner_ = nb::ndarray<nb::ro>(*writable);
    }
  }
  if (!owner_.is_valid()) {
    if (!nb::try_cast(exported, owner_, false)) RefuseObject(object, name, allowed);
    if (access == Access::kWrite) {
      RefuseValue(name, ": is read-only, must be writable, since it is an output");
    }
  }
  if (owner_.device_type() != nb::device::cpu::value) {
    RefuseType(name, ": lies on a device, must be in CPU memory");
  }
  if (row == nullptr) row = Find(owner_.dtype());
  if (row == nullptr) RefuseType(name, ": type is ", DTypeName(object), ", must be ", allowed);
  if (owner_.ndim() > kMaxRank) {
    RefuseValue(name, ": has ", owner_.ndim(), " dimensions, must have from 0 to ", kMaxRank);
  }
  view_.dtype = row->dtype;
  view_.data = const_cast<void*>(owner_.data());
  view_.shape.rank = static_cast<int>(owner_.ndim());
  for (size_t axis = 0; axis < owner_.ndim(); ++axis) {
    view_.shape.dims[axis] = static_cast<int64_t>(owner_.shape(axis));
  }
  // The stride of an axis of one element says nothing; plans are found again by strides.
  view_.shape.MakeContiguous();
  for (size_t axis = 0; axis < owner_.ndim(); ++axis) {
    if (view_.shape.dims[axis] > 1) view_.shape.strides[axis] = owner_.stride(axis);
  }
}

}  // namespace qkvfuse::python
