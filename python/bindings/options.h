// Options of plans and runs from Python's words.
#pragma once

#include <string>

#include "plain.h"
#include "qkvfuse/plan.hpp"

namespace qkvfuse::python {

[[nodiscard]] inline PlanOptions PlanOptionsOf(bool strict, const std::string& path,
                                               const std::string& target) {
  PlanOptions options;
  options.strict = strict;
  options.target = target;
  if (path == "general") {
    options.path = Path::kGeneral;
  } else if (path == "fused") {
    options.path = Path::kFused;
  } else if (path != "auto") {
    RefuseValue("path: is '", path, "', must be auto, general or fused");
  }
  return options;
}

[[nodiscard]] inline RunOptions RunOptionsOf(nb::handle threads) {
  RunOptions options;
  options.threads = PlainOf<int>(threads, "threads");
  if (options.threads < 0) RefuseValue("threads: is ", options.threads, ", must be 0 or more");
  return options;
}

}  // namespace qkvfuse::python
