// What a row times: the tensors and plans of its case, and what the fused call is compared with.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "bench/workload.h"
#include "cases/problem.h"
#include "qkvfuse/qkvfuse.hpp"

namespace qkvfuse::bench {

class Subject {
 public:
  Subject() = default;
  virtual ~Subject() = default;
  Subject(const Subject&) = delete;
  Subject& operator=(const Subject&) = delete;

  [[nodiscard]] virtual const Plan& plan() const = 0;
  [[nodiscard]] virtual TokenCount tokens() const = 0;
  [[nodiscard]] virtual Workspace workspace() const = 0;
  [[nodiscard]] virtual int64_t sets() const = 0;
  /// The sets of tensors in turn.
  [[nodiscard]] virtual const Tensors& NextSet() = 0;
  /// The outputs of the first set, and how to make zeros of them.
  [[nodiscard]] virtual std::vector<cases::NamedView> Outputs() const = 0;
  virtual void ClearOutputs() = 0;

  /// The same work in several passes, and what these are where that differs from row to row.
  virtual void RunUnfused(int threads) = 0;
  [[nodiscard]] virtual std::string DescribePasses() const { return ""; }

  /// The conversion floor, where there is one.
  [[nodiscard]] virtual bool has_convert_copy() const { return false; }
  virtual void RunConvertCopy(int /*threads*/) {}

  /// The same Spec on the general path, where the plan takes fused kernels; else nullptr.
  [[nodiscard]] virtual const Plan* general_plan() const { return nullptr; }

  /// Plan::Run of `plan`, which is plan() or *general_plan(), on the next set.
  void Run(const Plan& plan, int threads);
  void RunFused(int threads) { Run(plan(), threads); }
};

/// Sets that together move at least `bytes` bytes, and at least one; op=fused has one, filled as
/// its case says. Throws std::runtime_error with the library's sentence when it refuses the case.
[[nodiscard]] std::unique_ptr<Subject> MakeSubject(const cases::Case& c, int64_t bytes,
                                                   Data data = Data::kModel);

}  // namespace qkvfuse::bench
