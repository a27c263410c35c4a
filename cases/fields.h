// The parts of a case's line: words for enumerators, numbers, and the fields of the table of keys.
#pragma once

#include <algorithm>
#include <charconv>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cases/case.h"

namespace qkvfuse::cases {

template <typename E>
struct Word {
  E value;
  std::string_view text;
};

inline constexpr Word<DType> kDTypes[] = {
    {DType::kFloat32, "fp32"},        {DType::kFloat16, "fp16"},       {DType::kBFloat16, "bf16"},
    {DType::kInt8, "int8"},           {DType::kInt32, "int32"},        {DType::kInt64, "int64"},
    {DType::kFloat8E4M3, "fp8_e4m3"}, {DType::kFloat8E5M2, "fp8_e5m2"}};

inline constexpr Word<bool> kBooleans[] = {{false, "0"}, {true, "1"}};

template <typename E, size_t n>
bool ParseWord(std::string_view text, const Word<E> (&words)[n], E& value) {
  for (const Word<E>& word : words) {
    if (word.text == text) {
      value = word.value;
      return true;
    }
  }
  return false;
}

template <typename E, size_t n>
std::string PrintWord(E value, const Word<E> (&words)[n]) {
  for (const Word<E>& word : words) {
    if (word.value == value) return std::string(word.text);
  }
  return "?";
}

template <typename T>
bool ParseNumber(std::string_view text, T& value) {
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  return error == std::errc() && stop == end;
}

template <typename T>
std::string PrintNumber(T value) {
  char text[32];
  const auto [end, error] = std::to_chars(text, text + sizeof(text), value);
  return error == std::errc() ? std::string(text, end) : "?";
}

[[nodiscard]] inline std::vector<std::string_view> Split(std::string_view text,
                                                         std::string_view separators) {
  std::vector<std::string_view> words;
  while (!text.empty()) {
    const size_t end = std::min(text.find_first_of(separators), text.size());
    if (end > 0) words.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return words;
}

// "16bit" stands for the case's dtype, which may come later on the line: ParseCase replaces this.
inline constexpr DType kSixteenBit = DType::kInt64;

/// Any of kDTypes, or "16bit".
[[nodiscard]] bool ParseTypeOrSixteenBit(std::string_view text, DType& dtype);

/// A type with what comes after it: int8+offset, fp8_e4m3+multiply+head, int8+dynamic, ...
[[nodiscard]] bool ParseCache(std::string_view text, CacheCase& cache);
[[nodiscard]] std::string PrintCache(const CacheCase& cache);

struct Field {
  std::string_view key;
  std::string_view allowed;
  bool (*parse)(std::string_view text, Case& c);
  std::string (*print)(const Case& c);
  bool always = false;  // printed even where it is the default
};

// Rows whose value is one member of Case.
template <auto member, auto& words>
constexpr Field WordField(std::string_view key, std::string_view allowed, bool always = false) {
  return {key, allowed,
          [](std::string_view text, Case& c) { return ParseWord(text, words, c.*member); },
          [](const Case& c) { return PrintWord(c.*member, words); }, always};
}

template <auto member>
constexpr Field NumberField(std::string_view key, std::string_view allowed, bool always = false) {
  return {key, allowed, [](std::string_view text, Case& c) { return ParseNumber(text, c.*member); },
          [](const Case& c) { return PrintNumber(c.*member); }, always};
}

/// The keys that op=fused alone has.
[[nodiscard]] std::span<const Field> FusedFields();

}  // namespace qkvfuse::cases
