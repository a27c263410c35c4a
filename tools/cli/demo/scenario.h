// What the demo runs: model shapes, batches and caches.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cases/case.h"

namespace qkvfuse::cli {

struct Scenario {
  std::string model;
  std::string operator_name;
  std::string cache;
  std::string batch;  // what the tokens are
  cases::Case description;

  [[nodiscard]] bool is_decode() const { return description.tokens.batch > 1; }
};

/// Three models x {decode batch, prefill} x {QNR int8, QNR 16-bit, DRQ int8}, and QNR on what
/// Gemma 3 270M computed. `quick` keeps one of the three and a short prefill.
[[nodiscard]] std::vector<Scenario> Scenarios(bool quick);

}  // namespace qkvfuse::cli
