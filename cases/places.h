// What a Spec says about the places of a case's tensors: nothing where they are packed.
#pragma once

#include <optional>

#include "cases/problem_memory.h"

namespace qkvfuse::cases {

class Places {
 public:
  explicit Places(const ProblemMemory& memory) : memory_(memory), c_(memory.c) {}

  /// Rows per token, [batch, sequence, heads, channels] or without heads.
  [[nodiscard]] std::optional<TokenStrides> Row(TensorId id) const;
  /// Rows of a table, [rows, entries].
  [[nodiscard]] std::optional<TokenStrides> Table(TensorId id) const;
  [[nodiscard]] StridedShape Parameter(TensorId id) const;
  [[nodiscard]] CacheSpec Cache(TensorId id, const CacheCase& cache) const;
  [[nodiscard]] SlotSpec Slots() const;

 private:
  [[nodiscard]] bool IsPacked(TensorId id) const { return c_.stride(id) == StridePattern::kPacked; }
  [[nodiscard]] const StridedShape& Shape(TensorId id) const {
    return memory_.member(id).library.shape;
  }
  [[nodiscard]] CacheLayout Layout(TensorId id) const;
  [[nodiscard]] CacheLayout ScaleLayout(TensorId id) const;

  const ProblemMemory& memory_;
  const Case& c_;
};

}  // namespace qkvfuse::cases
