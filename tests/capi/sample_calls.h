// Small correct calls for tests to start from, and the filling of tensors with random values.
#pragma once

#include <cstdint>
#include <memory>
#include <random>
#include <vector>

#include "call.h"

namespace qkvfuse::capi_test {

/// Makes the argument present, contiguous and filled with kPoison.
void Declare(TensorArgument& argument, aclDataType type, std::vector<int64_t> dims);

/// Uniform in [low, high], rounded to the argument's floating-point type.
void FillUniform(TensorArgument& argument, double low, double high, std::mt19937_64& random);

/// Uniform integers in [low, high] of ACL_INT32.
void FillIntegers(TensorArgument& argument, int32_t low, int32_t high, std::mt19937_64& random);

template <typename T>
void SetValues(TensorArgument& argument, const std::vector<T>& values) {
  argument.Allocate(0);
  std::copy(values.begin(), values.end(), argument.As<T>());
}

/// 2 sequences of 2 tokens, heads 2/1/1, fp16, both caches int8 [4, 4, 32, 32] with scale and
/// offset, before-quant outputs, slots 5, 40, -1, 100.
[[nodiscard]] std::unique_ptr<Call> SampleQnr();

/// 2 sequences of 3 tokens, heads 2/1/1 of 32 channels, int32 x with token scale and fp32 bias,
/// fp16 outputs, contiguous caches [2, 8, 1, 32] with offsets, starts 1 and 5.
[[nodiscard]] std::unique_ptr<Call> SampleDrq();

/// The one of the operator.
[[nodiscard]] inline std::unique_ptr<Call> Sample(Op op) {
  return op == Op::kQnr ? SampleQnr() : SampleDrq();
}

}  // namespace qkvfuse::capi_test
