// What the tests of CopyPages and ConvertPages share: caches of one small size and moves of their
// blocks by the model.
#pragma once

#include <functional>

#include "tests/pages/model.h"

namespace qkvfuse::testing {

inline constexpr int64_t kHeads = kSmallHeads, kHeadDim = kSmallHeadDim;
inline constexpr int64_t kBlocks = 4, kBlockSize = 4;

/// Block 2 of the destination is not named.
inline const std::vector<int64_t> kPairs = {3, 0, 1, 3, 1, 1};
inline const std::vector<int64_t> kAllPairs = {0, 0, 1, 1, 2, 2, 3, 3};

[[nodiscard]] inline std::vector<CacheLayout> Layouts() {
  return EveryLayout(kBlocks, kBlockSize, kHeads, kHeadDim);
}
[[nodiscard]] inline CacheLayout Nhd() { return PagedNhd(kBlocks, kBlockSize, kHeads, kHeadDim); }

/// The format of a type with that rule, scales per channel, no offset.
[[nodiscard]] CacheSpec FormatOf(DType dtype, ScaleRule rule = ScaleRule::kDivide);

[[nodiscard]] MovePagesArguments Arguments(const TestCache& from, const TestCache& to,
                                           const std::vector<int64_t>& pairs);

/// The bytes of a cache and of its dynamic scales.
[[nodiscard]] std::vector<char> BytesOf(const TestCache& cache);

/// One head of a slot as bits, for copies, and as values.
[[nodiscard]] Codes BitsOf(const TestCache& cache, int64_t slot, int64_t head);
[[nodiscard]] std::vector<float> ValuesOf(const TestCache& cache, int64_t slot, int64_t head);

/// Mostly one: starting threads takes longer than these moves.
[[nodiscard]] inline int ThreadsOf(unsigned seed) {
  return seed % 40 < 5 ? 1 + static_cast<int>(seed % 5) : 1;
}

/// What the model makes of `to`: codes(slot of the source, head) go to the destination.
void MoveByModel(const std::vector<int64_t>& pairs, TestCache* to,
                 const std::function<Codes(int64_t slot, int64_t head)>& codes);

/// Converts all blocks in order.
void ConvertAll(const TestCache& from, const TestCache& to);

}  // namespace qkvfuse::testing
