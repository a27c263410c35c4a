// Endurance: random cases, each compared with reference/exact, and calls through the aclnn door,
// for as long as asked and at constant memory. Usage: soak --seconds 600 [--seed N].
#include <malloc.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <memory>
#include <string>

#include "cases/problem.h"
#include "reference/exact.h"
#include "tests/capi/golden.h"
#include "tests/capi/sample_calls.h"
#include "tests/support/random_case.h"
#include "tests/support/same_bits.h"

namespace qkvfuse::testing {
namespace {

using Clock = std::chrono::steady_clock;

// Growth beyond this between a tenth of the time and its end is a leak.
constexpr int64_t kAllowedGrowth = 4 << 20;

/// Bytes of this process that are in memory, after what is free was given back.
int64_t ResidentBytes() {
  malloc_trim(0);
  int64_t total = 0;
  int64_t resident = 0;
  std::ifstream("/proc/self/statm") >> total >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

/// Runs one case in every way; prints what is wrong.
bool IsRight(uint64_t seed) {
  const cases::Case c = RandomCase(seed);
  const auto problem = cases::Problem::Make(c);
  if (!problem.ok()) {
    std::fprintf(stderr, "seed %llu: %s\n", static_cast<unsigned long long>(seed),
                 problem.status().message().c_str());
    return false;
  }
  (*problem)->RunReference();
  for (Variant variant : TargetsAndPaths()) {
    variant.threads = static_cast<int>(seed % 4) + 1;
    const auto result = SameBits(**problem, variant);
    if (result) continue;
    std::fprintf(stderr, "seed %llu: %s\n", static_cast<unsigned long long>(seed),
                 result.message());
    return false;
  }
  return true;
}

/// Both phases of the sample call; prints what is wrong, compared with float64.
bool IsRightThroughAclnn(capi_test::Op op) {
  const auto call = capi_test::Sample(op);
  if (call->Run() == ACLNN_SUCCESS) {
    const capi_test::Comparison found = capi_test::CompareWithGolden(*call);
    if (found.elements > 0 && found.outside == 0 && found.disturbed == 0) return true;
  }
  std::fprintf(stderr, "a sample call through the aclnn door gave another result\n");
  return false;
}

int Soak(double seconds, uint64_t seed) {
  const Clock::time_point start = Clock::now();
  const auto elapsed = [&] { return std::chrono::duration<double>(Clock::now() - start).count(); };
  const uint64_t first = seed;
  int64_t settled = 0;
  while (elapsed() < seconds) {
    const auto op = seed % 2 == 0 ? capi_test::Op::kQnr : capi_test::Op::kDrq;
    if (!IsRight(seed++) || !IsRightThroughAclnn(op)) return 1;
    if (settled == 0 && elapsed() > seconds / 10) settled = ResidentBytes();
  }
  const int64_t growth = ResidentBytes() - settled;
  std::printf("%llu cases in %.0f s, memory grew by %.2f MiB from %.1f MiB\n",
              static_cast<unsigned long long>(seed - first), elapsed(),
              static_cast<double>(growth) / (1 << 20), static_cast<double>(settled) / (1 << 20));
  if (growth <= kAllowedGrowth) return 0;
  std::fprintf(stderr, "memory: grew by more than %lld bytes\n",
               static_cast<long long>(kAllowedGrowth));
  return 1;
}

}  // namespace
}  // namespace qkvfuse::testing

int main(int argc, char** argv) {
  CLI::App app("Random cases for a time, compared with the exact reference, at constant memory");
  double seconds = 600;
  uint64_t seed = 1;
  app.add_option("--seconds", seconds, "how long to run")->check(CLI::PositiveNumber);
  app.add_option("--seed", seed, "the first case; others follow it");
  CLI11_PARSE(app, argc, argv);
  return qkvfuse::testing::Soak(seconds, seed);
}
