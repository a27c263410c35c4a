// What is known of each aclDataType: its name, its size, and the DType that stands for it.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "acl/acl_base.h"
#include "qkvfuse/dtype.hpp"

namespace qkvfuse::capi {

/// The type of the library, for the types that operators take.
[[nodiscard]] std::optional<DType> DTypeOf(aclDataType type) noexcept;

/// "ACL_DOUBLE (11)", for sentences.
[[nodiscard]] std::string Describe(aclDataType type);

}  // namespace qkvfuse::capi
