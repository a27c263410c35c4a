#include "base/parallel.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>

#ifdef _OPENMP
#include <omp.h>
#endif

namespace qkvfuse {
namespace {

struct Hook {
  ParallelFor function = nullptr;
  void* user = nullptr;
  int max_threads = 1;
};
Hook g_hook;

// OpenMP's worker threads do not exist in the child of a fork, and libgomp would wait for them.
std::atomic<bool> g_is_forked_child{false};

[[maybe_unused]] const int g_fork_handler =
    pthread_atfork(nullptr, nullptr, [] { g_is_forked_child.store(true); });

/// Whether forking is out of the question: in the child of a fork, or inside a parallel region of
/// the caller, whose threads are all busy.
bool IsSerial() noexcept {
#ifdef _OPENMP
  return g_is_forked_child.load(std::memory_order_relaxed) || omp_in_parallel() != 0;
#else
  return true;
#endif
}

[[maybe_unused]] int ThreadsFromEnvironment() noexcept {
  static const int threads = [] {
    const char* const text = std::getenv("QKVFUSE_NUM_THREADS");
    return text == nullptr ? 0 : std::atoi(text);
  }();
  return threads;
}

}  // namespace

void SetParallelFor(ParallelFor hook, void* user, int max_threads) noexcept {
  g_hook = {hook, user, max_threads < 1 ? 1 : max_threads};
}

int UsableThreads(int requested) noexcept {
  if (g_hook.function != nullptr) return requested > 0 ? requested : g_hook.max_threads;
  if (IsSerial()) return 1;
#ifdef _OPENMP
  if (requested > 0) return requested;
  const int from_environment = ThreadsFromEnvironment();
  return from_environment > 0 ? from_environment : omp_get_max_threads();
#else
  (void)requested;
  return 1;
#endif
}

void RunParallel(int threads, int64_t items, ParallelForBody body, void* context) noexcept {
  if (threads > 1 && items > 1) {
    if (g_hook.function != nullptr) {
      g_hook.function(g_hook.user, items, body, context);
      return;
    }
#ifdef _OPENMP
    if (!IsSerial()) {
      // libgomp ends the process when it cannot create a thread; more parts than threads are fine.
      constexpr int kAlwaysFine = 64;
      const int team =
          std::min({threads, omp_get_thread_limit(), std::max(omp_get_num_procs(), kAlwaysFine)});
#pragma omp parallel for schedule(static, 1) num_threads(team)
      for (int64_t item = 0; item < items; ++item) body(context, item);
      return;
    }
#endif
  }
  for (int64_t item = 0; item < items; ++item) body(context, item);
}

const char* ParallelBackend() noexcept {
  if (g_hook.function != nullptr) return "hook";
#ifdef _OPENMP
  return "OpenMP";
#else
  return "serial";
#endif
}

}  // namespace qkvfuse
