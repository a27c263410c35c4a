# Runs cmake/Platform.cmake with the answers of a compiler for another machine and checks that it is
# refused with a sentence that names what is wrong. The project's own answers have to pass.
# Usage: cmake -DPLATFORM=<cmake/Platform.cmake> -P platform.cmake
function(expect_platform bytes order processor outcome sentence)
  execute_process(
    COMMAND ${CMAKE_COMMAND} -DCMAKE_SIZEOF_VOID_P=${bytes} -DCMAKE_CXX_BYTE_ORDER=${order}
      -DCMAKE_SYSTEM_PROCESSOR=${processor} -DCMAKE_CXX_COMPILER=${processor}-g++ -P ${PLATFORM}
    RESULT_VARIABLE code ERROR_VARIABLE errors)
  string(REGEX REPLACE "[ \n]+" " " errors "${errors}")
  if(code EQUAL 0)
    set(found accepted)
  else()
    set(found refused)
  endif()
  if(NOT found STREQUAL outcome OR NOT errors MATCHES "${sentence}")
    message(SEND_ERROR "${processor}: ${found}, '${errors}'; expected: ${outcome}, '${sentence}'")
  endif()
endfunction()

expect_platform(8 LITTLE_ENDIAN x86_64 accepted "")
expect_platform(8 LITTLE_ENDIAN aarch64 accepted "")
expect_platform(4 LITTLE_ENDIAN armv7l refused
  "needs a 64-bit target. armv7l-g.. builds for armv7l with 32-bit pointers")
expect_platform(8 BIG_ENDIAN s390x refused
  "needs a little-endian target. s390x-g.. builds for s390x, byte order BIG_ENDIAN")
expect_platform(4 BIG_ENDIAN powerpc refused "needs a 64-bit target")
