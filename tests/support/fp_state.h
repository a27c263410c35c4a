// The floating-point control register of the calling thread, set to what a hostile caller may
// leave in it.
#pragma once

#include <cstdint>
#include <vector>

namespace qkvfuse::testing {

struct FpState {
  const char* name;
  uint64_t control;  // MXCSR or FPCR
};

/// Flush to zero, the three directed roundings, and both at once. Empty on processors that this
/// file does not know.
[[nodiscard]] std::vector<FpState> HostileFpStates();

[[nodiscard]] uint64_t ReadFpControl();
void WriteFpControl(uint64_t control);

/// Sets the control register for a scope.
class ScopedFpControl {
 public:
  explicit ScopedFpControl(uint64_t control) : saved_(ReadFpControl()) { WriteFpControl(control); }
  ~ScopedFpControl() { WriteFpControl(saved_); }
  ScopedFpControl(const ScopedFpControl&) = delete;
  ScopedFpControl& operator=(const ScopedFpControl&) = delete;

 private:
  uint64_t saved_;
};

}  // namespace qkvfuse::testing
