// Threads that take chunks from a common counter.
#include "support/parallel.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace qkvfuse::cli {

void ParallelChunks(int64_t count, int64_t chunk, int threads,
                    const std::function<void(int64_t, int64_t)>& body) {
  std::atomic<int64_t> next{0};
  std::exception_ptr error;
  std::mutex error_mutex;
  const auto work = [&] {
    try {
      for (int64_t begin = next.fetch_add(chunk); begin < count; begin = next.fetch_add(chunk)) {
        body(begin, std::min(begin + chunk, count));
      }
    } catch (...) {
      const std::lock_guard lock(error_mutex);
      if (!error) error = std::current_exception();
    }
  };
  const int64_t chunks = (count + chunk - 1) / chunk;
  std::vector<std::thread> others;
  for (int64_t i = 1; i < std::min<int64_t>(threads, chunks); ++i) others.emplace_back(work);
  work();
  for (std::thread& thread : others) thread.join();
  if (error) std::rethrow_exception(error);
}

}  // namespace qkvfuse::cli
