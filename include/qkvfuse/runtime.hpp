// Process-wide settings: SIMD targets, threads, log sink, version.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "qkvfuse/export.hpp"

#define QKVFUSE_VERSION_MAJOR 0
#define QKVFUSE_VERSION_MINOR 1
#define QKVFUSE_VERSION_PATCH 0

namespace qkvfuse {

/// "0.1.0", of the library that is running (the macros are those of the headers).
[[nodiscard]] QKVFUSE_API const char* Version() noexcept;

/// SIMD targets that this build has and this processor can run, best first: avx3, avx2, neon, sve,
/// scalar, ...
[[nodiscard]] QKVFUSE_API std::vector<std::string> AvailableTargets() noexcept;

/// Splits work over the caller's own threads: calls body(context, i) once for each i in [0, items),
/// in any order and on any threads, and returns when all have returned.
using ParallelForBody = void (*)(void* context, int64_t item);
using ParallelFor = void (*)(void* user, int64_t items, ParallelForBody body, void* context);

/// Replaces OpenMP by the caller's pool for every later Run; `max_threads` is the number of items
/// to aim at. A null hook restores OpenMP. Call it while no Run is in progress.
QKVFUSE_API void SetParallelFor(ParallelFor hook, void* user, int max_threads) noexcept;

/// Receives one line at a time (no newline). Null: no log, the default unless QKVFUSE_VERBOSE is
/// set to a list of plan, run. Call it while no MakePlan or Run is in progress.
using LogSink = void (*)(void* user, const char* line);
QKVFUSE_API void SetLogSink(LogSink sink, void* user) noexcept;

}  // namespace qkvfuse
