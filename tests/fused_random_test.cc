// Bit equality with reference/exact over random combinations of everything that op=fused can say.
#include <gtest/gtest.h>

#include "tests/support/random_case.h"
#include "tests/support/same_bits.h"

namespace qkvfuse::testing {
namespace {

constexpr uint64_t kCasesPerTest = 150;

class FusedRandomCases : public ::testing::TestWithParam<uint64_t> {};

TEST_P(FusedRandomCases, SameBits) {
  for (uint64_t i = 0; i < kCasesPerTest; ++i) {
    ExpectSameBits(RandomFusedCase(GetParam() * kCasesPerTest + i));
  }
}

INSTANTIATE_TEST_SUITE_P(Random, FusedRandomCases, ::testing::Range(uint64_t{0}, uint64_t{20}));

}  // namespace
}  // namespace qkvfuse::testing
