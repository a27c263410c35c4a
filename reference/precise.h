// The same mathematics in double, with a bound on what any sound fp32 evaluation may differ by.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "reference/problem.h"

namespace qkvfuse::reference {

/// An element before its store: the value y and the bound E of docs/numerics.md, "Accuracy": a
/// correct evaluation yields, before the final rounding, something within [y - E, y + E].
struct PreciseValue {
  double y = 0;
  double bound = 0;
};

/// The packed row of one token (counted over the whole batch): q, k and v heads, head_dim values
/// each, after dequantisation, norm and rotation. Tokens may be evaluated at the same time.
[[nodiscard]] std::vector<PreciseValue> EvaluatePrecise(const Problem& problem, int64_t token);

/// z = y/scale + offset with its bound Ez, before clamping and rounding.
[[nodiscard]] PreciseValue QuantisePrecise(PreciseValue value, double scale, double offset);

}  // namespace qkvfuse::reference
