// A valid case from a fuzz target's bytes, one byte for each option.
#pragma once

#include <optional>

#include "fuzz.h"
#include "tests/support/random_case.h"

namespace qkvfuse::fuzz {

[[nodiscard]] inline std::optional<cases::Case> DrawCase(FuzzedDataProvider& bytes) {
  // The byte four times over, since seeds are numbers of 32 bits.
  return testing::DrawCase([&] { return bytes.ConsumeIntegral<uint8_t>() * 0x01010101ULL; });
}

}  // namespace qkvfuse::fuzz
