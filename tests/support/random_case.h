// Samples of the space of cases.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "cases/case.h"

namespace qkvfuse::testing {

/// A valid case with every option drawn at random, small enough for the scalar reference.
[[nodiscard]] cases::Case RandomCase(uint64_t seed);

/// The same space with the caller's numbers, each of which decides one option. Absent when the
/// options contradict each other.
[[nodiscard]] std::optional<cases::Case> DrawCase(const std::function<uint64_t()>& numbers);

/// The same for op=fused.
[[nodiscard]] cases::Case RandomFusedCase(uint64_t seed);
[[nodiscard]] std::optional<cases::Case> DrawFusedCase(const std::function<uint64_t()>& numbers);

}  // namespace qkvfuse::testing
