// What `bench` prints: the rows with the machine and the build that they belong to, as text, JSON
// or Markdown.
#pragma once

#include <string>
#include <vector>

#include "bench/row.h"

namespace qkvfuse::cli {

struct BenchReport {
  double seconds_per_row = 0;
  double load_average = 0;  // before the first row; well below 1 on an idle machine
  std::vector<bench::RowResult> rows;

  [[nodiscard]] std::string Text() const;
  [[nodiscard]] std::string Markdown() const;
  [[nodiscard]] std::string Json() const;
};

}  // namespace qkvfuse::cli
