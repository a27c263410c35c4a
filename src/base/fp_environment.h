// The floating-point environment of a computing thread: nearest even, no flush to zero, exceptions
// masked, whatever the caller or an old pool thread had set (docs/numerics.md).
#pragma once

#include <cstdint>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace qkvfuse {

/// Sets the default environment and restores the previous one.
class ScopedFpEnvironment {
 public:
  ScopedFpEnvironment() noexcept : saved_(Read()) {
    // Writing costs more than reading, and the flags of past exceptions change nothing.
    if ((saved_ & ~kFlags) != kDefault) Write(kDefault);
  }
  ~ScopedFpEnvironment() { Write(saved_); }
  ScopedFpEnvironment(const ScopedFpEnvironment&) = delete;
  ScopedFpEnvironment& operator=(const ScopedFpEnvironment&) = delete;

 private:
#if defined(__x86_64__)
  using Register = uint32_t;
  static constexpr Register kDefault = 0x1F80;  // MXCSR: all exceptions masked, nothing else
  static constexpr Register kFlags = 0x3F;
  static Register Read() noexcept { return _mm_getcsr(); }
  static void Write(Register value) noexcept { _mm_setcsr(value); }
#elif defined(__aarch64__)
  using Register = uint64_t;
  static constexpr Register kDefault = 0;  // FPCR
  static constexpr Register kFlags = 0;    // are in another register
  static Register Read() noexcept {
    Register value;
    asm volatile("mrs %0, fpcr" : "=r"(value) : : "memory");
    return value;
  }
  static void Write(Register value) noexcept {
    asm volatile("msr fpcr, %0" : : "r"(value) : "memory");
  }
#else
#error "qkvfuse: this processor's floating-point control register is not known"
#endif

  Register saved_;
};

}  // namespace qkvfuse
