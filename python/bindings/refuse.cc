#include "refuse.h"

#include <cctype>
#include <string_view>

namespace qkvfuse::python {
namespace {

bool IsUpper(char c) { return std::isupper(static_cast<unsigned char>(c)) != 0; }
bool IsWordPart(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

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
  const std::string sentence = WithPythonWords(status.message());
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
