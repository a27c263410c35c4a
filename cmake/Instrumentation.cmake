# Sanitizers, counters for the fuzzer and coverage, for every target of the build.
if(QKVFUSE_SANITIZE STREQUAL "address")
  set(instrumentation -fsanitize=address,undefined -fno-sanitize-recover=all
    -fno-omit-frame-pointer)
  add_compile_definitions(_GLIBCXX_ASSERTIONS)  # ends at an index beyond a container of the library
  # clang: for C programs that link the libraries, which are C++.
  add_link_options($<$<LINK_LANG_AND_ID:C,Clang>:-fsanitize-link-c++-runtime>)
  link_libraries($<$<LINK_LANG_AND_ID:C,Clang>:stdc++>)
elseif(QKVFUSE_SANITIZE STREQUAL "thread")
  set(instrumentation -fsanitize=thread -fno-omit-frame-pointer)
endif()
if(QKVFUSE_FUZZ)
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()
if(QKVFUSE_COVERAGE)
  list(APPEND instrumentation --coverage)
endif()
add_compile_options(${instrumentation})
add_link_options(${instrumentation})
