// fp16 and bf16 for the tests of the aclnn door, written from the formats' definitions and
// independent of the library's conversions.
#pragma once

#include <array>
#include <cstdint>

#include "acl/acl_base.h"

namespace qkvfuse::capi_test {

/// The values of all 65,536 patterns of ACL_FLOAT16 or ACL_BF16.
[[nodiscard]] const std::array<float, 65536>& Values16(aclDataType type);

/// The nearest pattern, ties to even, of a finite value in range.
[[nodiscard]] uint16_t Encode16(aclDataType type, double value);

}  // namespace qkvfuse::capi_test
