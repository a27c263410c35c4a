// From an aclTensor to the library's TensorView: type, rank, and that the view lies in its storage.
#pragma once

#include "capi/acl_objects.h"
#include "qkvfuse/status.hpp"
#include "qkvfuse/tensor.hpp"

namespace qkvfuse::capi {

/// The view without its data, which phase 1 does not look at. `name` is the parameter's, for the
/// sentence of a refusal.
[[nodiscard]] Status ViewOf(const char* name, const aclTensor& tensor, TensorView* view);

}  // namespace qkvfuse::capi
