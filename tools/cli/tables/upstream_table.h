// Rows of upstream's numeric table: shapes, value ranges and tolerances.
#pragma once

#include "tables/upstream_row.h"
#include "tables/verification.h"

namespace qkvfuse::cli {

/// Runs the row on data of its ranges: bits against reference/exact, every element inside its
/// interval of reference/precise and inside the row's tolerances.
[[nodiscard]] Verification VerifyTableRow(UpstreamRow row);

}  // namespace qkvfuse::cli
