// Tensors whose pointers are found by name.
#pragma once

#include <cstdint>

#include "cases/case.h"
#include "qkvfuse/plan.hpp"

namespace qkvfuse::testing {

/// The tensors, with the address of `id` moved on by `bytes`.
[[nodiscard]] Tensors Moved(Tensors tensors, cases::TensorId id, int64_t bytes);

}  // namespace qkvfuse::testing
