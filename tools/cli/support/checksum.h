// Checksums of tensors that are the same on every machine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "qkvfuse/dtype.hpp"
#include "qkvfuse/tensor.hpp"

namespace qkvfuse::cli {

/// FNV-1a, 64 bits, over `elements` elements. Every 16-bit NaN counts as the same one, because sign
/// and payload of a computed NaN are free.
[[nodiscard]] uint64_t Checksum(const void* data, int64_t elements, DType dtype);

/// The same over the elements of a view in row-major order: strides do not change it.
[[nodiscard]] uint64_t Checksum(const TensorView& view);

/// 16 hexadecimal digits.
[[nodiscard]] std::string ChecksumText(uint64_t checksum);

}  // namespace qkvfuse::cli
