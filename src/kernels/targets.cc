// The SIMD targets of this build that this processor can run.
#include <algorithm>
#include <cctype>

#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "kernels/kernels.h"

namespace qkvfuse::kernels {

namespace {

std::vector<Target> FindTargets() {
  std::vector<Target> targets;
  // The fallback target runs everywhere, whether Highway reports it or not.
  const int64_t supported = HWY_SUPPORTED_TARGETS | HWY_SCALAR;
  // A lower bit is a better target.
  for (int64_t rest = supported & HWY_TARGETS; rest != 0; rest &= rest - 1) {
    const int64_t id = rest & -rest;
    std::string name = hwy::TargetName(id);
    std::transform(name.begin(), name.end(), name.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    targets.push_back({id, name});
  }
  return targets;
}

}  // namespace

const std::vector<Target>& SupportedTargets() {
  // Kept, since asking the processor takes microseconds, and never destroyed, since plans are also
  // made in destructors of a program's static objects.
  static const auto& targets = *new std::vector<Target>(FindTargets());
  return targets;
}

void FinishStreams() { hwy::FlushStream(); }

}  // namespace qkvfuse::kernels
