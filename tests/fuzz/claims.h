// How much memory a Spec claims for each tensor: an account of its own, in 128 bits, without code
// of the library's sources. A plan that was accepted has to stay inside it.
#pragma once

#include <cstdint>
#include <vector>

#include "qkvfuse/qkvfuse.hpp"

namespace qkvfuse::fuzz {

/// Elements [lowest, highest] relative to the element with all indices 0.
struct Reach {
  __int128 lowest = 0;
  __int128 highest = 0;
  bool is_empty = false;

  void Axis(__int128 size, int64_t stride);
  [[nodiscard]] __int128 elements() const { return is_empty ? 0 : highest - lowest + 1; }
};

/// One tensor of a call.
struct Claim {
  const void* Tensors::*input = nullptr;  // one of the two
  void* Tensors::*output = nullptr;
  DType dtype = DType::kFloat32;
  Reach reach;
};

[[nodiscard]] std::vector<Claim> ClaimsOf(const QkvRmsNormRopeCacheSpec& spec, TokenCount tokens);
[[nodiscard]] std::vector<Claim> ClaimsOf(const DequantRopeQuantKvcacheSpec& spec,
                                          TokenCount tokens);

}  // namespace qkvfuse::fuzz
