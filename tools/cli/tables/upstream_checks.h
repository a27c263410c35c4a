// Rows that say what upstream's argument checks accept and refuse, and rows that only have to run.
#pragma once

#include "tables/upstream_row.h"
#include "tables/verification.h"

namespace qkvfuse::cli {

/// "tiling" rows go through the argument checks under the rules of the aclnn operators; "kernel"
/// rows run and are compared with the reference; the other layers are skipped.
[[nodiscard]] Verification VerifyCheckRow(UpstreamRow row);

}  // namespace qkvfuse::cli
