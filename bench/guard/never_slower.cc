// Times the fused call and the unfused passes at every shape, type, cache and layout of Ascend's
// operators, up to 512 tokens, on one and two threads, in cache, and at two rows of the general
// operator that take fused kernels. Fails when the fused call is the slower one.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "bench/grid.h"
#include "bench/row.h"
#include "bench/subject.h"

namespace qkvfuse::bench {
namespace {

constexpr int64_t kMaxTokens = 512;
constexpr Budget kBudget{0.002, 200e-6, 5};
// A row that seems slower is timed longer: on a shared machine most such rows are noise.
constexpr int kRetries = 3;
constexpr int kLonger = 4;

// The general path need not win: where it rotates a part of a head, say, it may compute as long as
// several passes do.
constexpr const char* kGuardedModels = "^fused/(qwen3/.*/int8_head/paged|gemma3/.*)/T64/hot/1t$";

std::vector<Row> GuardedRows() {
  std::vector<Row> rows = FullGrid();
  std::erase_if(rows, [](const Row& row) {
    return row.c.is_fused() || row.regime != Regime::kHot || row.tokens() > kMaxTokens;
  });
  const std::vector<Row> models = Filter(FullGrid(), kGuardedModels);
  rows.insert(rows.end(), models.begin(), models.end());
  return rows;
}

Duel Fight(Subject& subject, const Row& row) {
  Budget budget = kBudget;
  Duel duel = FightDuel(subject, row.c.threads, budget);
  for (int retry = 0; retry < kRetries && duel.unfused_ratio.median < 1; ++retry) {
    budget.seconds *= kLonger;
    budget.min_rounds *= kLonger;
    duel = FightDuel(subject, row.c.threads, budget);
  }
  return duel;
}

struct Closest {
  std::string name;
  double ratio = 1e9;
};

int Main() {
  const auto start = std::chrono::steady_clock::now();
  const std::vector<Row> rows = GuardedRows();
  std::unique_ptr<Subject> subject;
  std::string loaded;
  int slower = 0;
  Closest closest;
  for (const Row& row : rows) {
    // Rows that differ in threads only are neighbours.
    const std::string wanted = row.name.substr(0, row.name.rfind('/'));
    if (wanted != loaded) subject = MakeSubject(row.c, 0);
    loaded = wanted;
    const Duel duel = Fight(*subject, row);
    if (duel.unfused_ratio.median < closest.ratio) closest = {row.name, duel.unfused_ratio.median};
    if (duel.unfused_ratio.median >= 1) continue;
    ++slower;
    std::printf("SLOWER  %s: fused %.2f us, unfused %.2f us\n", row.name.c_str(),
                duel.fused.median * 1e6, duel.unfused.median * 1e6);
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  std::printf(
      "%zu rows, %d of them slower than unfused; closest: %s, unfused / fused %.2f (%.0f s)\n",
      rows.size(), slower, closest.name.c_str(), closest.ratio, seconds.count());
  return slower == 0 && !rows.empty() ? 0 : 1;
}

}  // namespace
}  // namespace qkvfuse::bench

int main() {
  try {
    return qkvfuse::bench::Main();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
