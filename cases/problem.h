// A Case made real: seeded inputs, poisoned outputs twice (one set for the library, one for the
// reference), the Spec and Tensors of the C++ door, and the comparison of every byte.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "cases/case.h"
#include "qkvfuse/qkvfuse.hpp"
#include "reference/problem.h"

namespace qkvfuse::cases {

struct NamedView {
  TensorId id;
  std::string_view name;
  TensorView view;
};

struct ProblemMemory;

/// Owns all memory of one case. Not copied, not moved: views point into it.
class Problem {
 public:
  /// Allocates and fills everything. Refuses a case that Validate refuses.
  [[nodiscard]] static Result<std::unique_ptr<Problem>> Make(const Case& c);
  ~Problem();
  Problem(const Problem&) = delete;
  Problem& operator=(const Problem&) = delete;

  [[nodiscard]] const Case& description() const;

  /// The library's side. `Plan` takes target, path and strictness from the case, or as given.
  [[nodiscard]] Result<Plan> MakePlan() const;
  [[nodiscard]] Result<Plan> MakePlan(const PlanOptions& options) const;
  [[nodiscard]] QkvRmsNormRopeCacheSpec QnrSpec() const;      // op=qnr
  [[nodiscard]] DequantRopeQuantKvcacheSpec DrqSpec() const;  // op=drq
  [[nodiscard]] const Tensors& tensors() const;
  [[nodiscard]] TokenCount tokens() const;
  [[nodiscard]] RunOptions run_options() const;

  /// The reference's side: the same inputs, outputs of its own. LibraryProblem is the same call
  /// with the library's outputs, for tests that look at them through the reference's eyes.
  [[nodiscard]] const reference::Problem& ReferenceProblem() const;
  [[nodiscard]] reference::Problem LibraryProblem() const;

  /// Views of the inputs, to overwrite their data (then ResetOutputs, which copies x to where
  /// in-place outputs lie), and of the library's outputs.
  [[nodiscard]] std::vector<NamedView> Inputs() const;
  [[nodiscard]] std::vector<NamedView> Outputs() const;

  /// Poisons both sets of outputs again, or only the library's.
  void ResetOutputs();
  void ResetLibraryOutputs();

  /// Every byte of the library's outputs, poison and gaps included, equals the reference's, and no
  /// input changed. Two NaN are equal where the element is computed, not copied.
  [[nodiscard]] Status Compare() const;

  /// No output byte of the library's set has changed since ResetOutputs.
  [[nodiscard]] Status CompareUntouched() const;

 private:
  explicit Problem(std::unique_ptr<ProblemMemory> memory);
  std::unique_ptr<ProblemMemory> memory_;
};

}  // namespace qkvfuse::cases
