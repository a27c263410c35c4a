// Every element of a call's outputs beside what the double reference says about it.
#pragma once

#include <cstdint>
#include <functional>

#include "cases/case.h"
#include "reference/precise.h"
#include "reference/problem.h"

namespace qkvfuse::cli {

struct OutputElement {
  cases::TensorId output;
  DType dtype;
  reference::PreciseValue exact;  // before the store; of a cache, before quantisation
  double magnitude = 0;           // largest |exact| of the two values that RoPE turns together
  uint16_t bits = 0;              // of a 16-bit output
  double value = 0;               // the output as a number; of an int8 cache, the code
  double scale = 1;               // of an int8 cache
  double offset = 0;

  [[nodiscard]] bool is_code() const { return dtype == DType::kInt8; }
};

/// Visits q_out, k_out, v_out and the cache rows of tokens [token_begin, token_end). The problem
/// has a slot per token, no slot twice, and packed parameters.
void VisitOutputs(const reference::Problem& problem, int64_t token_begin, int64_t token_end,
                  const std::function<void(const OutputElement&)>& visit);

/// Distance between neighbouring fp16 or bf16 numbers at `value`.
[[nodiscard]] double UnitInLastPlace(DType dtype, double value);

/// Whether the output lies in its interval of correct evaluations (reference/precise.h).
[[nodiscard]] bool IsAccurate(const OutputElement& element);

}  // namespace qkvfuse::cli
