#!/usr/bin/env bash
# Compiles every installed header on its own, without warnings: those of the C door as C99 and as
# C++11, those of the C++ door as C++20.
# The headers are the whole program but for one declaration, because ISO C has no empty programs.
# Usage: CC=... CXX=... PREFIX=... headers.sh
set -euo pipefail
strict=(-pedantic -Wall -Wextra -Werror -fsyntax-only)
count=0

# compile FOLDER PATTERN COMPILER...: each header of FOLDER, as the only include of a file.
compile() {
  local folder="$1" pattern="$2" header
  shift 2
  while read -r header; do
    echo "$* $header"
    printf '#include <%s>\nextern int not_empty;\n' "$header" | "$@" "${strict[@]}" -I"$folder" -
    count=$((count + 1))
  done < <(cd "$folder" && find . -name "$pattern" | sed 's|^\./||' | sort)
}

compile "$PREFIX/include/qkvfuse-acl" '*.h' "$CC" -std=c99 -x c
compile "$PREFIX/include/qkvfuse-acl" '*.h' "$CXX" -std=c++11 -x c++
compile "$PREFIX/include" '*.hpp' "$CXX" -std=c++20 -x c++
echo "$count compiled"
((count > 20))
