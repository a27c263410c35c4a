// What the fuzz targets share: numbers that find bounds, and how a finding is told.
#pragma once

#include <fuzzer/FuzzedDataProvider.h>

#include <cstdint>
#include <string>

namespace qkvfuse::fuzz {

/// What a target does with an input; each target defines it.
void RunInput(FuzzedDataProvider& bytes);

/// Prints the sentence and ends the program, which libFuzzer takes for a finding.
[[noreturn]] void Report(const std::string& finding);

/// Something near `value`, a number where arithmetic tends to break, or any.
[[nodiscard]] int64_t Disturbed(int64_t value, FuzzedDataProvider& bytes);

/// Ordinary 16-bit floats: fp16 and bf16 read both as finite and of moderate size.
[[nodiscard]] uint16_t OrdinaryBits16(uint64_t number);

}  // namespace qkvfuse::fuzz
