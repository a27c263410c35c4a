// Typed access to the fields of a configuration.
#include "models/config_object.h"

#include <cmath>
#include <utility>

namespace qkvfuse {

std::string Shown(const Json& value) {
  constexpr size_t kLongest = 60;
  if (value.is_array()) return "a list";
  if (value.is_object()) return "an object";
  std::string text = value.dump(-1, ' ', true);
  if (text.size() > kLongest) text = text.substr(0, kLongest) + "...";
  return text;
}

ConfigObject::ConfigObject(const Json* object, std::string prefix)
    : object_(object), prefix_(std::move(prefix)) {}

void ConfigObject::Fail(Status status) {
  if (status_.ok()) status_ = std::move(status);
}

void ConfigObject::FailType(const std::string& name, const Json& value, const char* allowed) {
  Refuse(name, "is ", Shown(value), ", must be ", allowed);
}

const Json* ConfigObject::Peek(const std::string& name) const {
  if (object_ == nullptr) return nullptr;
  const auto found = object_->find(name);
  return found == object_->end() || found->is_null() ? nullptr : &*found;
}

bool ConfigObject::IsNull(const std::string& name) const {
  return object_ != nullptr && object_->contains(name) && Peek(name) == nullptr;
}

const Json* ConfigObject::Find(const std::string& name) {
  read_.insert(name);
  return Peek(name);
}

std::optional<int64_t> ConfigObject::Integer(const std::string& name, int64_t most) {
  const Json* const value = Find(name);
  if (value == nullptr) return std::nullopt;
  if (value->is_number_integer()) {  // unsigned ones may exceed int64
    const bool is_huge = value->is_number_unsigned() && value->get<uint64_t>() > INT64_MAX;
    const auto integer = value->get<int64_t>();
    if (!is_huge && integer >= 1 && integer <= most) return integer;
  }
  FailType(name, *value, Concat("an integer from 1 to ", most).c_str());
  return std::nullopt;
}

std::optional<double> ConfigObject::Number(const std::string& name) {
  const Json* const value = Find(name);
  if (value == nullptr) return std::nullopt;
  if (value->is_number() && std::isfinite(value->get<double>())) return value->get<double>();
  FailType(name, *value, "a number");
  return std::nullopt;
}

std::optional<bool> ConfigObject::Flag(const std::string& name) {
  const Json* const value = Find(name);
  if (value == nullptr) return std::nullopt;
  if (value->is_boolean()) return value->get<bool>();
  FailType(name, *value, "true or false");
  return std::nullopt;
}

std::optional<std::string> ConfigObject::Word(const std::string& name) {
  const Json* const value = Find(name);
  if (value == nullptr) return std::nullopt;
  if (value->is_string()) return value->get<std::string>();
  FailType(name, *value, "a string");
  return std::nullopt;
}

std::vector<double> ConfigObject::Numbers(const std::string& name) {
  const Json* const value = Find(name);
  std::vector<double> numbers;
  if (value == nullptr) return numbers;
  for (const Json& element : *value) {
    if (!value->is_array() || !element.is_number()) break;
    numbers.push_back(element.get<double>());
  }
  if (!value->is_array() || value->empty() || numbers.size() != value->size()) {
    FailType(name, *value, "a list of numbers");
  }
  return numbers;
}

std::vector<std::string> ConfigObject::Words(const std::string& name) {
  const Json* const value = Find(name);
  std::vector<std::string> words;
  if (value == nullptr) return words;
  for (const Json& element : *value) {
    if (!value->is_array() || !element.is_string()) break;
    words.push_back(element.get<std::string>());
  }
  if (!value->is_array() || value->empty() || words.size() != value->size()) {
    FailType(name, *value, "a list of strings");
  }
  return words;
}

const Json* ConfigObject::Object(const std::string& name) {
  const Json* const value = Find(name);
  if (value == nullptr || value->is_object()) return value;
  FailType(name, *value, "an object");
  return nullptr;
}

int64_t ConfigObject::Required(const std::string& name, int64_t most, int64_t fallback) {
  const std::optional<int64_t> value = Integer(name, most);
  if (value) return *value;
  if (fallback == 0) Refuse(name, "is missing, must be given");
  return fallback == 0 ? 1 : fallback;
}

std::vector<std::string> ConfigObject::Unread() const {
  std::vector<std::string> names;
  if (object_ == nullptr) return names;
  for (const auto& [name, value] : object_->items()) {
    if (!value.empty() && !read_.contains(name)) names.push_back(name);
  }
  return names;
}

}  // namespace qkvfuse
