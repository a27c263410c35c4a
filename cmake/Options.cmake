# Build options, and refusals of those that contradict each other.
option(QKVFUSE_BUILD_TOOLS "Build the qkvfuse command line" ${PROJECT_IS_TOP_LEVEL})
option(QKVFUSE_BUILD_TESTS "Build the tests" ${PROJECT_IS_TOP_LEVEL})
option(QKVFUSE_BUILD_EXAMPLES "Build the examples" ${PROJECT_IS_TOP_LEVEL})
option(QKVFUSE_BUILD_PYTHON "Build the Python extension; pip install . does" OFF)
option(QKVFUSE_OPENMP "Split the work of Plan::Run with OpenMP where the compiler has it" ON)
option(QKVFUSE_HARDEN "Stack protector, checked C library functions, read-only relocations" ON)
option(QKVFUSE_WERROR "Treat warnings as errors" OFF)
option(QKVFUSE_COVERAGE "Instrument all but the kernels for gcov" OFF)
option(QKVFUSE_FUZZ "Instrument for libFuzzer and build tests/fuzz; needs clang" OFF)
set(QKVFUSE_DISABLED_TARGETS "" CACHE STRING
  "Highway targets to leave out besides those that are never used, such as HWY_AVX3")
set(QKVFUSE_SANITIZE "" CACHE STRING "Sanitizer: empty, address (with undefined) or thread")
set_property(CACHE QKVFUSE_SANITIZE PROPERTY STRINGS "" address thread)

if(PROJECT_IS_TOP_LEVEL AND NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Build type" FORCE)
endif()

# Rebuilds are quick where a compiler cache is installed.
find_program(QKVFUSE_CCACHE ccache)
if(PROJECT_IS_TOP_LEVEL AND QKVFUSE_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_C_COMPILER_LAUNCHER ${QKVFUSE_CCACHE})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${QKVFUSE_CCACHE})
endif()

if(QKVFUSE_BUILD_TESTS AND NOT QKVFUSE_BUILD_TOOLS)
  message(FATAL_ERROR "QKVFUSE_BUILD_TESTS is ON and QKVFUSE_BUILD_TOOLS is OFF; the tests run the "
    "command line, so they need both.")
endif()
if(NOT QKVFUSE_SANITIZE MATCHES "^(|address|thread)$")
  message(FATAL_ERROR "QKVFUSE_SANITIZE is '${QKVFUSE_SANITIZE}'; allowed are '', 'address' and "
    "'thread'.")
endif()
if(QKVFUSE_FUZZ AND NOT QKVFUSE_SANITIZE STREQUAL "address")
  message(FATAL_ERROR "QKVFUSE_FUZZ is ON and QKVFUSE_SANITIZE is '${QKVFUSE_SANITIZE}'; fuzz "
    "targets need 'address', which sees what they do wrong.")
endif()
if(QKVFUSE_FUZZ AND NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  message(FATAL_ERROR "QKVFUSE_FUZZ is ON and the compiler is ${CMAKE_CXX_COMPILER_ID}; libFuzzer "
    "comes with clang only.")
endif()
