// Checks of what an aclTensor may say: everything in 64 bits with overflow detected.
#include "capi/tensor_view.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <string>

#include "capi/data_types.h"

namespace qkvfuse::capi {
namespace {

Status Refuse(const char* name, const std::string& reason) {
  return {StatusCode::kInvalidArgument, std::string(name) + ": " + reason};
}

Status RefuseOverflow(const char* name) {
  return Refuse(name, "its view or storage is larger than 64 bits can count; make it smaller");
}

// Product of sizes that are not negative, or false when it overflows.
bool CountElements(const std::vector<int64_t>& dims, int64_t* count) {
  *count = 1;
  bool fits = true;
  bool is_empty = false;
  for (const int64_t dim : dims) {
    is_empty = is_empty || dim == 0;
    fits = fits && !__builtin_mul_overflow(*count, dim, count);
  }
  if (is_empty) *count = 0;
  return fits || is_empty;
}

// Elements [lowest, highest] of the storage that a view without empty dimensions reaches.
struct Reach {
  int64_t lowest = 0;
  int64_t highest = 0;
};

bool FindReach(const aclTensor& tensor, Reach* reach) {
  reach->lowest = reach->highest = tensor.offset;
  for (size_t axis = 0; axis < tensor.view_dims.size(); ++axis) {
    int64_t extent = 0;
    if (__builtin_mul_overflow(tensor.view_dims[axis] - 1, tensor.strides[axis], &extent)) {
      return false;
    }
    int64_t* end = extent < 0 ? &reach->lowest : &reach->highest;
    if (__builtin_add_overflow(*end, extent, end)) return false;
  }
  return true;
}

Status CheckStorage(const char* name, const aclTensor& tensor, int64_t element_bytes) {
  int64_t elements = 0;
  int64_t bytes = 0;
  int64_t offset_bytes = 0;  // has to be countable even where there are no elements
  if (!CountElements(tensor.view_dims, &elements) ||
      __builtin_mul_overflow(tensor.offset, element_bytes, &offset_bytes)) {
    return RefuseOverflow(name);
  }
  const bool is_empty = elements == 0;
  if (!CountElements(tensor.storage_dims, &elements) ||
      __builtin_mul_overflow(elements, element_bytes, &bytes)) {
    return RefuseOverflow(name);
  }
  if (is_empty) return {};
  Reach reach;
  // One past the last byte has to be countable too.
  if (!FindReach(tensor, &reach) ||
      reach.highest > std::numeric_limits<int64_t>::max() / element_bytes - 1) {
    return RefuseOverflow(name);
  }
  if (reach.lowest < 0) {
    return Refuse(name, "its view reaches element " + std::to_string(reach.lowest) +
                            " of its storage; it must not begin before element 0");
  }
  if (!tensor.storage_dims.empty() && reach.highest >= elements) {
    return Refuse(name, "its view reaches element " + std::to_string(reach.highest) +
                            ", but its storage dims have " + std::to_string(elements) +
                            " elements; the view must lie inside them");
  }
  return {};
}

Status CheckDims(const char* name, const aclTensor& tensor) {
  if (tensor.view_dims.size() > kMaxRank) {
    return Refuse(name, "has " + std::to_string(tensor.view_dims.size()) +
                            " dimensions; at most 8 are allowed");
  }
  for (const auto* dims : {&tensor.view_dims, &tensor.storage_dims}) {
    for (const int64_t dim : *dims) {
      if (dim < 0) {
        return Refuse(name, "has a dimension of " + std::to_string(dim) +
                                "; dimensions must not be negative");
      }
    }
  }
  return {};
}

}  // namespace

Status ViewOf(const char* name, const aclTensor& tensor, TensorView* view) {
  const std::optional<DType> dtype = DTypeOf(tensor.data_type);
  if (!dtype.has_value()) {
    return Refuse(name, "has type " + Describe(tensor.data_type) +
                            "; operators take ACL_FLOAT, ACL_FLOAT16, ACL_BF16, ACL_INT8, "
                            "ACL_INT32 and ACL_INT64");
  }
  if (Status status = CheckDims(name, tensor); !status.ok()) return status;
  const int64_t element_bytes = SizeOf(*dtype);
  if (Status status = CheckStorage(name, tensor, element_bytes); !status.ok()) return status;
  view->dtype = *dtype;
  view->shape.rank = static_cast<int>(tensor.view_dims.size());
  std::copy(tensor.view_dims.begin(), tensor.view_dims.end(), view->shape.dims.begin());
  std::copy(tensor.strides.begin(), tensor.strides.end(), view->shape.strides.begin());
  return {};
}

}  // namespace qkvfuse::capi
