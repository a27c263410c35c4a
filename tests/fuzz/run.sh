#!/usr/bin/env bash
# Runs every fuzz target of a build for some seconds, one after the other. Inputs that reach new
# code are kept in BUILD/fuzz/<target>, where the next run goes on; a finding lies there as crash-*,
# timeout-* or oom-*, and `BUILD/tests/fuzz/<target>_fuzz FILE` replays it.
# With --merge, the inputs that are needed to reach all that was reached replace the seed corpus.
# Usage: tests/fuzz/run.sh BUILD SECONDS [libFuzzer options] | tests/fuzz/run.sh BUILD --merge
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
build="$1"
seconds="$2"
shift 2
status=0
for program in "$build"/tests/fuzz/*_fuzz; do
  name="$(basename "$program" _fuzz)"
  seeds="$here/corpus/$name"
  kept="$build/fuzz/$name"
  mkdir -p "$kept"
  if [[ "$seconds" == --merge ]]; then
    merged="$(mktemp -d)"
    "$program" -merge=1 -use_counters=0 -max_len=512 "$merged" "$seeds" "$kept"
    rm -rf "$seeds"
    mv "$merged" "$seeds"
    chmod 755 "$seeds"
  else
    "$program" "-max_total_time=$seconds" -max_len=512 -len_control=0 -timeout=60 \
      -rss_limit_mb=4096 -print_final_stats=1 "-artifact_prefix=$kept/" "$@" "$kept" "$seeds" ||
      status=1
  fi
done
exit "$status"
