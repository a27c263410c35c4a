#include "fuzz.h"

#include <cstdio>
#include <cstdlib>
#include <limits>

namespace qkvfuse::fuzz {
namespace {

constexpr int64_t kMin = std::numeric_limits<int64_t>::min();
constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
constexpr int64_t kBounds[] = {0,
                               1,
                               -1,
                               2,
                               15,
                               16,
                               17,
                               31,
                               32,
                               33,
                               64,
                               128,
                               1024,
                               65536,
                               65537,
                               (int64_t{1} << 31) - 1,
                               int64_t{1} << 31,
                               -(int64_t{1} << 31),
                               int64_t{1} << 32,
                               (int64_t{1} << 32) + 1,
                               int64_t{1} << 48,
                               int64_t{1} << 60,
                               -(int64_t{1} << 60),
                               int64_t{1} << 62,
                               kMax / 2,
                               kMax - 1,
                               kMax,
                               kMin,
                               kMin + 1};

// Two's complement, without overflow in the fuzz target itself.
int64_t Wrapped(uint64_t value) { return static_cast<int64_t>(value); }

}  // namespace

void Report(const std::string& finding) {
  std::fprintf(stderr, "FOUND: %s\n", finding.c_str());
  std::abort();
}

int64_t Disturbed(int64_t value, FuzzedDataProvider& bytes) {
  const auto bits = static_cast<uint64_t>(value);
  switch (bytes.ConsumeIntegralInRange(0, 8)) {
    case 0:
      return Wrapped(bits + 1);
    case 1:
      return Wrapped(bits - 1);
    case 2:
      return Wrapped(bits * 2);
    case 3:
      return value / 2;
    case 4:
      return Wrapped(0 - bits);
    case 5:
      return bytes.ConsumeIntegralInRange<int64_t>(-8, 300);
    case 6:
      return bytes.ConsumeIntegral<int64_t>();
    default:
      return bytes.PickValueInArray(kBounds);
  }
}

uint16_t OrdinaryBits16(uint64_t number) {
  // Sign and the low bits at will; the exponent bits of both types below all ones.
  return static_cast<uint16_t>(0x3800U | (number & 0x83FFU));
}

}  // namespace qkvfuse::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  FuzzedDataProvider bytes(data, size);
  qkvfuse::fuzz::RunInput(bytes);
  return 0;
}
