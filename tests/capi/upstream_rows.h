// Rows of the shared case tables (one JSON object a line), as calls through the aclnn door.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "call.h"
#include "golden.h"

namespace qkvfuse::capi_test {

/// All rows of a table of the shared cases; empty when the file is absent. Where to look: the
/// environment variable QKVFUSE_SHARED_CASES, else the configured folder.
[[nodiscard]] std::vector<nlohmann::json> ReadRows(const std::string& file);

/// The call that a row describes. Tensors have null data and no memory until FillCall.
[[nodiscard]] std::unique_ptr<Call> CallOf(const nlohmann::json& row);

/// Memory for every tensor: inputs from the row's ranges (or of moderate size), distinct slots in
/// random order, poisoned outputs.
void FillCall(const nlohmann::json& row, uint64_t seed, Call& call);

/// The tolerances of a row; the defaults where it has none.
[[nodiscard]] Tolerances TolerancesOf(const nlohmann::json& row);

}  // namespace qkvfuse::capi_test
