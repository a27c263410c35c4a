// The memory of a benchmarked case: a plan, and as many sets of tensors as the regime asks for,
// which write to their own rows of one pair of caches.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "bench/baselines/baselines.h"
#include "cases/problem.h"
#include "qkvfuse/qkvfuse.hpp"

namespace qkvfuse::bench {

/// What the inputs hold.
enum class Data {
  kModel,     // spread like activations; cos and sin of real angles
  kIdentity,  // values that pass norm, rope and quantisation unchanged
};

class Workload {
 public:
  /// Sets that together move at least `bytes` bytes, and at least one. Throws std::runtime_error
  /// with the library's sentence when it refuses the case.
  Workload(const cases::Case& c, int64_t bytes, Data data = Data::kModel);

  [[nodiscard]] const Plan& plan() const { return *plan_; }
  [[nodiscard]] TokenCount tokens() const { return case_.tokens; }
  [[nodiscard]] int threads() const { return case_.threads; }
  [[nodiscard]] Workspace workspace() const { return workspace_; }
  [[nodiscard]] int64_t sets() const { return static_cast<int64_t>(sets_.size()); }
  [[nodiscard]] const Tensors& set(int64_t i) const { return sets_[static_cast<size_t>(i)]; }
  /// The sets in turn: whoever calls next gets the one that was left alone for longest.
  [[nodiscard]] const Tensors& NextSet() { return set(next_++ % sets()); }

  /// An output of set 0 whole: q_out, or a cache of all sets.
  [[nodiscard]] TensorView Output(cases::TensorId id) const;
  /// All outputs of set 0 become zeros.
  void ClearOutputs();

 private:
  [[nodiscard]] std::byte* Allocate(int64_t bytes);
  [[nodiscard]] const void* CopyOf(cases::TensorId id);
  [[nodiscard]] const void* MakeSlots(int64_t set);
  [[nodiscard]] int64_t SlotOf(int64_t set, int64_t token) const;
  void MakePlan(int64_t bytes);
  void MakeCaches();
  void AddSet(int64_t set);

  cases::Case case_;
  std::unique_ptr<cases::Problem> pattern_;  // the same case with few tokens, whose rows repeat
  std::vector<cases::NamedView> inputs_;     // of the pattern
  int64_t set_count_ = 1;
  CacheLayout k_layout_;
  CacheLayout v_layout_;
  std::unique_ptr<Plan> plan_;
  std::vector<AlignedBytes> memory_;
  int64_t chunk_bytes_ = 0;  // of memory_.back()
  int64_t left_ = 0;         // of them, free
  Workspace workspace_;
  std::vector<int64_t> scattered_;  // slots of decode steps, set after set
  void* k_cache_ = nullptr;
  void* v_cache_ = nullptr;
  std::vector<Tensors> sets_;
  int64_t next_ = 0;
};

}  // namespace qkvfuse::bench
