# Sanitizers and coverage, for every target of the build.
if(QKVFUSE_SANITIZE STREQUAL "address")
  set(instrumentation -fsanitize=address,undefined -fno-sanitize-recover=all
    -fno-omit-frame-pointer)
elseif(QKVFUSE_SANITIZE STREQUAL "thread")
  set(instrumentation -fsanitize=thread -fno-omit-frame-pointer)
endif()
if(QKVFUSE_COVERAGE)
  list(APPEND instrumentation --coverage)
endif()
add_compile_options(${instrumentation})
add_link_options(${instrumentation})
