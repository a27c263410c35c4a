// The plans of recent phase 1 calls: a program calls an operator again and again with the same
// descriptors, and making a plan costs more than one token's work.
#pragma once

#include <array>
#include <cstddef>
#include <cstdlib>
#include <optional>
#include <string>

#include "qkvfuse/plan.hpp"
#include "qkvfuse/specs.hpp"

namespace qkvfuse::capi {

/// What a plan depends on besides its spec and options.
struct PlanEnvironment {
  std::string target;
  std::string path;

  [[nodiscard]] bool IsCurrent() const noexcept {
    return target == Read("QKVFUSE_TARGET") && path == Read("QKVFUSE_PATH");
  }
  [[nodiscard]] static PlanEnvironment Current() {
    return {Read("QKVFUSE_TARGET"), Read("QKVFUSE_PATH")};
  }

 private:
  static const char* Read(const char* name) noexcept {
    const char* const value = std::getenv(name);
    return value == nullptr ? "" : value;
  }
};

[[nodiscard]] inline PlanOptions WithStrictness(bool strict) {
  PlanOptions options;
  options.strict = strict;
  return options;
}

/// Plans of one operator at one door, whose names they use. Not thread-safe: each thread has its
/// own.
template <typename Spec>
class PlanCache {
 public:
  [[nodiscard]] Result<Plan> Get(const BoundCall<Spec>& call, bool strict) {
    for (const std::optional<Entry>& entry : entries_) {
      if (entry && entry->strict == strict && entry->spec == call.spec &&
          entry->environment.IsCurrent()) {
        return entry->plan;
      }
    }
    Result<Plan> plan = MakePlan(call, WithStrictness(strict));
    if (plan.ok()) {
      entries_[next_].emplace(Entry{call.spec, strict, PlanEnvironment::Current(), plan.value()});
      next_ = (next_ + 1) % entries_.size();
    }
    return plan;
  }

 private:
  struct Entry {
    Spec spec;
    bool strict;
    PlanEnvironment environment;
    Plan plan;
  };

  // The layers of a model share one or two specs; prefill and decode may differ.
  std::array<std::optional<Entry>, 8> entries_;
  size_t next_ = 0;
};

/// A plan that the calling thread keeps. Where the thread's plans are gone already, as in the
/// destructors of static objects, it is made anew.
template <typename Spec>
[[nodiscard]] Result<Plan> KeptPlan(const BoundCall<Spec>& call, bool strict) {
  static thread_local bool has_ended = false;  // has no destructor, so it outlives the plans
  struct Plans {
    PlanCache<Spec> cache;
    ~Plans() { has_ended = true; }
  };
  if (has_ended) return MakePlan(call, WithStrictness(strict));
  static thread_local Plans plans;
  return plans.cache.Get(call, strict);
}

}  // namespace qkvfuse::capi
