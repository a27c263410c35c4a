// A strided list of indices (slots, positions, page tables) of either integer type.
#pragma once

#include <cstdint>

#include "qkvfuse/dtype.hpp"

namespace qkvfuse::internal {

struct IndexReader {
  const void* data = nullptr;
  DType dtype = DType::kInt64;  // int64 or int32
  int64_t stride = 1;           // elements

  [[nodiscard]] int64_t operator[](int64_t i) const noexcept { return At(i * stride); }

  /// The element at an offset.
  [[nodiscard]] int64_t At(int64_t offset) const noexcept {
    return dtype == DType::kInt64 ? static_cast<const int64_t*>(data)[offset]
                                  : static_cast<const int32_t*>(data)[offset];
  }
};

}  // namespace qkvfuse::internal
