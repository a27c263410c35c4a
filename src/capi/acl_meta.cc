// Tensors, scalars, arrays and lists: making, reading and destroying them.
#include "aclnn/acl_meta.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <memory>
#include <string>

#include "capi/acl_objects.h"
#include "capi/recent_error.h"

namespace qkvfuse::capi {
namespace {

// Strides of a contiguous view. One that does not fit becomes the largest integer, which no storage
// can hold; nothing is refused before an operator uses the tensor.
std::vector<int64_t> ContiguousStrides(const std::vector<int64_t>& dims) {
  std::vector<int64_t> strides(dims.size());
  int64_t stride = 1;
  for (size_t axis = dims.size(); axis-- > 0;) {
    strides[axis] = stride;
    if (__builtin_mul_overflow(stride, dims[axis], &stride)) {
      stride = std::numeric_limits<int64_t>::max();
    }
  }
  return strides;
}

struct TensorFields {
  const int64_t* view_dims;
  uint64_t rank;
  aclDataType data_type;
  const int64_t* strides;
  int64_t offset;
  aclFormat format;
  const int64_t* storage_dims;
  uint64_t storage_rank;
  void* data;
};

int CheckDims(const TensorFields& fields) {
  if (fields.view_dims == nullptr && fields.rank > 0) {
    return Fail(ACLNN_ERR_PARAM_NULLPTR, "viewDims: is null although viewDimsNum is not 0");
  }
  if (fields.storage_dims == nullptr && fields.storage_rank > 0) {
    return Fail(ACLNN_ERR_PARAM_NULLPTR, "storageDims: is null although storageDimsNum is not 0");
  }
  return ACLNN_SUCCESS;
}

// Either all fields are set, or memory ran out and none is.
void SetFields(const TensorFields& fields, aclTensor& tensor) {
  std::vector<int64_t> dims(fields.view_dims, fields.view_dims + fields.rank);
  std::vector<int64_t> strides =
      fields.strides == nullptr
          ? ContiguousStrides(dims)
          : std::vector<int64_t>(fields.strides, fields.strides + fields.rank);
  std::vector<int64_t> storage(fields.storage_dims, fields.storage_dims + fields.storage_rank);
  tensor.storage_dims = std::move(storage);
  tensor.view_dims = std::move(dims);
  tensor.strides = std::move(strides);
  tensor.offset = fields.offset;
  tensor.data_type = fields.data_type;
  tensor.format = fields.format;
  tensor.storage.store(fields.data, std::memory_order_relaxed);
}

template <typename Body>
int GuardedMeta(Body&& body) noexcept {
  return Guarded(ACLNN_ERR_INNER, std::forward<Body>(body));
}

// Runs body, which makes an object or fails and returns null.
template <typename Object, typename Body>
Object* Create(Body&& body) noexcept {
  Object* object = nullptr;
  const int code = GuardedMeta([&] {
    object = body();
    return ACLNN_SUCCESS;
  });
  return code == ACLNN_SUCCESS ? object : nullptr;
}

template <typename Array, typename Element>
Array* CreateArray(const Element* value, uint64_t size) noexcept {
  return Create<Array>([=]() -> Array* {
    if (value == nullptr && size > 0) {
      Fail(ACLNN_ERR_PARAM_NULLPTR, "value: is null although size is not 0");
      return nullptr;
    }
    auto array = std::make_unique<Array>();
    array->values.assign(value, value + size);
    return array.release();
  });
}

template <typename Object>
aclnnStatus Destroy(const Object* object) noexcept {
  delete object;
  return ACLNN_SUCCESS;
}

int NullArgument() { return Fail(ACLNN_ERR_PARAM_NULLPTR, "a null argument; none may be null"); }

template <typename Object, typename Value, typename Read>
aclnnStatus Get(const Object* object, Value* value, Read&& read) noexcept {
  if (object == nullptr || value == nullptr) return NullArgument();
  *value = static_cast<Value>(read(*object));
  return ACLNN_SUCCESS;
}

template <typename Array>
aclnnStatus GetSize(const Array* array, uint64_t* size) noexcept {
  return Get(array, size, [](const Array& a) { return a.values.size(); });
}

// A copy by new[], which the caller deletes.
aclnnStatus CopyOut(const aclTensor* tensor, std::vector<int64_t> aclTensor::*list,
                    int64_t** values, uint64_t* count) noexcept {
  return GuardedMeta([&] {
    if (tensor == nullptr || values == nullptr || count == nullptr) return NullArgument();
    const std::vector<int64_t>& source = tensor->*list;
    auto copy = std::make_unique<int64_t[]>(source.size());
    std::copy(source.begin(), source.end(), copy.get());
    *values = copy.release();
    *count = source.size();
    return ACLNN_SUCCESS;
  });
}

}  // namespace
}  // namespace qkvfuse::capi

using namespace qkvfuse::capi;  // NOLINT: the functions below are the C face of this file

aclTensor* aclCreateTensor(const int64_t* viewDims, uint64_t viewDimsNum, aclDataType dataType,
                           const int64_t* stride, int64_t offset, aclFormat format,
                           const int64_t* storageDims, uint64_t storageDimsNum, void* tensorData) {
  const TensorFields fields{viewDims, viewDimsNum, dataType,       stride,    offset,
                            format,   storageDims, storageDimsNum, tensorData};
  return Create<aclTensor>([&]() -> aclTensor* {
    if (CheckDims(fields) != ACLNN_SUCCESS) return nullptr;
    auto tensor = std::make_unique<aclTensor>();
    SetFields(fields, *tensor);
    return tensor.release();
  });
}

aclnnStatus aclInitTensor(aclTensor* tensor, const int64_t* viewDims, uint64_t viewDimsNum,
                          aclDataType dataType, const int64_t* stride, int64_t offset,
                          aclFormat format, const int64_t* storageDims, uint64_t storageDimsNum,
                          void* tensorDataAddr) {
  const TensorFields fields{viewDims, viewDimsNum, dataType,       stride,        offset,
                            format,   storageDims, storageDimsNum, tensorDataAddr};
  return GuardedMeta([&] {
    if (tensor == nullptr) return NullArgument();
    const int code = CheckDims(fields);
    if (code != ACLNN_SUCCESS) return code;
    SetFields(fields, *tensor);
    ++tensor->version;
    return code;
  });
}

aclScalar* aclCreateScalar(void* value, aclDataType dataType) {
  return Create<aclScalar>([=]() -> aclScalar* {
    const size_t bytes = aclDataTypeSize(dataType);
    if (value == nullptr || bytes == 0) {
      Fail(ACLNN_ERR_PARAM_INVALID, "value: is null, or dataType has no size in bytes");
      return nullptr;
    }
    auto scalar = std::make_unique<aclScalar>();
    scalar->data_type = dataType;
    std::memcpy(scalar->bytes.data(), value, bytes);
    return scalar.release();
  });
}

aclIntArray* aclCreateIntArray(const int64_t* value, uint64_t size) {
  return CreateArray<aclIntArray>(value, size);
}

aclFloatArray* aclCreateFloatArray(const float* value, uint64_t size) {
  return CreateArray<aclFloatArray>(value, size);
}

aclBoolArray* aclCreateBoolArray(const bool* value, uint64_t size) {
  return CreateArray<aclBoolArray>(value, size);
}

aclTensorList* aclCreateTensorList(const aclTensor* const* value, uint64_t size) {
  return CreateArray<aclTensorList>(value, size);
}

aclScalarList* aclCreateScalarList(const aclScalar* const* value, uint64_t size) {
  return CreateArray<aclScalarList>(value, size);
}

aclnnStatus aclDestroyTensor(const aclTensor* tensor) {
  ReleaseTensor(tensor);
  return ACLNN_SUCCESS;
}

aclnnStatus aclDestroyScalar(const aclScalar* scalar) { return Destroy(scalar); }

aclnnStatus aclDestroyIntArray(const aclIntArray* array) { return Destroy(array); }

aclnnStatus aclDestroyFloatArray(const aclFloatArray* array) { return Destroy(array); }

aclnnStatus aclDestroyBoolArray(const aclBoolArray* array) { return Destroy(array); }

aclnnStatus aclDestroyTensorList(const aclTensorList* array) {
  if (array != nullptr) std::for_each(array->values.begin(), array->values.end(), ReleaseTensor);
  return Destroy(array);
}

aclnnStatus aclDestroyScalarList(const aclScalarList* array) {
  if (array != nullptr) {
    std::for_each(array->values.begin(), array->values.end(), Destroy<aclScalar>);
  }
  return Destroy(array);
}

aclnnStatus aclGetViewShape(const aclTensor* tensor, int64_t** viewDims, uint64_t* viewDimsNum) {
  return CopyOut(tensor, &aclTensor::view_dims, viewDims, viewDimsNum);
}

aclnnStatus aclGetStorageShape(const aclTensor* tensor, int64_t** storageDims,
                               uint64_t* storageDimsNum) {
  return CopyOut(tensor, &aclTensor::storage_dims, storageDims, storageDimsNum);
}

aclnnStatus aclGetViewStrides(const aclTensor* tensor, int64_t** stridesValue,
                              uint64_t* stridesNum) {
  return CopyOut(tensor, &aclTensor::strides, stridesValue, stridesNum);
}

aclnnStatus aclGetViewOffset(const aclTensor* tensor, int64_t* offset) {
  return Get(tensor, offset, [](const aclTensor& t) { return t.offset; });
}

aclnnStatus aclGetFormat(const aclTensor* tensor, aclFormat* format) {
  return Get(tensor, format, [](const aclTensor& t) { return t.format; });
}

aclnnStatus aclGetDataType(const aclTensor* tensor, aclDataType* dataType) {
  return Get(tensor, dataType, [](const aclTensor& t) { return t.data_type; });
}

aclnnStatus aclGetIntArraySize(const aclIntArray* array, uint64_t* size) {
  return GetSize(array, size);
}

aclnnStatus aclGetFloatArraySize(const aclFloatArray* array, uint64_t* size) {
  return GetSize(array, size);
}

aclnnStatus aclGetBoolArraySize(const aclBoolArray* array, uint64_t* size) {
  return GetSize(array, size);
}

aclnnStatus aclGetTensorListSize(const aclTensorList* tensorList, uint64_t* size) {
  return GetSize(tensorList, size);
}

aclnnStatus aclGetScalarListSize(const aclScalarList* scalarList, uint64_t* size) {
  return GetSize(scalarList, size);
}

aclnnStatus aclSetRawTensorAddr(aclTensor* tensor, void* addr) {
  if (tensor == nullptr) return NullArgument();
  tensor->storage.store(addr, std::memory_order_relaxed);
  return ACLNN_SUCCESS;
}

aclnnStatus aclGetRawTensorAddr(const aclTensor* tensor, void** addr) {
  return Get(tensor, addr, [](const aclTensor& t) { return t.storage.load(); });
}
