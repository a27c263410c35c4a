// From an aclTensor to the library's TensorView: type, rank, and that the view lies in its storage.
#pragma once

#include "capi/acl_objects.h"
#include "qkvfuse/status.hpp"
#include "qkvfuse/tensor.hpp"

namespace qkvfuse::capi {

/// The view, with the address that the tensor has now. `name` is the parameter's, for the sentence
/// of a refusal.
[[nodiscard]] Status ViewOf(const char* name, const aclTensor& tensor, TensorView* view);

/// Address of a view's first element; null for a null storage.
[[nodiscard]] inline void* FirstElement(void* storage, int64_t offset_bytes) noexcept {
  return storage == nullptr ? nullptr : static_cast<char*>(storage) + offset_bytes;
}

}  // namespace qkvfuse::capi
