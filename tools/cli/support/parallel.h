// Work in chunks over a few threads, for checks that take seconds.
#pragma once

#include <cstdint>
#include <functional>

namespace qkvfuse::cli {

/// Calls body(begin, end) for chunks of at most `chunk` that cover [0, count), in any order, on
/// `threads` threads. The first exception of a body is thrown again here.
void ParallelChunks(int64_t count, int64_t chunk, int threads,
                    const std::function<void(int64_t begin, int64_t end)>& body);

}  // namespace qkvfuse::cli
