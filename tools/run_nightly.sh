#!/usr/bin/env bash
# The long checks: every test (also those labelled nightly) with both compilers, on the scalar
# target, under the sanitizers, and for aarch64 under qemu, with SVE of 512 bits and of 128, whose
# target is another; the Python package, with an hour of random calls against its oracle; an hour of
# fuzzing, and the tests of the tests. The last line sums all runs.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

status=0
results=()
# run NAME PRESET: runs all tests of a preset and keeps its results under NAME.
run() {
  echo "nightly: $1"
  tools/run_tests.sh "$2" || { echo "nightly: $1 failed"; status=1; }
  results+=("build/nightly-$1.xml")
  mv "build/$2/tests.xml" "build/nightly-$1.xml" || status=1
}

run gcc dev
echo "nightly: python"
tools/run_python_tests.sh || { echo "nightly: python failed"; status=1; }
results+=(build/python/tests.xml)
build/python/venv/bin/python -m qkvfuse verify --seed 1000000 --seconds 3600 ||
  { echo "nightly: verify failed"; status=1; }
run clang clang
QKVFUSE_TARGET=scalar run scalar dev
run asan asan
run tsan tsan
run aarch64 aarch64
QEMU_CPU=max,sve-default-vector-length=16 run aarch64-128 aarch64
echo "nightly: fuzz"
tests/fuzz/run.sh build/asan 1200 || { echo "nightly: fuzz failed"; status=1; }
echo "nightly: mutation"
python3 tools/mutation || { echo "nightly: mutation failed"; status=1; }
python3 tools/count_tests.py "${results[@]}" || status=1
exit "$status"
