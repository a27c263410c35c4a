// A progress bar on stderr for work that takes seconds; silent when stderr is not a terminal.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>

namespace qkvfuse::cli {

class ProgressBar {
 public:
  explicit ProgressBar(int64_t total);
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  /// What is being worked on; shown behind the bar.
  void SetLabel(std::string label);
  /// May be called from any thread.
  void Advance(int64_t steps = 1);
  /// Removes the bar, so that other output starts on a clean line.
  void Clear();

 private:
  void DrawLocked() const;

  const int64_t total_;
  const bool is_visible_;
  std::mutex mutex_;
  int64_t done_ = 0;
  std::string label_;
};

}  // namespace qkvfuse::cli
