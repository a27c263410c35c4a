#!/usr/bin/env python3
"""Counts the instructions of Plan::RunRange per head under callgrind and compares them with the
limits of instruction_limits.json.

Usage: count_instructions.py --program PROGRAM --build KEY [--record]

KEY names compiler and optimisation, as in "GNU -O2"; limits exist per key. Exits with 0 when no
case exceeds its limit, with 1 when one does, and with 77 (skipped) when the counts would say
nothing: no valgrind, no AVX2, or no limits for this build. --record writes the limits of the key
anew, measured counts and 5 %.
"""
import argparse
import json
import math
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

LIMITS = pathlib.Path(__file__).resolve().parent / "instruction_limits.json"
MARGIN = 1.05
SKIPPED = 77

COMMON = "heads=32/8 head_dim=128 tokens=16 slots=sequential"
CASES = {
    "qnr fp16, fp16 cache, PA_NZ": f"op=qnr dtype=fp16 k_cache=16bit v_cache=16bit {COMMON}",
    "qnr bf16, bf16 cache, PA_NZ": f"op=qnr dtype=bf16 k_cache=16bit v_cache=16bit {COMMON}",
    "qnr bf16, bf16 cache, paged":
        f"op=qnr dtype=bf16 k_cache=16bit v_cache=16bit layout=paged {COMMON}",
    "qnr fp16, int8 cache, PA_NZ": f"op=qnr dtype=fp16 k_cache=int8 v_cache=int8 {COMMON}",
    "qnr bf16, int8 cache, PA_NZ": f"op=qnr dtype=bf16 k_cache=int8 v_cache=int8 {COMMON}",
    "qnr bf16, int8 cache with offset, PA_NZ":
        f"op=qnr dtype=bf16 k_cache=int8+offset v_cache=int8+offset {COMMON}",
    "drq int32 with bias, int8 cache, paged":
        f"op=drq x=int32 dtype=bf16 bias=fp32 token_scale=1 layout=paged {COMMON}",
    "qnr bf16, int8 cache, PA_NZ, general path":
        f"op=qnr dtype=bf16 k_cache=int8 v_cache=int8 path=general {COMMON}",
}


def skip(reason):
    print(f"Skipped: {reason}")
    sys.exit(SKIPPED)


def has_avx2():
    try:
        return re.search(r"^flags\s*:.*\bavx2\b", pathlib.Path("/proc/cpuinfo").read_text(), re.M)
    except OSError:
        return False


def instructions_per_head(program, line):
    """Instructions of one RunRange over the heads that it computes."""
    with tempfile.TemporaryDirectory() as folder:
        counts = pathlib.Path(folder) / "counts"
        command = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={counts}",
                   "--toggle-collect=qkvfuse::Plan::RunRange*", program, *line.split()]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        if result.returncode != 0:
            sys.exit(f"{' '.join(command)}\n{result.stderr}")
        totals = re.search(r"^(?:totals|summary): (\d+)", counts.read_text(), re.M)
    if totals is None or int(totals[1]) == 0:
        sys.exit(f"callgrind counted nothing for: {line}")
    return int(totals[1]) / int(result.stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", required=True)
    parser.add_argument("--build", required=True)
    parser.add_argument("--record", action="store_true")
    arguments = parser.parse_args()
    limits = json.loads(LIMITS.read_text(encoding="utf-8"))
    if shutil.which("valgrind") is None:
        skip("there is no valgrind; on Debian: apt-get install valgrind")
    if not has_avx2():
        skip("this processor has no AVX2, which the counts are for")
    if not arguments.record and arguments.build not in limits:
        skip(f"no limits are recorded for {arguments.build}")

    counts = {}
    exceeded = 0
    for name, line in CASES.items():
        counts[name] = instructions_per_head(arguments.program, line)
        limit = limits.get(arguments.build, {}).get(name)
        text = f"{name:44} {counts[name]:8.1f} instructions per head"
        if not arguments.record:
            if limit is None:
                text += ", no limit"
            else:
                text += f", limit {limit}"
            if limit is None or counts[name] > limit:
                exceeded += 1
                text += "  EXCEEDED"
        print(text, flush=True)
    if arguments.record:
        limits[arguments.build] = {name: math.ceil(n * MARGIN) for name, n in counts.items()}
        LIMITS.write_text(json.dumps(limits, indent=2, sort_keys=True) + "\n", encoding="utf-8")
        print(f"Recorded for {arguments.build} in {LIMITS.name}")
    elif exceeded:
        print(f"\n{exceeded} cases take more instructions than their limit. If that is wanted:\n"
              "cmake --build BUILD_FOLDER --target record_instruction_limits")
    return 1 if exceeded else 0


if __name__ == "__main__":
    sys.exit(main())
