# Flags that every target of the project is compiled with. No contraction: a fused multiply-add is
# used exactly where it is written (docs/numerics.md).
add_library(qkvfuse_flags INTERFACE)
target_compile_options(qkvfuse_flags INTERFACE
  -ffp-contract=off -fvisibility=hidden
  $<$<COMPILE_LANGUAGE:CXX>:-fvisibility-inlines-hidden>
  -Wall -Wextra -Wpedantic -Wshadow
  $<$<COMPILE_LANGUAGE:CXX>:-Wconversion -Wsign-conversion>)
if(QKVFUSE_WERROR)
  target_compile_options(qkvfuse_flags INTERFACE -Werror)
endif()
