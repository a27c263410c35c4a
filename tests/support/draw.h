// Decisions of a random case, each made by one number.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

namespace qkvfuse::testing {

class Draw {
 public:
  explicit Draw(const std::function<uint64_t()>& numbers) : numbers_(numbers) {}

  int64_t Below(int64_t n) { return static_cast<int64_t>(numbers_() % static_cast<uint64_t>(n)); }
  bool OneIn(int64_t n) { return Below(n) == 0; }
  template <typename T, size_t n>
  T OneOf(const T (&values)[n]) {
    return values[Below(n)];
  }
  template <typename E>
  E EnumUpTo(E last) {
    return static_cast<E>(Below(static_cast<int64_t>(last) + 1));
  }
  uint64_t Seed() { return numbers_(); }

 private:
  const std::function<uint64_t()>& numbers_;
};

}  // namespace qkvfuse::testing
