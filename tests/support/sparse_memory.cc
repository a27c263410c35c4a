// Mappings without reserved memory, looked at by mincore.
#include "tests/support/sparse_memory.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

namespace qkvfuse::testing {

SparseMemory::SparseMemory(size_t bytes) : bytes_(bytes) {
  void* const data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data != MAP_FAILED) data_ = static_cast<char*>(data);
}

SparseMemory::~SparseMemory() {
  if (is_mapped()) munmap(data_, bytes_);
}

std::vector<size_t> SparseMemory::WrittenPages() const {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  std::vector<unsigned char> residency((bytes_ + page - 1) / page);
  EXPECT_EQ(mincore(data_, bytes_, residency.data()), 0);
  std::vector<size_t> pages;
  for (size_t i = 0; i < residency.size(); ++i) {
    if ((residency[i] & 1) != 0) pages.push_back(i);
  }
  return pages;
}

}  // namespace qkvfuse::testing
