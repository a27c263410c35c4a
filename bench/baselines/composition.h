// The work of a FusedQkvSpec as an engine does it that has an operator for each step: plans of the
// library itself, one after the other, with rows of x's type in memory in between.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "bench/baselines/baselines.h"
#include "bench/baselines/norm_pass.h"
#include "qkvfuse/qkvfuse.hpp"

namespace qkvfuse::bench {

/// Up to three passes, none of them where it has nothing to do:
/// 1. norm and bias: heads of x to rows;
/// 2. rotation of q and k, in place on the rows, or from x where the first pass left it alone;
/// 3. k and v, from the rows or from x, into the caches; q, where it is not yet what is wanted.
/// Each is a Plan::Run: Check, kernels, a fork and a join. q's rows are q_out where the types
/// agree.
class Composition {
 public:
  /// Packed x of one sequence, fp32 or 16-bit, norms before the rotation and no outputs of k and v
  /// but the caches; anything else is refused by an exception. The tensors' memory is the caller's.
  Composition(const FusedQkvSpec& spec, const Tensors& tensors, TokenCount tokens);

  void Run(int threads) const;

  /// "norm (baseline), rope (fused), caches (general path)": the passes and the kernels they take.
  [[nodiscard]] std::string Describe() const;

 private:
  static constexpr size_t kParts = 3;  // q, k, v
  using Taken = std::array<bool, kParts>;

  struct Pass {
    const char* name;
    Plan plan;
    Tensors tensors;
    TokenCount tokens;
    AlignedBytes workspace;
    StageKernel norm = nullptr;  // instead of the plan's own
  };

  /// Where the values of q, k or v are between two passes.
  struct Source {
    const void* data = nullptr;
    std::optional<TokenStrides> strides;  // packed where absent
  };

  void StartAtX(const FusedQkvSpec& spec);
  void AddNormPass(const FusedQkvSpec& spec);
  void AddRopePass(const FusedQkvSpec& spec);
  void AddCachePass(const FusedQkvSpec& spec);
  /// A Spec without any step.
  [[nodiscard]] static FusedQkvSpec EmptyPass(const FusedQkvSpec& spec);
  /// Adds the plan of the parts that are taken, on the sources.
  void AddPass(const char* name, FusedQkvSpec spec, const Taken& taken);
  void MoveToRows(const Taken& taken);

  Tensors tensors_;
  TokenCount tokens_;
  std::array<Source, kParts> sources_;
  std::array<void*, kParts> rows_{};
  std::vector<AlignedBytes> memory_;
  std::vector<Pass> passes_;
};

}  // namespace qkvfuse::bench
