// Guarded memory from mmap.
#include "cases/buffer.h"

#include <sys/mman.h>
#include <unistd.h>

#include <new>

namespace qkvfuse::cases {
namespace {

size_t RoundUp(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

}  // namespace

Buffer::Buffer(size_t bytes, BufferPlacement placement, size_t tail) {
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  whole_bytes_ = RoundUp(placement.gap + bytes + tail, page);
  mapping_bytes_ = whole_bytes_ + 2 * page;
  void* mapping = mmap(nullptr, mapping_bytes_, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapping == MAP_FAILED) throw std::bad_alloc();
  mapping_ = static_cast<std::byte*>(mapping);
  whole_ = mapping_ + page;
  payload_ = placement.side == BufferPlacement::Side::kFront
                 ? whole_ + placement.gap
                 : whole_ + whole_bytes_ - placement.gap - bytes;
  if (mprotect(mapping_, page, PROT_NONE) != 0 ||
      mprotect(whole_ + whole_bytes_, page, PROT_NONE) != 0) {
    munmap(mapping_, mapping_bytes_);
    throw std::bad_alloc();
  }
}

Buffer::~Buffer() { munmap(mapping_, mapping_bytes_); }

}  // namespace qkvfuse::cases
