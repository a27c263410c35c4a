// FNV-1a with one canonical 16-bit NaN.
#include "support/checksum.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "cases/fill.h"

namespace qkvfuse::cli {
namespace {

constexpr uint64_t kOffsetBasis = 0xcbf29ce484222325u;
constexpr uint64_t kPrime = 0x100000001b3u;

uint64_t AddByte(uint64_t hash, uint64_t byte) { return (hash ^ byte) * kPrime; }

uint16_t CanonicalNan(uint16_t bits, DType dtype) {
  const uint16_t infinity = dtype == DType::kFloat16 ? 0x7C00 : 0x7F80;
  return (bits & 0x7FFF) > infinity ? uint16_t{0x7FFF} : bits;
}

}  // namespace

uint64_t Checksum(const void* data, int64_t elements, DType dtype) {
  const auto* bytes = static_cast<const unsigned char*>(data);
  uint64_t hash = kOffsetBasis;
  if (!Is16Bit(dtype)) {
    const int64_t count = elements * SizeOf(dtype);
    for (int64_t i = 0; i < count; ++i) hash = AddByte(hash, bytes[i]);
    return hash;
  }
  for (int64_t i = 0; i < elements; ++i) {
    uint16_t bits;
    std::memcpy(&bits, bytes + 2 * i, sizeof(bits));
    bits = CanonicalNan(bits, dtype);
    hash = AddByte(AddByte(hash, bits & 0xFFu), uint64_t{bits} >> 8);
  }
  return hash;
}

uint64_t Checksum(const TensorView& view) {
  const auto size = static_cast<size_t>(SizeOf(view.dtype));
  const int64_t elements = view.shape.ElementCount();
  std::vector<char> packed(static_cast<size_t>(elements) * size);
  for (int64_t i = 0; i < elements; ++i) {
    const int64_t offset = cases::OffsetOf(view.shape, i) * static_cast<int64_t>(size);
    std::copy_n(static_cast<const char*>(view.data) + offset, size,
                packed.data() + static_cast<size_t>(i) * size);
  }
  return Checksum(packed.data(), elements, view.dtype);
}

std::string ChecksumText(uint64_t checksum) { return fmt::format("{:016x}", checksum); }

}  // namespace qkvfuse::cli
