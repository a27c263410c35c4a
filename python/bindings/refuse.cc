#include "refuse.h"

#include <cctype>
#include <string_view>
#include <utility>

namespace qkvfuse::python {
namespace {

bool IsUpper(char c) { return std::isupper(static_cast<unsigned char>(c)) != 0; }
bool IsWordPart(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

constexpr std::pair<std::string_view, std::string_view> kPhrases[] = {
    {": is null, must be a tensor", ": is missing, must be given"},
    {": is null, must be an array of integers", ": is missing, must be given"},
    {"must be null or ", "must be None or "},
};
constexpr std::pair<std::string_view, std::string_view> kTypes[] = {
    {"fp32", "float32"},           {"fp16", "float16"},         {"bf16", "bfloat16"},
    {"fp8_e4m3", "float8_e4m3fn"}, {"fp8_e5m2", "float8_e5m2"},
};

/// The sentence with the dtypes by NumPy's names, and null as None.
std::string WithPythonNames(std::string text) {
  for (const auto& [phrase, ours] : kPhrases) {
    const size_t at = text.find(phrase);
    if (at != std::string::npos) text.replace(at, phrase.size(), ours);
  }
  for (const auto& [name, ours] : kTypes) {
    for (size_t at = text.find(name); at != std::string::npos; at = text.find(name, at)) {
      const bool begins = at == 0 || !IsWordPart(text[at - 1]);
      const size_t end = at + name.size();
      const bool ends = end == text.size() || !IsWordPart(text[end]);
      if (begins && ends) text.replace(at, name.size(), ours);
      at += begins && ends ? ours.size() : name.size();
    }
  }
  return text;
}

/// The sentence with enumerators of C++ as Python's words: kPageTable becomes page_table.
std::string WithPythonWords(std::string_view sentence) {
  std::string text;
  for (size_t i = 0; i < sentence.size();) {
    const bool begins = i == 0 || !IsWordPart(sentence[i - 1]);
    if (!begins || sentence[i] != 'k' || i + 1 == sentence.size() || !IsUpper(sentence[i + 1])) {
      text += sentence[i++];
      continue;
    }
    const size_t first = ++i;
    for (; i < sentence.size() && IsWordPart(sentence[i]); ++i) {
      if (IsUpper(sentence[i]) && i != first) text += '_';
      text += static_cast<char>(std::tolower(static_cast<unsigned char>(sentence[i])));
    }
  }
  return text;
}

}  // namespace

void RaiseUnlessOk(const Status& status) {
  if (status.ok()) return;
  const std::string sentence = WithPythonNames(WithPythonWords(status.message()));
  switch (status.code()) {
    case StatusCode::kNullArgument:
    case StatusCode::kInvalidType:
      throw nb::type_error(sentence.c_str());
    case StatusCode::kInvalidArgument:
      throw nb::value_error(sentence.c_str());
    case StatusCode::kOk:
    case StatusCode::kOutOfMemory:
      break;
  }
  throw std::bad_alloc();
}

}  // namespace qkvfuse::python
