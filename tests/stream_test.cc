// Dense outputs of 16 MiB and more are stored past the caches, where they are aligned: the same
// bits, nothing else written, whatever the alignment.
#include <gtest/gtest.h>

#include <string>

#include "tests/support/same_bits.h"

namespace qkvfuse::testing {
namespace {

class LargeOutputs : public ::testing::TestWithParam<const char*> {};

// 32 heads of 128 channels: 2048 tokens are 16 MiB of q.
TEST_P(LargeOutputs, HaveTheSameBits) {
  ExpectSameBits(CaseOf(std::string(GetParam()) + " layout=pa_nz block_size=128"));
}

INSTANTIATE_TEST_SUITE_P(
    Of, LargeOutputs,
    ::testing::Values("op=qnr dtype=fp16 heads=32/1/1 head_dim=128 tokens=2050 k_cache=fp16",
                      "op=qnr dtype=bf16 heads=32/1/1 head_dim=128 tokens=2048 k_cache=int8",
                      "op=qnr dtype=bf16 heads=32/1/1 head_dim=128 tokens=2049 k_cache=int8 "
                      "strides=q_out:offset",
                      "op=qnr dtype=fp16 heads=64/1/1 head_dim=80 tokens=1700 k_cache=fp16 "
                      "v_cache=fp16",
                      "op=drq dtype=fp16 heads=32/1/1 head_dim=128 tokens=2048 bias=int32"));

}  // namespace
}  // namespace qkvfuse::testing
