#!/usr/bin/env bash
# Builds and runs an example of each door with nothing but a compiler and pkg-config.
# Usage: CC=... CXX=... PKG_CONFIG_PATH=... pkg_config.sh shared|static EXAMPLES_FOLDER
set -euo pipefail
kind="$1"
examples="$2"
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT

# flags PACKAGE: what the compiler needs. Both kinds of library lie side by side, and the linker
# prefers shared ones, so the static ones are named by file.
flags() {
  if [[ "$kind" == static ]]; then
    pkg-config --static --cflags --libs "$1" | sed -E 's/-l(qkvfuse\w*)/-l:lib\1.a/g'
  else
    pkg-config --cflags --libs "$1"
  fi
}

read -ra cpp_flags <<<"$(flags qkvfuse)"
read -ra c_flags <<<"$(flags qkvfuse-aclnn)"
set -x
"$CXX" -std=c++20 "$examples/cpp/qnr_decode.cc" "${cpp_flags[@]}" -o "$work/cpp"
"$CC" -std=c99 "$examples/c/dequant_example.c" "${c_flags[@]}" -o "$work/c"
"$work/cpp"
"$work/c"

# Each program must use the kind of library that it was linked for.
for program in cpp c; do
  libraries="$(ldd "$work/$program")"
  if [[ "$libraries" == *libqkvfuse* ]]; then found=shared; else found=static; fi
  [[ "$found" == "$kind" ]]
done
