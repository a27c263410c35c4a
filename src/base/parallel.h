// Runs the parts of a call on several threads: the caller's hook, OpenMP, or one after another.
#pragma once

#include <cstdint>

#include "qkvfuse/runtime.hpp"

namespace qkvfuse {

/// Threads that a Run may use: `requested`, or when that is 0 the hook's number; without a hook
/// QKVFUSE_NUM_THREADS or OpenMP's, and one inside an OpenMP parallel region and in the child of a
/// fork (its pool is gone).
[[nodiscard]] int UsableThreads(int requested) noexcept;

/// Calls body(context, i) for i in [0, items), on up to `threads` threads.
void RunParallel(int threads, int64_t items, ParallelForBody body, void* context) noexcept;

/// "OpenMP", "hook" or "serial", for people.
[[nodiscard]] const char* ParallelBackend() noexcept;

}  // namespace qkvfuse
