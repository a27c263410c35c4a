// MXCSR and FPCR.
#include "tests/support/fp_state.h"

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace qkvfuse::testing {

#if defined(__x86_64__)

// Exceptions masked; bits 13-14: rounding, bit 15: flush to zero, bit 6: denormals are zero.
std::vector<FpState> HostileFpStates() {
  return {{"flush to zero, denormals are zero", 0x9FC0},
          {"round down", 0x3F80},
          {"round up", 0x5F80},
          {"round toward zero", 0x7F80},
          {"round toward zero, flush to zero, denormals are zero", 0xFFC0}};
}

// The sticky exception flags (bits 0-5) are left out: arithmetic sets them.
uint64_t ReadFpControl() { return _mm_getcsr() & ~0x3FU; }
void WriteFpControl(uint64_t control) { _mm_setcsr(static_cast<unsigned>(control)); }

#elif defined(__aarch64__)

// Bits 22-23: rounding, bit 24: flush to zero.
std::vector<FpState> HostileFpStates() {
  return {{"flush to zero", 1U << 24},
          {"round up", 1U << 22},
          {"round down", 2U << 22},
          {"round toward zero", 3U << 22},
          {"round toward zero, flush to zero", (3U << 22) | (1U << 24)}};
}

uint64_t ReadFpControl() {
  uint64_t control = 0;
  __asm__ volatile("mrs %0, fpcr" : "=r"(control));
  return control;
}
void WriteFpControl(uint64_t control) { __asm__ volatile("msr fpcr, %0" : : "r"(control)); }

#else

std::vector<FpState> HostileFpStates() { return {}; }
uint64_t ReadFpControl() { return 0; }
void WriteFpControl(uint64_t) {}

#endif

}  // namespace qkvfuse::testing
