// The switches of a build with mutants (docs/testing.md, "Mutation"), which includes this file in
// front of every C++ file. Environment: QKVFUSE_MUTANT is the number of the mutant that the process
// runs; where QKVFUSE_REACHED names a file, the numbers of all mutants that could have made a
// difference are appended to it instead.
#ifndef QKVFUSE_MUTANT
#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>

namespace qkvfuse::mutation {

inline constexpr int kRecords = -1;
inline constexpr int kMaxMutants = 1 << 16;

inline const char* const record = std::getenv("QKVFUSE_REACHED");

inline int ActiveMutant() noexcept {
  if (record != nullptr) return kRecords;
  const char* const number = std::getenv("QKVFUSE_MUTANT");
  return number == nullptr ? 0 : std::atoi(number);
}

inline const int active = ActiveMutant();

/// At once, so that a test that crashes or forks leaves what it reached; without allocation, which
/// tests count.
inline void Record(int id) noexcept {
  static std::atomic<bool> is_recorded[kMaxMutants];
  if (is_recorded[id].exchange(true)) return;
  char line[16];
  const int length = std::snprintf(line, sizeof(line), "%d\n", id);
  const int file = open(record, O_WRONLY | O_APPEND | O_CREAT, 0666);
  if (file < 0 || write(file, line, static_cast<size_t>(length)) != length) std::abort();
  close(file);
}

inline bool IsActive(int id) noexcept {
  if (active == kRecords) Record(id);
  return active == id;
}

/// In functions that are also evaluated at compile time, where there are no mutants.
constexpr bool IsActiveAtRunTime(int id) noexcept {
  return __builtin_is_constant_evaluated() ? false : IsActive(id);
}

}  // namespace qkvfuse::mutation

#define QKVFUSE_MUTANT(id) ::qkvfuse::mutation::IsActive(id)
#define QKVFUSE_MUTANT_CONSTEXPR(id) ::qkvfuse::mutation::IsActiveAtRunTime(id)

// Two SIMD targets are enough for the tests and build quickly.
#undef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3 | HWY_AVX3_DL)

#endif  // QKVFUSE_MUTANT
