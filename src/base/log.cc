#include "base/log.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>

#include "qkvfuse/runtime.hpp"

namespace qkvfuse {
namespace {

struct Sink {
  LogSink function = nullptr;
  void* user = nullptr;
};
Sink g_sink;

/// Whether QKVFUSE_VERBOSE, a list of words, has the word of a kind.
bool EnvironmentWants(LogKind kind) noexcept {
  static const bool wants_plan = [] {
    const char* const text = std::getenv("QKVFUSE_VERBOSE");
    return text != nullptr && std::strstr(text, "plan") != nullptr;
  }();
  static const bool wants_run = [] {
    const char* const text = std::getenv("QKVFUSE_VERBOSE");
    return text != nullptr && std::strstr(text, "run") != nullptr;
  }();
  return kind == LogKind::kPlan ? wants_plan : wants_run;
}

}  // namespace

void SetLogSink(LogSink sink, void* user) noexcept { g_sink = {sink, user}; }

bool LogWants(LogKind kind) noexcept {
  return g_sink.function != nullptr || EnvironmentWants(kind);
}

void LogLine(const std::string& line) noexcept {
  if (g_sink.function != nullptr) {
    g_sink.function(g_sink.user, line.c_str());
  } else {
    std::fprintf(stderr, "qkvfuse: %s\n", line.c_str());
  }
}

void LogLines(const std::string& text) {
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) LogLine(line);
}

}  // namespace qkvfuse
