// Seeded samples of the space of cases.
#pragma once

#include <cstdint>

#include "cases/case.h"

namespace qkvfuse::testing {

/// A valid case with every option drawn at random, small enough for the scalar reference.
[[nodiscard]] cases::Case RandomCase(uint64_t seed);

}  // namespace qkvfuse::testing
