#!/usr/bin/env python3
"""Compares qkvfuse with other projects that compose the same work, and prints one Markdown table.

Each peer runs with each number of threads in a process of its own (run_peer.py), in which calls of
qkvfuse and of the peer alternate. See README.md for what is compared and how to get the peers.

Usage: QKVFUSE_ACLNN_LIBRARY=.../libqkvfuse_aclnn.so bench/peers/compare.py [--peers NAME...] ...
"""
from __future__ import annotations

import argparse
import json
import os
import pathlib
import subprocess
import sys
from collections.abc import Iterator

import table
from peers import PEERS, Peer
from qkvfuse_door import LIBRARY_VARIABLE, load_library
from workload import Shape

FOLDER = pathlib.Path(__file__).resolve().parent
TOKENS = (1, 8, 64, 512, 2048, 8192)
SHAPES = ("32/8", "64/8", "64/4")
# All of them, since a process that starts more threads than it is given disturbs the other side.
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "QKVFUSE_NUM_THREADS")
# Peers that allocate in each call get the same memory again. By default glibc returns large blocks
# to the system, and clearing the new pages would take several times what the peer's work takes.
KEEP_MEMORY = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(2**40)}


def run_peer(peer: Peer, threads: int, arguments: argparse.Namespace) -> Iterator[dict]:
    """The rows of one process, as they come; one with an error if it ends badly."""
    command = [sys.executable, str(FOLDER / "run_peer.py"), "--peer", peer.name,
               "--seconds", str(arguments.seconds),
               "--tokens", *map(str, arguments.tokens), "--shapes", *map(str, arguments.shapes)]
    environment = os.environ | {name: str(threads) for name in THREAD_VARIABLES}
    if arguments.malloc == "keep":
        environment |= KEEP_MEMORY
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout:
            # Packages print to stdout, too.
            if line.startswith("{"):
                yield json.loads(line)
    if process.returncode:
        yield {"peer": peer.name, "threads": threads,
               "error": f"ended with exit code {process.returncode}, see stderr"}


def run_all(peers: list[Peer], arguments: argparse.Namespace) -> list[dict]:
    """All rows; tells on stderr how far it is."""
    total = len(peers) * len(arguments.threads) * len(arguments.tokens) * len(arguments.shapes)
    rows: list[dict] = []
    for peer in peers:
        for threads in arguments.threads:
            for row in run_peer(peer, threads, arguments):
                rows.append(row)
                print(f"[{len(rows)}/{total}] {table.one_line(row)}", file=sys.stderr, flush=True)
    return rows


def parse_arguments() -> argparse.Namespace:
    """Defaults are the whole comparison."""
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", nargs="+", choices=PEERS, default=list(PEERS))
    parser.add_argument("--tokens", nargs="+", type=int, default=TOKENS, help="tokens of a call")
    parser.add_argument("--shapes", nargs="+", type=Shape.parse,
                        default=[Shape.parse(text) for text in SHAPES],
                        help="heads of q and of k and v, as in 32/8 or 32/8x128")
    parser.add_argument("--threads", nargs="+", type=int, default=(1, 2))
    parser.add_argument("--seconds", type=float, default=1.0,
                        help="timed seconds a case, all sides together (%(default)s)")
    parser.add_argument("--malloc", choices=("keep", "plain"), default="keep",
                        help="keep: freed memory stays in the process; plain: glibc's default")
    parser.add_argument("--json", type=pathlib.Path, help="file for all figures")
    return parser.parse_args()


def main() -> int:
    """Returns 1 when a peer failed or disagreed, 2 without our library."""
    arguments = parse_arguments()
    try:
        load_library()
    except OSError as error:
        print(f"{error}; {LIBRARY_VARIABLE} must name libqkvfuse_aclnn.so", file=sys.stderr)
        return 2
    chosen = [PEERS[name] for name in arguments.peers]
    installed = [peer for peer in chosen if peer.version()]
    machine = table.machine() | {"malloc": arguments.malloc}  # before our own load
    rows = run_all(installed, arguments)
    print("\n".join(table.lines(machine, chosen, rows)))
    if arguments.json:
        versions = {peer.name: peer.version() for peer in chosen}
        report = {"machine": machine, "versions": versions, "rows": rows}
        arguments.json.write_text(json.dumps(report, indent=1) + "\n", encoding="ascii")
    return 1 if any("error" in row for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
