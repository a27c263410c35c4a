// Small cases of every option: whatever the library accepts has the bits of reference/exact, on
// every SIMD target, through both paths, between protected pages.
#include <string>

#include "cases/problem.h"
#include "draw_case.h"
#include "fuzz.h"
#include "reference/exact.h"
#include "tests/support/same_bits.h"

namespace qkvfuse::fuzz {
namespace {

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
  const auto c = DrawCase(bytes);
  if (!c) return;
  const auto problem = cases::Problem::Make(*c, placements);
  if (!problem.ok()) return;
  if (!(*problem)->MakePlan().ok()) return;
  reference::RunExact((*problem)->ReferenceProblem());
  for (testing::Variant variant : testing::TargetsAndPaths()) {
    variant.threads = threads;
    const auto result = testing::SameBits(**problem, variant);
    if (!result) Report(result.message());
  }
}

}  // namespace qkvfuse::fuzz
