// A valid case from a fuzz target's bytes, one byte for each option.
#pragma once

#include <functional>
#include <optional>

#include "fuzz.h"
#include "tests/support/random_case.h"

namespace qkvfuse::fuzz {

using Draw = std::optional<cases::Case> (*)(const std::function<uint64_t()>& numbers);

/// `draw` says which operators: testing::DrawCase or testing::DrawFusedCase.
[[nodiscard]] inline std::optional<cases::Case> DrawCase(FuzzedDataProvider& bytes,
                                                         Draw draw = &testing::DrawCase) {
  // The byte four times over, since seeds are numbers of 32 bits.
  return draw([&] { return bytes.ConsumeIntegral<uint8_t>() * 0x01010101ULL; });
}

}  // namespace qkvfuse::fuzz
