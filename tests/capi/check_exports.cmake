# Fails when the library NM is asked about defines a symbol that is not ACL's.
execute_process(COMMAND ${NM} --dynamic --defined-only --format=just-symbols ${LIBRARY}
  OUTPUT_VARIABLE symbols COMMAND_ERROR_IS_FATAL ANY)
string(REGEX REPLACE "\n" ";" symbols "${symbols}")
list(FILTER symbols EXCLUDE REGEX "^$")
list(LENGTH symbols count)
list(FILTER symbols EXCLUDE REGEX "^[aA]cl")
if(symbols)
  message(FATAL_ERROR "exported, but not ACL names: ${symbols}")
endif()
if(count LESS 60)
  message(FATAL_ERROR "only ${count} symbols are exported; the headers declare more")
endif()
message(STATUS "${count} symbols, all of them ACL names")
