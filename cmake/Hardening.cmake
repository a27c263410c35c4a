# Hardening: what a wrong write can do is limited at run time. The kernels' loops keep only what is
# free (the return addresses that -fcf-protection guards); docs/decisions/0012-hardening.md.
if(NOT QKVFUSE_HARDEN)
  return()
endif()

target_compile_options(qkvfuse_flags INTERFACE -fstack-protector-strong)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64)$")
  target_compile_options(qkvfuse_flags INTERFACE -fcf-protection)
endif()
# The checked functions of the C library need the optimiser, and sanitizers bring their own.
string(TOUPPER "${CMAKE_BUILD_TYPE}" configuration)
if("${CMAKE_CXX_FLAGS} ${CMAKE_CXX_FLAGS_${configuration}}" MATCHES "-O[1-3s]"
    AND NOT QKVFUSE_SANITIZE)
  target_compile_options(qkvfuse_flags INTERFACE -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2)
endif()

add_link_options(LINKER:-z,relro LINKER:-z,now LINKER:-z,noexecstack)

# Options for the source files of loops over elements, which come after those of the target.
set(QKVFUSE_UNHARDENED_LOOPS -fno-stack-protector -U_FORTIFY_SOURCE)
