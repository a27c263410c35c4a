// A model's config.json as a plan: its layers' Spec with the caches that the command line names.
#pragma once

#include <string>

#include "command.h"
#include "qkvfuse/qkvfuse.hpp"

namespace qkvfuse::cli {

struct ModelOptions {
  std::string config;
  std::string dtype;
  std::string cache = "16bit";
  std::string layout = "paged";
  int64_t tokens = 1;
};

struct ModelPlan {
  std::string text;  // model, layers and rotary tables
  Plan plan;
};

/// --config and the options that go with it; they exclude `words`, the case line.
void AddModelOptions(CLI::App& command, ModelOptions& options, CLI::Option* words);

/// Throws UsageError with the library's sentence.
[[nodiscard]] ModelPlan MakeModelPlan(const ModelOptions& options);

}  // namespace qkvfuse::cli
