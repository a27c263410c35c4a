// The operators in float64, straight from their formulas, over the contiguous tensors of a Call: a
// second opinion that shares nothing with the library.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "call.h"

namespace qkvfuse::capi_test {

/// |out - golden| <= absolute + relative * |golden| for 16-bit outputs, |code - golden code| <=
/// absolute for int8.
struct Tolerance {
  double relative;
  double absolute;
};

struct Tolerances {
  std::map<std::string, Tolerance, std::less<>> of_output;  // by name; others by type
  [[nodiscard]] Tolerance For(const std::string& name, aclDataType type) const;
};

/// What CompareWithGolden found.
struct Comparison {
  int64_t elements = 0;       // compared with the golden, over all outputs
  int64_t outside = 0;        // of them, beyond the tolerance
  int64_t codes = 0;          // int8 codes
  int64_t differing = 0;      // of them, not the golden's code
  int64_t disturbed = 0;      // cache elements that no token writes and that are not kPoison
  std::string first_outside;  // for people
};

/// Every element of every output of a call that has run on poisoned outputs.
[[nodiscard]] Comparison CompareWithGolden(const Call& call, const Tolerances& tolerances = {});

}  // namespace qkvfuse::capi_test
