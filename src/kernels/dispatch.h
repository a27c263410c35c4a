// Index of a SIMD target in a Highway dispatch table. The choice is the plan's own: the
// process-wide choice of other users of Highway is neither read nor changed. Include after
// highway.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "hwy/highway.h"

namespace qkvfuse::kernels {

inline size_t DispatchIndex(int64_t target) {
#if (HWY_TARGETS & (HWY_TARGETS - 1)) == 0
  (void)target;
  return 0;  // a build for one target has tables of one entry
#else
  hwy::ChosenTarget chosen;
  chosen.Update(target);
  return chosen.GetIndex();
#endif
}

}  // namespace qkvfuse::kernels
