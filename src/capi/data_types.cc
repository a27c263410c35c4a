// The table of element types, and the conversions of fp16 that ACL offers.
#include "capi/data_types.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/half.h"

namespace qkvfuse::capi {
namespace {

struct TypeRow {
  aclDataType type;
  const char* name;
  size_t bytes;  // 0: not a whole number
  std::optional<DType> dtype = std::nullopt;
};

constexpr std::array kTypes = {
    TypeRow{ACL_DT_UNDEFINED, "ACL_DT_UNDEFINED", 0},
    TypeRow{ACL_FLOAT, "ACL_FLOAT", 4, DType::kFloat32},
    TypeRow{ACL_FLOAT16, "ACL_FLOAT16", 2, DType::kFloat16},
    TypeRow{ACL_INT8, "ACL_INT8", 1, DType::kInt8},
    TypeRow{ACL_INT32, "ACL_INT32", 4, DType::kInt32},
    TypeRow{ACL_UINT8, "ACL_UINT8", 1},
    TypeRow{ACL_INT16, "ACL_INT16", 2},
    TypeRow{ACL_UINT16, "ACL_UINT16", 2},
    TypeRow{ACL_UINT32, "ACL_UINT32", 4},
    TypeRow{ACL_INT64, "ACL_INT64", 8, DType::kInt64},
    TypeRow{ACL_UINT64, "ACL_UINT64", 8},
    TypeRow{ACL_DOUBLE, "ACL_DOUBLE", 8},
    TypeRow{ACL_BOOL, "ACL_BOOL", 1},
    TypeRow{ACL_STRING, "ACL_STRING", 0},
    TypeRow{ACL_COMPLEX64, "ACL_COMPLEX64", 8},
    TypeRow{ACL_COMPLEX128, "ACL_COMPLEX128", 16},
    TypeRow{ACL_BF16, "ACL_BF16", 2, DType::kBFloat16},
    TypeRow{ACL_INT4, "ACL_INT4", 0},
    TypeRow{ACL_UINT1, "ACL_UINT1", 0},
    TypeRow{ACL_COMPLEX32, "ACL_COMPLEX32", 4},
    TypeRow{ACL_HIFLOAT8, "ACL_HIFLOAT8", 1},
    TypeRow{ACL_FLOAT8_E5M2, "ACL_FLOAT8_E5M2", 1},
    TypeRow{ACL_FLOAT8_E4M3FN, "ACL_FLOAT8_E4M3FN", 1},
    TypeRow{ACL_FLOAT8_E8M0, "ACL_FLOAT8_E8M0", 1},
    TypeRow{ACL_FLOAT6_E3M2, "ACL_FLOAT6_E3M2", 0},
    TypeRow{ACL_FLOAT6_E2M3, "ACL_FLOAT6_E2M3", 0},
    TypeRow{ACL_FLOAT4_E2M1, "ACL_FLOAT4_E2M1", 0},
    TypeRow{ACL_FLOAT4_E1M2, "ACL_FLOAT4_E1M2", 0},
};

const TypeRow* Find(aclDataType type) noexcept {
  const auto* row = std::find_if(kTypes.begin(), kTypes.end(),
                                 [type](const TypeRow& r) { return r.type == type; });
  return row == kTypes.end() ? nullptr : row;
}

}  // namespace

std::optional<DType> DTypeOf(aclDataType type) noexcept {
  const TypeRow* row = Find(type);
  return row == nullptr ? std::nullopt : row->dtype;
}

std::string Describe(aclDataType type) {
  const TypeRow* row = Find(type);
  return std::string(row == nullptr ? "unknown" : row->name) + " (" +
         std::to_string(static_cast<int>(type)) + ")";
}

}  // namespace qkvfuse::capi

size_t aclDataTypeSize(aclDataType dataType) {
  const qkvfuse::capi::TypeRow* row = qkvfuse::capi::Find(dataType);
  return row == nullptr ? 0 : row->bytes;
}

float aclFloat16ToFloat(aclFloat16 value) {
  constexpr aclFloat16 kExponent = 0x7C00;
  constexpr aclFloat16 kLargest = 0x7BFF;
  const bool is_finite = (value & kExponent) != kExponent;
  const int bits = is_finite ? value : (value & 0x8000) | kLargest;
  return qkvfuse::FloatFromHalf(static_cast<aclFloat16>(bits));
}

aclFloat16 aclFloatToFloat16(float value) {
  constexpr float kLargest = 65504.0f;
  const float magnitude = std::isnan(value) ? kLargest : std::min(std::fabs(value), kLargest);
  return qkvfuse::HalfFromFloat(std::copysign(magnitude, value));
}
