// Caches for the tests of pages.hpp, and what reading and converting them has to give: element by
// element, from the definitions of the types, sharing nothing with the library but the address of
// an element (tests/layout_address_test.cc).
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "qkvfuse/qkvfuse.hpp"

namespace qkvfuse::testing {

/// A cache with its memory, filled with random bits.
struct TestCache {
  CacheView view;
  std::vector<char> data;
  std::vector<float> scale_cache;
  std::vector<float> scale;
  std::vector<float> offset;

  TestCache(const CacheSpec& spec, int64_t heads, int64_t head_dim, unsigned seed);
  TestCache(const TestCache&) = delete;
  TestCache& operator=(const TestCache&) = delete;

  [[nodiscard]] uint32_t BitsAt(int64_t slot, int64_t head, int64_t channel) const;
  [[nodiscard]] float ScaleAt(int64_t slot, int64_t head) const;  // of dynamic scales
  /// What reading gives.
  [[nodiscard]] float ValueAt(int64_t slot, int64_t head, int64_t channel) const;
};

/// Elements from a layout's first one to its last one.
[[nodiscard]] size_t ElementsOf(const CacheLayout& layout, int64_t heads, int64_t head_dim);

/// Every preset, and a layout with gaps, for these sizes; head_dim and block_size are multiples
/// of 4.
[[nodiscard]] std::vector<CacheLayout> EveryLayout(int64_t blocks, int64_t block_size,
                                                   int64_t heads, int64_t head_dim);

/// Every type with every rule, granularity and offset that it can have.
[[nodiscard]] std::vector<CacheSpec> EveryFormat();
/// The format in that layout of kSmallHeads heads; dynamic scales lie row by row or head by head.
[[nodiscard]] CacheSpec WithLayout(CacheSpec spec, const CacheLayout& layout,
                                   bool scales_by_head = false);
[[nodiscard]] std::string Describe(const CacheSpec& spec);

/// Caches for refusals: 4 blocks of 4 rows, int8 with a scale per channel, or dynamic scales.
inline constexpr int64_t kSmallHeads = 2, kSmallHeadDim = 8;
[[nodiscard]] CacheSpec Int8Spec();
[[nodiscard]] CacheSpec DynamicSpec();

/// The value of a pattern of a type without scales.
[[nodiscard]] float ValueOf(DType dtype, uint32_t bits);

/// The pattern that a value becomes: the nearest one, ties to even; 8-bit types saturate.
[[nodiscard]] uint32_t PatternOf(DType dtype, float value);

/// The patterns of a head's values in the cache at its slot, and its dynamic scale.
struct Codes {
  std::vector<uint32_t> bits;
  float scale = 0.0f;
};
[[nodiscard]] Codes CodesOf(const TestCache& cache, int64_t head, const std::vector<float>& y);

/// Reads `bytes` bytes as a pattern.
[[nodiscard]] uint32_t LoadBits(const char* at, int64_t bytes);

/// Whether two patterns of a type are the same, or both NaN of a type wider than 8 bits.
[[nodiscard]] bool AreSame(DType dtype, uint32_t a, uint32_t b);

}  // namespace qkvfuse::testing
