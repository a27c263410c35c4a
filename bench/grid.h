// The rows of the benchmark: which cases are timed, in which regime and on how many threads, and
// what each is called.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cases/case.h"

namespace qkvfuse::bench {

/// Hot: every call works on the same buffers. Cold: calls take turns on buffers that together are
/// several times the last-level cache.
enum class Regime { kHot, kCold };

struct Row {
  std::string name;  // qnr/32x8x128/bf16/int8/pa_nz/T64/hot/1t, fused/qwen3/32x8x128/bf16/...
  cases::Case c;     // with the number of threads
  Regime regime = Regime::kHot;

  [[nodiscard]] int64_t tokens() const { return c.tokens.total(); }
};

/// Token counts of the grid.
inline constexpr int64_t kTokenCounts[] = {1, 8, 16, 64, 256, 512, 2048, 8192};

/// Up to this many tokens a case is a decode step: one token of each of T sequences, cache rows
/// scattered. Above it is a prompt: T tokens of one sequence, consecutive cache rows.
inline constexpr int64_t kMaxDecodeTokens = 64;

/// Every row: operators x shapes x types x caches x layouts x T x regimes x threads, as far as an
/// operator offers them, and the general operator (fused/...) for a list of models.
[[nodiscard]] std::vector<Row> FullGrid();

/// What is looked at most, in a minute or two.
[[nodiscard]] std::vector<Row> DefaultRows();

/// The rows whose name the regular expression finds a match in. Throws std::regex_error.
[[nodiscard]] std::vector<Row> Filter(const std::vector<Row>& rows, const std::string& regex);

}  // namespace qkvfuse::bench
