// Memory of a test tensor between two protected pages, so that an access outside faults.
#pragma once

#include <cstddef>
#include <span>

namespace qkvfuse::cases {

/// Where the payload of a Buffer lies between its two protected pages.
struct BufferPlacement {
  enum class Side { kFront, kBack };
  Side side = Side::kBack;
  /// Bytes between the payload and the protected page of that side. With 0 the neighbouring byte
  /// is protected.
  size_t gap = 0;
};

/// `bytes` of payload.
class Buffer {
 public:
  /// At the back, `gap` bytes before the protected page; at the front, `gap` bytes behind the one
  /// there, with at least `tail` more bytes after the payload. Throws std::bad_alloc.
  Buffer(size_t bytes, BufferPlacement placement, size_t tail = 0);
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
