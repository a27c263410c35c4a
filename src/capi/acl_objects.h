// The objects behind the opaque types of aclnn/acl_meta.h, except executors.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <utility>
#include <vector>

#include "aclnn/acl_meta.h"

/// Shared by the caller, who gives it up by aclDestroyTensor, and the executors made from it.
struct aclTensor {
  std::vector<int64_t> view_dims;
  std::vector<int64_t> strides;  // elements, as many as view_dims
  std::vector<int64_t> storage_dims;
  int64_t offset = 0;  // elements
  aclDataType data_type = ACL_DT_UNDEFINED;
  aclFormat format = ACL_FORMAT_UNDEFINED;
  std::atomic<void*> storage{nullptr};
  uint64_t version = 0;  // counts aclInitTensor, after which the view may be another
  mutable std::atomic<int> owners{1};
};

struct aclScalar {
  aclDataType data_type = ACL_DT_UNDEFINED;
  std::array<unsigned char, 16> bytes{};
};

struct aclIntArray {
  std::vector<int64_t> values;
};

struct aclFloatArray {
  std::vector<float> values;
};

struct aclBoolArray {
  std::vector<unsigned char> values;
};

struct aclTensorList {
  std::vector<const aclTensor*> values;
};

struct aclScalarList {
  std::vector<const aclScalar*> values;
};

namespace qkvfuse::capi {

/// Gives up one owner's share; the last one deletes.
inline void ReleaseTensor(const aclTensor* tensor) noexcept {
  if (tensor != nullptr && tensor->owners.fetch_sub(1, std::memory_order_acq_rel) == 1) {
    delete tensor;
  }
}

/// A share of a tensor.
class TensorShare {
 public:
  TensorShare() = default;
  explicit TensorShare(const aclTensor* tensor) noexcept : tensor_(tensor) {
    if (tensor_ != nullptr) tensor_->owners.fetch_add(1, std::memory_order_relaxed);
  }
  TensorShare(TensorShare&& other) noexcept : tensor_(std::exchange(other.tensor_, nullptr)) {}
  TensorShare& operator=(TensorShare&& other) noexcept {
    std::swap(tensor_, other.tensor_);
    return *this;
  }
  ~TensorShare() { ReleaseTensor(tensor_); }

  [[nodiscard]] const aclTensor* get() const noexcept { return tensor_; }

 private:
  const aclTensor* tensor_ = nullptr;
};

}  // namespace qkvfuse::capi
