// Rows of the contract tables: a change that makes a correct call wrong, and what must happen.
#pragma once

#include <functional>
#include <initializer_list>
#include <string>
#include <vector>

#include "call.h"

namespace qkvfuse::capi_test {

using Change = std::function<void(Call&)>;

struct Refusal {
  std::string title;  // CamelCase, names the test
  aclnnStatus code;
  std::string names;  // what the sentence must mention: the argument
  Change change;
};

/// A change that leaves a call correct.
struct Accepted {
  std::string title;
  Change change;
};

// Changes. Those that give a tensor another type or shape give it fresh memory too.
[[nodiscard]] Change Absent(std::string name);
[[nodiscard]] Change Typed(std::string name, aclDataType type);
[[nodiscard]] Change Shaped(std::string name, std::vector<int64_t> dims);
/// Without memory: for shapes too large to have any.
[[nodiscard]] Change Claimed(std::string name, std::vector<int64_t> dims);
/// A view of the tensor's own storage.
[[nodiscard]] Change Viewed(std::string name, std::vector<int64_t> strides, int64_t offset);
[[nodiscard]] Change WithIntegers(std::string name, Integers values);
[[nodiscard]] Change WithText(std::string name, Text text);
[[nodiscard]] Change WithoutData(std::string name);
/// The tensor's address becomes that of `other`, `bytes` on.
[[nodiscard]] Change PlacedOn(std::string name, std::string other, int64_t bytes);
[[nodiscard]] Change All(std::vector<Change> changes);

/// "qkv: has type ..." appears when a row fails.
void PrintTo(const Refusal& row, std::ostream* stream);

/// Phase 1 refuses the changed call, sets no executor, and leaves all memory as it was.
void ExpectPhaseOneRefuses(const Refusal& row, Call& call);

/// Phase 1 accepts, phase 2 refuses and leaves all memory as it was, and the executor is consumed.
void ExpectPhaseTwoRefuses(const Refusal& row, Call& call);

/// Sets QKVFUSE_STRICT=1 while it lives.
class StrictEnvironment {
 public:
  StrictEnvironment();
  ~StrictEnvironment();
  StrictEnvironment(const StrictEnvironment&) = delete;
  StrictEnvironment& operator=(const StrictEnvironment&) = delete;
};

}  // namespace qkvfuse::capi_test
