// Cache and memory sizes from the kernel's files, the rest from the build.
#include "bench/machine.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <string>

namespace qkvfuse::bench {
namespace {

constexpr int64_t kKibi = 1024;
constexpr int64_t kUsualCacheBytes = 32 * kKibi * kKibi;

/// "32768K" as bytes; 0 when it is none.
int64_t ParseSize(const std::string& text) {
  size_t used = 0;
  int64_t size = 0;
  try {
    size = std::stoll(text, &used);
  } catch (const std::exception&) {
    return 0;
  }
  if (used == text.size()) return size;
  return text[used] == 'K' ? size * kKibi : text[used] == 'M' ? size * kKibi * kKibi : 0;
}

int64_t AvailableMemoryBytes() {
  std::ifstream meminfo("/proc/meminfo");
  std::string key;
  for (int64_t kibibytes = 0; meminfo >> key >> kibibytes; meminfo.ignore(64, '\n')) {
    if (key == "MemAvailable:") return kibibytes * kKibi;
  }
  return 16 * kUsualCacheBytes;
}

}  // namespace

int64_t LastLevelCacheBytes() {
  int64_t largest = 0;
  for (int index = 0; index < 8; ++index) {
    std::ifstream file(fmt::format("/sys/devices/system/cpu/cpu0/cache/index{}/size", index));
    std::string size;
    if (file >> size) largest = std::max(largest, ParseSize(size));
  }
  return largest > 0 ? largest : kUsualCacheBytes;
}

int64_t ColdBytes() { return std::min(4 * LastLevelCacheBytes(), AvailableMemoryBytes() / 4); }

double LoadAverage() {
  double load = 0;
  return getloadavg(&load, 1) == 1 ? load : 0;
}

std::string BuildText() { return QKVFUSE_BENCH_BUILD; }

std::string CommitText() { return QKVFUSE_BENCH_COMMIT; }

}  // namespace qkvfuse::bench
