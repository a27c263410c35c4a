// How the demo's results are told: a table and its explanation for people, JSON for scripts.
#pragma once

#include <string>
#include <vector>

#include "demo/check.h"
#include "demo/scenario.h"

namespace qkvfuse::cli {

struct DemoRow {
  Scenario scenario;
  Findings findings;
  Speed speed;
  std::string target;
};

struct DemoReport {
  std::vector<DemoRow> rows;
  std::string svg;  // file of the drawing
  int threads = 0;
  double seconds = 0;  // of the whole demo

  [[nodiscard]] int64_t CountBad() const;  // rows that differ or are inaccurate
  [[nodiscard]] std::string Text() const;
  [[nodiscard]] std::string Json() const;
};

}  // namespace qkvfuse::cli
