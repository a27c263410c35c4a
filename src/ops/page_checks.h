// Checks of the arguments of pages.hpp: caches, lists and dense outputs as regions of memory that
// must be there, aligned, of 64-bit extents and, where they are written, apart from all others.
#pragma once

#include <string>
#include <vector>

#include "plan/axes.h"
#include "qkvfuse/pages.hpp"

namespace qkvfuse {

/// A tensor of a call: its name and its bytes.
struct MemoryRegion {
  std::string name;
  ByteView view;
};

/// All tensors of a call that have elements.
class MemoryRegions {
 public:
  /// Refuses a null or misaligned pointer, an extent that does not fit, and an output that overlaps
  /// itself. Axes of size 0 make a tensor without elements, which needs no memory.
  [[nodiscard]] Status Add(const std::string& name, DType dtype, const void* data, const Axes& axes,
                           bool is_output);

  /// Leaves out an input.
  void Forget(const std::string& name);

  /// Refuses an output that shares an element with any other tensor.
  [[nodiscard]] Status CheckApart() const;

 private:
  std::vector<MemoryRegion> outputs_;
  std::vector<MemoryRegion> inputs_;
};

/// Type, sizes, layout and scales of a cache, whose arguments begin with `name`; adds its tensors.
/// Without `uses_scales`, scales that are not dynamic are not looked at.
[[nodiscard]] Status CheckCache(const CacheView& cache, const std::string& name, bool is_output,
                                bool uses_scales, MemoryRegions* regions);

/// The type of a list of indices.
[[nodiscard]] Status CheckIndexType(DType dtype, const char* name);

/// A number from 0 to the largest number of rows and blocks of a call.
[[nodiscard]] Status CheckCount(int64_t count, const char* name);

}  // namespace qkvfuse
