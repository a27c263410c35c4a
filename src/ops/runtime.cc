// Version and targets, as users see them.
#include "qkvfuse/runtime.hpp"

#include "kernels/kernels.h"

#define QKVFUSE_TEXT_OF(x) #x
#define QKVFUSE_TEXT(x) QKVFUSE_TEXT_OF(x)

namespace qkvfuse {

const char* Version() noexcept {
  return QKVFUSE_TEXT(QKVFUSE_VERSION_MAJOR) "." QKVFUSE_TEXT(
      QKVFUSE_VERSION_MINOR) "." QKVFUSE_TEXT(QKVFUSE_VERSION_PATCH);
}

std::vector<std::string> AvailableTargets() noexcept try {
  std::vector<std::string> names;
  for (const kernels::Target& target : kernels::SupportedTargets()) names.push_back(target.name);
  return names;
} catch (...) {
  return {};
}

}  // namespace qkvfuse
