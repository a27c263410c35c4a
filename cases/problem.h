// A Case made real: seeded inputs, poisoned outputs twice (one set for the library, one for the
// reference), the Spec and Tensors of the C++ door, and the comparison of every byte.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cases/buffer.h"
#include "cases/case.h"
#include "qkvfuse/qkvfuse.hpp"
#include "reference/fused_problem.h"

namespace qkvfuse::cases {

struct NamedView {
  TensorId id;
  std::string_view name;
  TensorView view;
};

/// Where the tensors of a problem lie in their buffers.
enum class Guard {
  kUsual,  // inputs end at a protected page, outputs have 256 poisoned bytes on both sides
  kFront,  // the protected page is before the first byte, or `gap` bytes before it
  kBack,   // the protected page is behind the last byte, or `gap` bytes behind it
};

struct Placements {
  Guard guard = Guard::kUsual;
  /// Not with kUsual: the gap of the first tensor. Others have (gap + 7 * TensorId) modulo 64, cut
  /// to a multiple of the element size; from 0 to 63 every tensor meets every alignment.
  /// Absent: no gap anywhere.
  std::optional<size_t> gap = std::nullopt;

  [[nodiscard]] BufferPlacement Of(TensorId id, DType dtype) const;
};

struct ProblemMemory;

/// Owns all memory of one case. Not copied, not moved: views point into it.
class Problem {
 public:
  /// Allocates and fills everything. Refuses a case that Validate refuses.
  [[nodiscard]] static Result<std::unique_ptr<Problem>> Make(const Case& c,
                                                             const Placements& placements = {});
  ~Problem();
  Problem(const Problem&) = delete;
  Problem& operator=(const Problem&) = delete;

  [[nodiscard]] const Case& description() const;

  /// The library's side. `Plan` takes target, path and strictness from the case, or as given.
  [[nodiscard]] Result<Plan> MakePlan() const;
  [[nodiscard]] Result<Plan> MakePlan(const PlanOptions& options) const;
  [[nodiscard]] QkvRmsNormRopeCacheSpec QnrSpec() const;      // op=qnr
  [[nodiscard]] DequantRopeQuantKvcacheSpec DrqSpec() const;  // op=drq
  [[nodiscard]] FusedQkvSpec FusedSpec() const;               // op=fused
  [[nodiscard]] const Tensors& tensors() const;
  [[nodiscard]] TokenCount tokens() const;
  [[nodiscard]] RunOptions run_options() const;

  /// Lets reference/exact write its set of outputs.
  void RunReference() const;

  /// Not op=fused. The reference's side: the same inputs, outputs of its own. LibraryProblem is the
  /// same call with the library's outputs, for tests that look at them through the reference's
  /// eyes.
  [[nodiscard]] const reference::Problem& ReferenceProblem() const;
  [[nodiscard]] reference::Problem LibraryProblem() const;

  /// op=fused: the call with the library's outputs.
  [[nodiscard]] reference::FusedProblem FusedLibraryProblem() const;

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
