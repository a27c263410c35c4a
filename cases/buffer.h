// Memory of a test tensor between two protected pages, so that an access outside faults.
#pragma once

#include <cstddef>
#include <span>

namespace qkvfuse::cases {

/// `bytes` of payload. With tail 0 the payload ends at the protected page (any read past it
/// faults); with a tail it starts 64-byte aligned and that many bytes follow it.
class Buffer {
 public:
  /// Throws std::bad_alloc.
  Buffer(size_t bytes, size_t tail);
  ~Buffer();
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  [[nodiscard]] std::byte* data() const { return payload_; }
  /// Everything between the protected pages.
  [[nodiscard]] std::span<std::byte> whole() const { return {whole_, whole_bytes_}; }

 private:
  std::byte* mapping_ = nullptr;
  size_t mapping_bytes_ = 0;
  std::byte* whole_ = nullptr;
  size_t whole_bytes_ = 0;
  std::byte* payload_ = nullptr;
};

}  // namespace qkvfuse::cases
