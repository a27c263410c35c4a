// One token's packed row in float64: dequantised, normalised and rotated, step by step.
#pragma once

#include <cstdint>
#include <vector>

#include "call.h"

namespace qkvfuse::capi_test {

struct Geometry {
  int64_t batch;
  int64_t sequence;
  int64_t q_heads;
  int64_t kv_heads;
  int64_t head_dim;
  [[nodiscard]] int64_t tokens() const { return batch * sequence; }
  [[nodiscard]] int64_t row() const { return (q_heads + 2 * kv_heads) * head_dim; }
};

[[nodiscard]] Geometry GeometryOf(const Call& call);

/// Element i of a contiguous tensor.
[[nodiscard]] double Element(const TensorArgument& tensor, int64_t i);

/// Elements [begin, begin + count) of a contiguous tensor.
void Read(const TensorArgument& tensor, int64_t begin, int64_t count, double* out);

/// Makes rows of a call whose tensors are contiguous.
class RowMaker {
 public:
  explicit RowMaker(const Call& call);

  /// `row` has room for Geometry::row() values.
  void Make(int64_t token, std::vector<double>& row);

 private:
  void Dequantise(int64_t token, std::vector<double>& row) const;
  void Normalise(double* x, const std::vector<double>& gamma) const;
  void Rotate(double* x);

  const Call& call_;
  Geometry g_;
  std::vector<double> cos_, sin_, rotated_, q_gamma_, k_gamma_;
};

}  // namespace qkvfuse::capi_test
