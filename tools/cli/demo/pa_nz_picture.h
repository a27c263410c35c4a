// Runs one step of inference into a small PA_NZ cache and reads back which token each row of each
// chunk belongs to.
#pragma once

#include "demo/pa_nz_svg.h"

namespace qkvfuse::cli {

/// Throws std::runtime_error when a byte of the cache is not where the address formula puts it.
[[nodiscard]] PaNzPicture MakePaNzPicture();

}  // namespace qkvfuse::cli
