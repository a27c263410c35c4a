# Refuses targets that the library cannot be built for. Extents and addresses are computed in 64
# bits, and 16-bit data is read in little-endian order. A file of its own, so that a test can run it
# with other answers of the compiler.
if(NOT CMAKE_SIZEOF_VOID_P EQUAL 8)
  math(EXPR pointer_bits "8 * ${CMAKE_SIZEOF_VOID_P}")
  message(FATAL_ERROR "qkvfuse needs a 64-bit target; ${CMAKE_CXX_COMPILER} builds for "
    "${CMAKE_SYSTEM_PROCESSOR} with ${pointer_bits}-bit pointers.")
endif()
if(NOT CMAKE_CXX_BYTE_ORDER STREQUAL "LITTLE_ENDIAN")
  message(FATAL_ERROR "qkvfuse needs a little-endian target; ${CMAKE_CXX_COMPILER} builds for "
    "${CMAKE_SYSTEM_PROCESSOR}, byte order ${CMAKE_CXX_BYTE_ORDER}.")
endif()
