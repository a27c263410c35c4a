#!/usr/bin/env bash
# Configures, builds and tests one preset, and ends with the line "N passed, N failed" (which
# tools/count_tests.py computes from ctest's JUnit file). Fails when a test failed or none ran.
# Usage: tools/run_tests.sh [--targets "TARGET..."] PRESET [ctest arguments...]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
targets=(all)
if [[ "$1" == --targets ]]; then
  read -ra targets <<<"$2"
  shift 2
fi
preset="$1"
shift

results="build/$preset/tests.xml"
rm -f "$results" # a build that fails must not leave the counts of an earlier run
cmake --preset "$preset"
cmake --build --preset "$preset" --target "${targets[@]}"

status=0
ctest --preset "$preset" --parallel "$(nproc)" --output-junit "$PWD/$results" "$@" || status=$?
python3 tools/count_tests.py "$results" || status=1
exit "$status"
