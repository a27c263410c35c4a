#!/usr/bin/env bash
# Lists the C and C++ files below the given folders, those that exist.
# Usage: tools/lint/list_sources.sh FOLDER...
set -euo pipefail
for folder in "$@"; do
  [[ ! -d "$folder" ]] || find "$folder" -name '*.[ch]' -o -name '*.cc' -o -name '*.hpp'
done | sort
