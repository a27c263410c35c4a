// Plain values from Python objects, or a sentence that says what was found.
#pragma once

#include <nanobind/stl/array.h>
#include <nanobind/stl/vector.h>

#include <array>
#include <string>
#include <type_traits>
#include <vector>

#include "refuse.h"

namespace qkvfuse::python {

template <typename T>
inline constexpr const char* kKindName = "a string";
template <>
inline constexpr const char* kKindName<bool> = "True or False";
template <>
inline constexpr const char* kKindName<int> = "an integer";
template <>
inline constexpr const char* kKindName<int64_t> = "an integer of 64 bits";
template <>
inline constexpr const char* kKindName<double> = "a number";
template <>
inline constexpr const char* kKindName<std::vector<double>> = "numbers";
template <>
inline constexpr const char* kKindName<std::vector<int64_t>> = "a list of integers";
template <>
inline constexpr const char* kKindName<std::array<int64_t, 3>> = "three integers";

/// Takes what Python takes for a T in arithmetic, an integer for a double or NumPy's own numbers,
/// but nothing looser: 2.5 is no head count, True no number and "no" not False.
template <typename T>
[[nodiscard]] T PlainOf(nb::handle object, const std::string& name) {
  constexpr bool kConverts = !std::is_same_v<T, bool> && !std::is_same_v<T, std::string>;
  T value{};
  if (!nb::isinstance<nb::bool_>(object) || std::is_same_v<T, bool>) {
    if (nb::try_cast(object, value, kConverts)) return value;
  }
  RefuseType(name, ": is ", nb::cast<std::string>(nb::repr(object)), ", must be ", kKindName<T>);
}

}  // namespace qkvfuse::python
