// The set of addresses that this library gave out and that are still valid, so that a wrong or
// stale one gets a code and not a crash.
#pragma once

#include <mutex>
#include <unordered_set>

namespace qkvfuse::capi {

class LiveHandles {
 public:
  void Add(const void* handle) {
    const std::lock_guard lock(mutex_);
    handles_.insert(handle);
  }

  /// Whether it was there.
  bool Remove(const void* handle) {
    const std::lock_guard lock(mutex_);
    return handles_.erase(handle) != 0;
  }

  [[nodiscard]] bool Contains(const void* handle) const {
    const std::lock_guard lock(mutex_);
    return handles_.count(handle) != 0;
  }

 private:
  mutable std::mutex mutex_;
  std::unordered_set<const void*> handles_;
};

}  // namespace qkvfuse::capi
