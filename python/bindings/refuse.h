// Refusals as Python exceptions: the sentence of a Status, or one made here in the same form.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>  // in every file, or casts of strings would differ

#include <sstream>
#include <string>

#include "qkvfuse/status.hpp"

namespace qkvfuse::python {

namespace nb = nanobind;

template <typename... Args>
[[nodiscard]] std::string Concat(const Args&... args) {
  std::ostringstream stream;
  (stream << ... << args);
  return stream.str();
}

/// ValueError: a shape, value or combination that is not allowed.
template <typename... Args>
[[noreturn]] void RefuseValue(const Args&... args) {
  throw nb::value_error(Concat(args...).c_str());
}

/// TypeError: an object, or an array of a dtype, that is not allowed, or a missing argument.
template <typename... Args>
[[noreturn]] void RefuseType(const Args&... args) {
  throw nb::type_error(Concat(args...).c_str());
}

/// Raises what a Status says: TypeError of a missing argument or another dtype, MemoryError, else
/// ValueError.
void RaiseUnlessOk(const Status& status);

template <typename T>
[[nodiscard]] T ValueOf(Result<T> result) {
  RaiseUnlessOk(result.status());
  return std::move(*result);
}

}  // namespace qkvfuse::python
