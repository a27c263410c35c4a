"""Measures one peer against qkvfuse in one process, for compare.py: prints a line of JSON a case.
The number of threads is that of OMP_NUM_THREADS, which qkvfuse and most peers read at start."""
from __future__ import annotations

import argparse
import ctypes
import dataclasses
import json
import os

from measure import Side, Spread, alternate
from peers import PEERS, Peer
from qkvfuse_door import QkvfuseSession, load_library
from workload import Session, Shape, Workload, disagreement


def measure(peer: Peer, ours: QkvfuseSession, theirs: Session, tokens: int,
            seconds: float) -> dict:
    """Microseconds a token of both, of both our phases, and of our door alone; and the ratio of
    each round."""
    sides = [Side(ours.run, ours.rest), Side(theirs.run, theirs.rest),
             Side(ours.run_both_phases, ours.rest), Side(ours.run_nothing, ours.rest)]
    times = alternate(sides, seconds) * (1e6 / tokens)
    names = ("ours", "theirs", "ours_both_phases", "door")
    row = {name: dataclasses.asdict(Spread.of(values)) for name, values in zip(names, times)}
    row["ratio"] = dataclasses.asdict(Spread.of(times[1] / times[0]))
    row["rounds"] = times.shape[1]
    row["dtype"] = peer.dtype
    return row


def run_case(library: ctypes.CDLL, peer: Peer, shape: Shape, tokens: int, seconds: float) -> dict:
    """The row of one case; with "error" instead of times when the results do not agree."""
    workload = Workload(shape, tokens, peer.dtype)
    ours = QkvfuseSession(library, workload)
    theirs = peer.opener()(workload, int(os.environ["OMP_NUM_THREADS"]))
    ours.run()
    theirs.run()
    chosen = workload.compared_tokens()
    reason = disagreement(ours.outputs(chosen), theirs.outputs(chosen), peer.dtype,
                          peer.roundings)
    row = {"error": reason} if reason else measure(peer, ours, theirs, tokens, seconds)
    ours.close()
    theirs.close()
    return row


def main() -> None:
    """Reads the peer and its cases from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peer", choices=PEERS, required=True)
    parser.add_argument("--tokens", type=int, nargs="+", required=True)
    parser.add_argument("--shapes", type=Shape.parse, nargs="+", required=True)
    parser.add_argument("--seconds", type=float, required=True)
    arguments = parser.parse_args()
    peer = PEERS[arguments.peer]
    # The peer first: where both want libgomp.so.1, there must be one OpenMP runtime, not two.
    peer.opener()
    library = load_library()
    for tokens in arguments.tokens:
        for shape in arguments.shapes:
            row = run_case(library, peer, shape, tokens, arguments.seconds)
            case = {"peer": peer.name, "tokens": tokens, "shape": str(shape),
                    "threads": int(os.environ["OMP_NUM_THREADS"])}
            print(json.dumps(case | row), flush=True)


if __name__ == "__main__":
    main()
