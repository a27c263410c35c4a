// The optional log: lines go to the sink that SetLogSink installed, or to stderr where
// QKVFUSE_VERBOSE asks for their kind. Without either there is none.
#pragma once

#include <string>

namespace qkvfuse {

enum class LogKind { kPlan, kRun };

[[nodiscard]] bool LogWants(LogKind kind) noexcept;
void LogLine(const std::string& line) noexcept;
/// The lines of a text, one at a time.
void LogLines(const std::string& text);

}  // namespace qkvfuse
