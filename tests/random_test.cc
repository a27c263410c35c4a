// Bit equality with reference/exact over random combinations of everything a case can say.
#include <gtest/gtest.h>

#include "tests/support/random_case.h"
#include "tests/support/same_bits.h"

namespace qkvfuse::testing {
namespace {

constexpr uint64_t kCasesPerTest = 150;

class RandomCases : public ::testing::TestWithParam<uint64_t> {};

TEST_P(RandomCases, SameBits) {
  for (uint64_t i = 0; i < kCasesPerTest; ++i) {
    ExpectSameBits(RandomCase(GetParam() * kCasesPerTest + i));
  }
}

INSTANTIATE_TEST_SUITE_P(Random, RandomCases, ::testing::Range(uint64_t{0}, uint64_t{20}));

}  // namespace
}  // namespace qkvfuse::testing
