// What the benchmark has to know of the machine and of its own build.
#pragma once

#include <cstdint>
#include <string>

namespace qkvfuse::bench {

/// Bytes of the last-level cache that one thread may fill; 32 MiB where the system does not tell.
[[nodiscard]] int64_t LastLevelCacheBytes();

/// Bytes that the buffers of a cold row take in all: four times the last-level cache, but no more
/// than a quarter of the memory that is free.
[[nodiscard]] int64_t ColdBytes();

/// Processes that wanted to run in the last minute, on average; 0 where the system does not tell.
[[nodiscard]] double LoadAverage();

/// "GNU 12.2.0, Release, -O3 -DNDEBUG".
[[nodiscard]] std::string BuildText();

/// Commit of the sources when the build was configured, "-dirty" where files had changed; "unknown"
/// outside a git checkout.
[[nodiscard]] std::string CommitText();

}  // namespace qkvfuse::bench
