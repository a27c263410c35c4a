// Reads the fields of a JSON object with checks, and remembers which it was asked for: the others
// are those that nobody knows.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/message.h"

namespace qkvfuse {

using Json = nlohmann::json;

/// A field that is null counts as absent. The first refusal is kept; what follows returns
/// fallbacks.
class ConfigObject {
 public:
  /// `object` is an object, or null for an empty one, and outlives this. Names in refusals have the
  /// prefix: "rope_scaling.".
  ConfigObject(const Json* object, std::string prefix);

  [[nodiscard]] const Status& status() const noexcept { return status_; }
  void Fail(Status status);
  /// Fails with the field's full name and a sentence about it.
  template <typename... Args>
  void Refuse(const std::string& name, const Args&... sentence) {
    Fail(Invalid(prefix_, name, ": ", sentence...));
  }
  [[nodiscard]] const std::string& prefix() const noexcept { return prefix_; }

  /// Null when absent; does not count as reading.
  [[nodiscard]] const Json* Peek(const std::string& name) const;
  [[nodiscard]] bool IsNull(const std::string& name) const;  // there, and null
  [[nodiscard]] bool WasRead(const std::string& name) const { return read_.contains(name); }
  std::optional<int64_t> Integer(const std::string& name, int64_t most);  // from 1
  std::optional<double> Number(const std::string& name);                  // finite
  std::optional<bool> Flag(const std::string& name);
  std::optional<std::string> Word(const std::string& name);
  std::vector<double> Numbers(const std::string& name);  // empty when absent
  std::vector<std::string> Words(const std::string& name);
  /// Null when absent.
  const Json* Object(const std::string& name);

  /// The value, or a refusal where it is absent and there is no fallback (0).
  int64_t Required(const std::string& name, int64_t most, int64_t fallback);

  /// Fields that are there, not null nor an empty list or object, and were not read; in
  /// alphabetical order.
  [[nodiscard]] std::vector<std::string> Unread() const;

 private:
  /// The field, or null when absent; it counts as read.
  const Json* Find(const std::string& name);
  void FailType(const std::string& name, const Json& value, const char* allowed);

  const Json* object_;
  std::string prefix_;
  std::set<std::string> read_;
  Status status_;
};

/// A value as a refusal shows it: JSON, cut where it is long, of lists and objects only the kind.
[[nodiscard]] std::string Shown(const Json& value);

}  // namespace qkvfuse
