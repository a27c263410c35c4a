// The processor's name from the kernel, the compiler from the build.
#include "support/system.h"

#include <fmt/core.h>
#include <sched.h>
#include <sys/utsname.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <thread>
#ifdef _OPENMP
#include <omp.h>
#endif

namespace qkvfuse::cli {

std::string CpuModel() {
  std::ifstream cpuinfo("/proc/cpuinfo");
  for (std::string line; std::getline(cpuinfo, line);) {
    const size_t colon = line.find(": ");
    if (line.rfind("model name", 0) == 0 && colon != std::string::npos) {
      return line.substr(colon + 2);
    }
  }
  utsname names;
  return uname(&names) == 0 ? names.machine : "unknown";
}

// The build passes these in: the compiler's own macros differ between compilers.
std::string CompilerText() { return QKVFUSE_CLI_COMPILER ", " QKVFUSE_CLI_BUILD_TYPE; }

std::string ThreadLibrary() {
#ifdef _OPENMP
  return "OpenMP";
#else
  return "none";
#endif
}

int DefaultThreads() {
  if (const char* text = std::getenv("QKVFUSE_NUM_THREADS"); text != nullptr) {
    const int threads = std::atoi(text);
    if (threads > 0) return threads;
  }
#ifdef _OPENMP
  return omp_get_max_threads();
#else
  return 1;
#endif
}

int HardwareThreads() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof(allowed), &allowed) == 0) return CPU_COUNT(&allowed);
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

}  // namespace qkvfuse::cli
