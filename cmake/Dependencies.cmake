# Packages that the enabled parts need; a missing one is refused and its Debian package named.

# qkvfuse_require(<package> <debian package> <what needs it> [find_package arguments...])
macro(qkvfuse_require package debian_package needed_by)
  find_package(${package} ${ARGN} QUIET)
  if(NOT ${package}_FOUND)
    string(JOIN " " searched ${package} ${ARGN})
    message(FATAL_ERROR "The CMake package '${searched}' was not found; needed for ${needed_by}. "
      "On Debian: apt-get install ${debian_package}")
  endif()
endmacro()

qkvfuse_require(hwy libhwy-dev "the library" 1.0.3 CONFIG)
qkvfuse_require(nlohmann_json nlohmann-json3-dev "the library" CONFIG)
qkvfuse_require(Threads libc6-dev "the library")

if(QKVFUSE_OPENMP)
  find_package(OpenMP COMPONENTS CXX)
  if(NOT OpenMP_CXX_FOUND)
    message(WARNING "${CMAKE_CXX_COMPILER} has no OpenMP: Plan::Run is serial unless the caller "
      "sets a ParallelFor hook. On Debian, for clang: apt-get install libomp-14-dev")
  endif()
endif()

if(QKVFUSE_BUILD_TOOLS)
  qkvfuse_require(CLI11 libcli11-dev "the command line (QKVFUSE_BUILD_TOOLS)" CONFIG)
  qkvfuse_require(fmt libfmt-dev "the command line (QKVFUSE_BUILD_TOOLS)" CONFIG)
endif()
if(QKVFUSE_BUILD_TOOLS)
  find_package(benchmark CONFIG QUIET)
endif()
option(QKVFUSE_BUILD_BENCHMARKS
  "Build the Google Benchmark program; qkvfuse bench is part of the tools" ${benchmark_FOUND})
if(QKVFUSE_BUILD_BENCHMARKS)
  qkvfuse_require(benchmark libbenchmark-dev
    "the Google Benchmark program (QKVFUSE_BUILD_BENCHMARKS)" CONFIG)
endif()
if(QKVFUSE_BUILD_TESTS)
  qkvfuse_require(GTest "libgtest-dev libgmock-dev" "the tests (QKVFUSE_BUILD_TESTS)" CONFIG)
  qkvfuse_require(Python3 python3 "the tests (QKVFUSE_BUILD_TESTS)" COMPONENTS Interpreter)
  # A program of this machine, also in a cross-build.
  set_target_properties(Python3::Interpreter PROPERTIES CROSSCOMPILING_EMULATOR "")
endif()
