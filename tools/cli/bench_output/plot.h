// Two drawings of a benchmark side by side: bandwidth under its roof, and time per token beside the
// baselines.
#pragma once

#include <string>
#include <vector>

#include "bench/row.h"

namespace qkvfuse::cli {

/// Throws UsageError, saying what to install, when there is no gnuplot.
void RequireGnuplot();

/// The gnuplot script, data included, that draws `svg`. It shows the rows that differ only in T and
/// regime from the row with the most such others.
[[nodiscard]] std::string PlotScript(const std::vector<bench::RowResult>& rows,
                                     const std::string& svg);

/// Runs gnuplot on it. Throws UsageError when the file cannot be written.
void DrawPlot(const std::vector<bench::RowResult>& rows, const std::string& svg);

}  // namespace qkvfuse::cli
