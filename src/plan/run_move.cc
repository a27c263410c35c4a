#include "plan/run_move.h"

#include <algorithm>

#include "base/fp_environment.h"
#include "base/parallel.h"

namespace qkvfuse::internal {
namespace {

/// A move in parts of its rows.
struct ParallelMove {
  const kernels::Move& move;
  const RowMap& rows;
  int64_t parts;

  /// First row of a part; the product of both may not fit.
  [[nodiscard]] int64_t Begin(int64_t part) const noexcept {
    return rows.rows() / parts * part + rows.rows() % parts * part / parts;
  }

  static void RunPart(void* context, int64_t part) {
    const ScopedFpEnvironment environment;
    const auto& run = *static_cast<const ParallelMove*>(context);
    kernels::RowPair pairs[kernels::kMoveRows];
    const int64_t end = run.Begin(part + 1);
    for (int64_t first = run.Begin(part); first < end; first += kernels::kMoveRows) {
      const int64_t count = std::min(kernels::kMoveRows, end - first);
      run.rows.Resolve(first, count, pairs);
      kernels::MoveRows(run.move, pairs, count);
    }
  }
};

/// 1 where forking costs more than it gains.
int64_t PartsOf(const kernels::Move& move, int64_t rows, const RunOptions& options) noexcept {
  if (options.force_split && options.threads > 0) {
    return std::min<int64_t>(options.threads, std::max<int64_t>(rows, 1));
  }
  constexpr int64_t kChannelsPerPart = 32768;
  const int64_t rows_per_part = kChannelsPerPart / (move.heads * move.head_dim) + 1;
  const int64_t worthwhile = rows / rows_per_part;
  if (worthwhile < 2) return 1;
  return std::min<int64_t>(worthwhile, UsableThreads(options.threads));
}

}  // namespace

void RunMove(const kernels::Move& move, const RowMap& rows, const RunOptions& options) noexcept {
  ParallelMove run{move, rows, PartsOf(move, rows.rows(), options)};
  RunParallel(static_cast<int>(run.parts), run.parts, &ParallelMove::RunPart, &run);
}

}  // namespace qkvfuse::internal
