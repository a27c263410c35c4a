// Memory larger than the machine's: only the pages that are written exist.
#pragma once

#include <cstddef>
#include <vector>

namespace qkvfuse::testing {

/// Zeros until written.
class SparseMemory {
 public:
  explicit SparseMemory(size_t bytes);
  ~SparseMemory();
  SparseMemory(const SparseMemory&) = delete;
  SparseMemory& operator=(const SparseMemory&) = delete;

  /// Whether there was address space for it.
  [[nodiscard]] bool is_mapped() const { return data_ != nullptr; }
  [[nodiscard]] char* data() const { return data_; }

  /// Numbers of the pages that exist.
  [[nodiscard]] std::vector<size_t> WrittenPages() const;

 private:
  size_t bytes_;
  char* data_ = nullptr;
};

}  // namespace qkvfuse::testing
