// Builds the sentences of refusals. Only called when something is refused or described, so it may
// allocate.
#pragma once

#include <locale>
#include <sstream>
#include <string>

#include "qkvfuse/status.hpp"

namespace qkvfuse {

/// The arguments one after another, formatted as the classic locale does.
template <typename... Args>
[[nodiscard]] std::string Concat(const Args&... args) {
  std::ostringstream stream;
  stream.imbue(std::locale::classic());
  (stream << ... << args);
  return stream.str();
}

template <typename... Args>
Status Invalid(const Args&... args) {
  return Status(StatusCode::kInvalidArgument, Concat(args...));
}

template <typename... Args>
Status InvalidType(const Args&... args) {
  return Status(StatusCode::kInvalidType, Concat(args...));
}

template <typename... Args>
Status Null(const Args&... args) {
  return Status(StatusCode::kNullArgument, Concat(args...));
}

}  // namespace qkvfuse
