// Small cases of every option, of Ascend's operators or, as fused_fuzz, of the general one:
// whatever the library accepts has the bits of reference/exact, on every SIMD target, through both
// paths, between protected pages.
#include <string>

#include "cases/problem.h"
#include "draw_case.h"
#include "fuzz.h"
#include "tests/support/same_bits.h"

namespace qkvfuse::fuzz {
namespace {

#if defined(QKVFUSE_FUZZ_FUSED)
constexpr Draw kDraw = &testing::DrawFusedCase;
#else
constexpr Draw kDraw = &testing::DrawCase;
#endif

cases::Placements DrawPlacements(FuzzedDataProvider& bytes) {
  cases::Placements placements;
  placements.guard = static_cast<cases::Guard>(bytes.ConsumeIntegralInRange(0, 2));
  if (placements.guard != cases::Guard::kUsual && bytes.ConsumeBool()) {
    placements.gap = bytes.ConsumeIntegralInRange<size_t>(0, 63);
  }
  return placements;
}

}  // namespace

void RunInput(FuzzedDataProvider& bytes) {
  const int threads = bytes.ConsumeIntegralInRange(1, 4);
  const cases::Placements placements = DrawPlacements(bytes);
  const auto c = DrawCase(bytes, kDraw);
  if (!c) return;
  const auto problem = cases::Problem::Make(*c, placements);
  if (!problem.ok()) return;
  if (!(*problem)->MakePlan().ok()) return;
  (*problem)->RunReference();
  for (testing::Variant variant : testing::TargetsAndPaths()) {
    variant.threads = threads;
    const auto result = testing::SameBits(**problem, variant);
    if (!result) Report(result.message());
  }
}

}  // namespace qkvfuse::fuzz
