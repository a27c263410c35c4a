// The progress bar: one line that is drawn over and over.
#include "support/progress.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

namespace qkvfuse::cli {
namespace {

constexpr int64_t kBarWidth = 28;
constexpr const char* kClearLine = "\r\033[K";

}  // namespace

ProgressBar::ProgressBar(int64_t total)
    : total_(std::max<int64_t>(total, 1)), is_visible_(isatty(STDERR_FILENO) == 1) {}

ProgressBar::~ProgressBar() { Clear(); }

void ProgressBar::SetLabel(std::string label) {
  const std::lock_guard lock(mutex_);
  label_ = std::move(label);
  DrawLocked();
}

void ProgressBar::Advance(int64_t steps) {
  const std::lock_guard lock(mutex_);
  done_ = std::min(done_ + steps, total_);
  DrawLocked();
}

void ProgressBar::Clear() {
  const std::lock_guard lock(mutex_);
  if (is_visible_) fmt::print(stderr, "{}", kClearLine);
}

void ProgressBar::DrawLocked() const {
  if (!is_visible_) return;
  const int64_t filled = done_ * kBarWidth / total_;
  fmt::print(stderr, "{}[{:#<{}}{:.<{}}] {:3}%  {}", kClearLine, "", filled, "", kBarWidth - filled,
             done_ * 100 / total_, label_);
  std::fflush(stderr);
}

}  // namespace qkvfuse::cli
