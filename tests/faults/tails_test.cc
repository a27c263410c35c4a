// Faults at the ends of rows: reads and writes past them, and last channels that are left out.
#include <cstring>

#include "tests/faults/fault.h"

namespace qkvfuse::testing {
namespace {

using cases::TensorId;

// A case between guard pages, on every target and path. guard_test does this for many more.
void ExpectRightBetweenGuards(const Fault& filled) {
  for (const cases::Guard guard : {cases::Guard::kFront, cases::Guard::kBack}) {
    const auto guarded = cases::Problem::Make(filled.description(), {guard});
    ASSERT_TRUE(guarded.ok()) << guarded.status().message();
    std::vector<cases::NamedView> to = (*guarded)->Inputs();
    for (const cases::NamedView& from : filled.problem().Inputs()) {
      for (const cases::NamedView& input : to) {
        if (input.id != from.id) continue;
        const auto bytes = input.view.shape.ElementCount() * SizeOf(input.view.dtype);
        std::memcpy(input.view.data, from.view.data, static_cast<size_t>(bytes));
      }
    }
    (*guarded)->ResetOutputs();
    reference::RunExact((*guarded)->ReferenceProblem());
    for (const Variant& variant : TargetsAndPaths()) EXPECT_TRUE(SameBits(**guarded, variant));
  }
}

// A loop whose bound is rounded down to whole vectors: the last channels stay as they were.
FaultyRun WithStaleTail(int64_t lanes) {
  return [lanes](const reference::Problem& p) {
    const int64_t written = p.head_dim / lanes * lanes;
    const auto bytes = static_cast<size_t>(p.q_out.shape.ElementCount() * 2);
    std::vector<char> before(bytes);
    std::memcpy(before.data(), p.q_out.data, bytes);
    reference::RunExact(p);
    for (int64_t i = 0; i < p.q_out.shape.ElementCount(); ++i) {
      if (i % p.head_dim < written) continue;
      std::memcpy(static_cast<char*>(p.q_out.data) + 2 * i, before.data() + 2 * i, 2);
    }
  };
}

TEST(Faults, C22) {
  Fault fault(
      "op=qnr dtype=fp16 heads=2/1 head_dim=40 tokens=3 k_cache=int8 v_cache=int8 layout=paged "
      "block_size=4 blocks=1");
  fault.Slots({3, 0, 2});
  fault.ExpectRight();
  fault.ExpectCodes(TensorId::kKCache,
                    {{-4, -10, 12, 11, -5, 0, 1, 1, -21, -52, 4, 2, -4, 4, 4, -2},
                     {4, 15, 3, -2, -10, 3, -12, -14},
                     0x0A3DC93804F31FD5U});
  fault.ExpectCodes(TensorId::kVCache,
                    {{59, 77, -79, -46, -22, -3, 12, 24, 35, -34, -21, -36, 1, 25, 43, 56},
                     {9, 68, 84, -73, -41, -18, 1, 16},
                     0x3DBBA48C2FDAD3BBU});
  fault.ExpectSpots(TensorId::kQOut, {{{0, 0, 0}, 2.27662882},
                                      {{0, 0, 20}, -2.08160139},
                                      {{0, 0, 39}, -2.19084075},
                                      {{0, 1, 39}, -1.47401239},
                                      {{2, 0, 1}, 0.184213671},
                                      {{2, 1, 19}, -1.6683295},
                                      {{1, 1, 38}, 0.068898116}});
  ExpectRightBetweenGuards(fault);
  for (const int64_t lanes : {16, 32, 64}) {
    fault.ExpectToldApart("stale tail", WithStaleTail(lanes));
  }
}

TEST(Faults, C22Kind) {
  for (const int64_t head_dim : {32, 48, 72, 80, 96, 128, 192, 256, 2, 46, 50}) {
    for (const char* line : {"op=qnr dtype=fp16 k_cache=int8 v_cache=16bit",
                             "op=drq dtype=bf16 x=int32 bias=fp16 token_scale=1"}) {
      Fault fault(std::string(line) + " heads=2/1 tokens=3 layout=paged block_size=4 head_dim=" +
                  std::to_string(head_dim));
      ExpectRightBetweenGuards(fault);
      if (head_dim % 16 != 0) fault.ExpectToldApart("stale tail", WithStaleTail(16));
    }
  }
}

}  // namespace
}  // namespace qkvfuse::testing
