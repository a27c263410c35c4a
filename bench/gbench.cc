// The benchmark's rows as Google Benchmark entries, for people and scripts that know its options
// and output. The baselines and ratios are those of `qkvfuse bench`.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "bench/grid.h"
#include "bench/machine.h"
#include "bench/subject.h"
#include "qkvfuse/qkvfuse.hpp"

namespace qkvfuse::bench {
namespace {

void RunRow(benchmark::State& state, const Row& row) try {
  const std::unique_ptr<Subject> subject =
      MakeSubject(row.c, row.regime == Regime::kCold ? ColdBytes() : 0);
  RunOptions options;
  options.threads = row.c.threads;
  while (state.KeepRunning()) {
    const Status status =
        subject->plan().Run(subject->NextSet(), subject->tokens(), subject->workspace(), options);
    if (!status.ok()) return state.SkipWithError(status.message().c_str());
  }
  const auto calls = static_cast<int64_t>(state.iterations());
  state.SetItemsProcessed(calls * row.tokens());
  state.SetBytesProcessed(calls * subject->plan().TrafficOf(subject->tokens()).total());
  state.SetLabel(subject->plan().target());
} catch (const std::exception& error) {
  state.SkipWithError(error.what());
}

/// Removes the flag from the arguments; whether it was there.
bool TakeFlag(int& argc, char** argv, const char* flag) {
  char** const end = argv + argc;
  char** const rest =
      std::remove_if(argv, end, [flag](const char* word) { return std::strcmp(word, flag) == 0; });
  argc = static_cast<int>(rest - argv);
  return rest != end;
}

int Main(int argc, char** argv) {
  const std::vector<Row> rows = TakeFlag(argc, argv, "--full") ? FullGrid() : DefaultRows();
  for (const Row& row : rows) {
    benchmark::RegisterBenchmark(row.name.c_str(), [row](benchmark::State& state) {
      RunRow(state, row);
    })->UseRealTime();
  }
  benchmark::AddCustomContext("qkvfuse", Version());
  benchmark::AddCustomContext("commit", CommitText());
  benchmark::AddCustomContext("build", BuildText());
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}

}  // namespace
}  // namespace qkvfuse::bench

int main(int argc, char** argv) { return qkvfuse::bench::Main(argc, argv); }
