// Element types of the tensors that qkvfuse reads and writes.
#pragma once

#include <cstdint>

namespace qkvfuse {

enum class DType : uint8_t {
  kFloat32,
  kFloat16,
  kBFloat16,
  kInt8,
  kInt32,
  kInt64,
  kFloat8E4M3,  // e4m3fn: no infinities, largest value 448, NaN is 0x7F
  kFloat8E5M2,  // largest value 57344
};

/// Bytes of one element.
[[nodiscard]] constexpr int64_t SizeOf(DType dtype) noexcept {
  switch (dtype) {
    case DType::kInt8:
    case DType::kFloat8E4M3:
    case DType::kFloat8E5M2:
      return 1;
    case DType::kFloat16:
    case DType::kBFloat16:
      return 2;
    case DType::kFloat32:
    case DType::kInt32:
      return 4;
    case DType::kInt64:
      return 8;
  }
  return 0;
}

/// The short name that messages, cases and the command line use: fp32, fp16, bf16, int8, ...
[[nodiscard]] constexpr const char* Name(DType dtype) noexcept {
  switch (dtype) {
    case DType::kFloat32:
      return "fp32";
    case DType::kFloat16:
      return "fp16";
    case DType::kBFloat16:
      return "bf16";
    case DType::kInt8:
      return "int8";
    case DType::kInt32:
      return "int32";
    case DType::kInt64:
      return "int64";
    case DType::kFloat8E4M3:
      return "fp8_e4m3";
    case DType::kFloat8E5M2:
      return "fp8_e5m2";
  }
  return "unknown";
}

/// fp16 or bf16.
[[nodiscard]] constexpr bool Is16Bit(DType dtype) noexcept {
  return dtype == DType::kFloat16 || dtype == DType::kBFloat16;
}

/// fp8, either kind.
[[nodiscard]] constexpr bool IsFloat8(DType dtype) noexcept {
  return dtype == DType::kFloat8E4M3 || dtype == DType::kFloat8E5M2;
}

/// A type of codes, which scales belong to: int8 or fp8.
[[nodiscard]] constexpr bool IsQuantised(DType dtype) noexcept {
  return dtype == DType::kInt8 || IsFloat8(dtype);
}

/// fp32, fp16 or bf16.
[[nodiscard]] constexpr bool IsFloat(DType dtype) noexcept {
  return dtype == DType::kFloat32 || Is16Bit(dtype);
}

}  // namespace qkvfuse
