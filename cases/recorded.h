// Activations that a real model computed on real text, built into the program: cases/recorded.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "cases/case.h"
#include "qkvfuse/specs.hpp"

namespace qkvfuse::cases {

/// Gemma 3 270M: packed rows of 16 tokens of three layers, with the norms' weights and the tables
/// of cos and sin that the model has there. Rows repeat after the 16th.
class RecordedLayer {
 public:
  static constexpr HeadCounts kHeads{4, 1, 1};
  static constexpr int64_t kHeadDim = 256;

  /// One of the recorded layers, whatever the number.
  [[nodiscard]] static const RecordedLayer& Of(uint64_t number);

  /// Of a packed row: q heads, k head, v head. A bfloat16 value.
  [[nodiscard]] double X(int64_t token, int64_t channel) const;
  [[nodiscard]] double QGamma(int64_t channel) const { return At(q_gamma_, channel); }
  [[nodiscard]] double KGamma(int64_t channel) const { return At(k_gamma_, channel); }
  /// Of pair 0 .. kHeadDim/2 - 1, at the position of the token.
  [[nodiscard]] double Cos(int64_t token, int64_t pair) const { return Angle(cos_, token, pair); }
  [[nodiscard]] double Sin(int64_t token, int64_t pair) const { return Angle(sin_, token, pair); }

 private:
  friend class Recording;
  using Floats = std::vector<float>;
  [[nodiscard]] static double Angle(const Floats& rows, int64_t token, int64_t pair);
  [[nodiscard]] static double At(const Floats& values, int64_t i) {
    return values[static_cast<size_t>(i)];
  }

  std::vector<uint16_t> x_;
  Floats q_gamma_, k_gamma_, cos_, sin_;
};

/// Element `i`, in row-major order, of an input of a case of recorded data; nothing where the
/// tensor was not recorded.
[[nodiscard]] std::optional<double> RecordedValue(const Case& c, TensorId id,
                                                  const StridedShape& shape, int64_t i);

}  // namespace qkvfuse::cases
