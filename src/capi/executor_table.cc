// The table of live executors behind the handles of type aclOpExecutor*.
#include <cstdint>
#include <deque>
#include <new>

#include "capi/executor.h"

namespace qkvfuse::capi {
namespace {

// A handle is a number: (generation << kSlotBits) | (slot + 1). A slot is used again, with the next
// generation, when its executor ends, so memory follows the largest number alive at a time.
class ExecutorTable {
 public:
  aclOpExecutor* Insert(std::shared_ptr<Executor> executor) {
    const std::lock_guard lock(mutex_);
    if (first_free_ == kNone) Grow();
    const size_t index = first_free_;
    Slot& slot = slots_[index];
    first_free_ = slot.next_free;
    slot.executor = std::move(executor);
    slot.is_repeatable = false;
    return reinterpret_cast<aclOpExecutor*>((slot.generation << kSlotBits) | (index + 1));
  }

  std::shared_ptr<Executor> Find(const aclOpExecutor* handle) {
    const std::lock_guard lock(mutex_);
    const Slot* slot = SlotOf(handle);
    return slot == nullptr ? nullptr : slot->executor;
  }

  std::shared_ptr<Executor> Claim(const aclOpExecutor* handle) {
    const std::lock_guard lock(mutex_);
    Slot* slot = SlotOf(handle);
    if (slot == nullptr) return nullptr;
    return slot->is_repeatable ? slot->executor : Take(*slot, handle);
  }

  std::shared_ptr<Executor> Remove(const aclOpExecutor* handle) {
    const std::lock_guard lock(mutex_);
    Slot* slot = SlotOf(handle);
    return slot == nullptr ? nullptr : Take(*slot, handle);
  }

  bool MakeRepeatable(const aclOpExecutor* handle) {
    const std::lock_guard lock(mutex_);
    Slot* slot = SlotOf(handle);
    if (slot == nullptr) return false;
    slot->is_repeatable = true;
    return true;
  }

 private:
  struct Slot {
    std::shared_ptr<Executor> executor;
    uintptr_t generation = 1;
    size_t next_free = 0;
    bool is_repeatable = false;
  };

  static constexpr int kSlotBits = 24;
  static constexpr uintptr_t kSlotMask = (uintptr_t{1} << kSlotBits) - 1;
  static constexpr size_t kNone = kSlotMask;  // also the number of slots there can be

  void Grow() {
    if (slots_.size() == kNone) throw std::bad_alloc();
    slots_.emplace_back().next_free = kNone;
    first_free_ = slots_.size() - 1;
  }

  Slot* SlotOf(const aclOpExecutor* handle) {
    const auto number = reinterpret_cast<uintptr_t>(handle);
    const size_t index = (number & kSlotMask) - 1;  // wraps for 0, which is no slot
    if (index >= slots_.size()) return nullptr;
    Slot& slot = slots_[index];
    const bool is_live = slot.executor != nullptr && slot.generation == number >> kSlotBits;
    return is_live ? &slot : nullptr;
  }

  std::shared_ptr<Executor> Take(Slot& slot, const aclOpExecutor* handle) {
    std::shared_ptr<Executor> executor = std::move(slot.executor);
    ++slot.generation;
    slot.next_free = first_free_;
    first_free_ = (reinterpret_cast<uintptr_t>(handle) & kSlotMask) - 1;
    return executor;
  }

  std::mutex mutex_;
  std::deque<Slot> slots_;
  size_t first_free_ = kNone;
};

// Never destroyed: programs may run executors from destructors of their own static objects.
ExecutorTable& Table() {
  static auto& table = *new ExecutorTable;
  return table;
}

}  // namespace

aclOpExecutor* RegisterExecutor(std::shared_ptr<Executor> executor) {
  return Table().Insert(std::move(executor));
}

std::shared_ptr<Executor> FindExecutor(const aclOpExecutor* handle) noexcept {
  return Table().Find(handle);
}

std::shared_ptr<Executor> ClaimExecutor(const aclOpExecutor* handle) noexcept {
  return Table().Claim(handle);
}

bool MakeRepeatable(const aclOpExecutor* handle) noexcept { return Table().MakeRepeatable(handle); }

bool RemoveExecutor(const aclOpExecutor* handle) noexcept {
  return Table().Remove(handle) != nullptr;
}

}  // namespace qkvfuse::capi
