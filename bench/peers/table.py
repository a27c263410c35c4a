"""The Markdown table of a comparison, and what stands above and below it."""
from __future__ import annotations

import os
import pathlib
import platform
import subprocess

import numpy as np

from peers import Peer

OURS = {"ours bf16": ("bf16", "ours"), "ours fp16": ("fp16", "ours"),
        "both phases bf16": ("bf16", "ours_both_phases")}
IDLE_LOAD = 0.5  # average number of running processes


def machine() -> dict[str, str]:
    """What the figures depend on besides the code."""
    names = [line.split(":", 1)[1].strip()
             for line in pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
             if line.startswith("model name")]
    commit = subprocess.run(["git", "describe", "--always", "--dirty"], capture_output=True,
                            text=True, check=False, cwd=pathlib.Path(__file__).parent)
    return {"processor": names[0] if names else platform.machine(),
            "usable cores": str(len(os.sched_getaffinity(0))),
            "load": f"{os.getloadavg()[0]:.1f}",
            "Python": platform.python_version(),
            "commit": commit.stdout.strip() or "unknown"}


def _figure(value: float) -> str:
    """Three significant digits."""
    return f"{value:.0f}" if value >= 100 else f"{value:#.3g}"


def _ratio(spread: dict[str, float]) -> str:
    """Median and spread; no figure when the rounds do not agree which side is faster."""
    if spread["p10"] < 1 < spread["p90"]:
        return "no clear difference"
    return f"{spread['median']:.1f}x, {spread['p10']:.1f}-{spread['p90']:.1f}"


def _cell(row: dict | None, goal: float) -> str:
    """A peer's time, ratio and spread, and our goal where it is missed."""
    if row is None:
        return ""
    if "error" in row:
        return "disagrees"
    missed = f"; goal {goal:g}x" if row["ratio"]["median"] < goal else ""
    return f"{_figure(row['theirs']['median'])} ({_ratio(row['ratio'])}{missed})"


def one_line(row: dict) -> str:
    """A row for people who wait."""
    name = " ".join(f"{key} {row[key]}" for key in ("threads", "tokens", "shape") if key in row)
    result = row["error"] if "error" in row else _ratio(row["ratio"])
    return f"{row['peer']}, {name}: {result}"


def _ours(rows: list[dict], dtype: str, name: str) -> str:
    """The median over the peers beside which ours was timed."""
    medians = [row[name]["median"] for row in rows if row.get("dtype") == dtype]
    return _figure(float(np.median(medians))) if medians else ""


def _door(rows: list[dict]) -> list[str]:
    """What of our times is not the library's."""
    medians = [row["door"]["median"] * row["tokens"] for row in rows if "door" in row]
    if not medians:
        return []
    return [f"- ours: Python's way to phase 2 and back is {_figure(float(np.median(medians)))} us "
            "of each call"]


def _table(peers: list[Peer], rows: list[dict]) -> list[str]:
    """A line for each case."""
    titles = ["T", "shape", "threads", *OURS, *(peer.name for peer in peers)]
    result = ["| " + " | ".join(titles) + " |", "|" + "---|" * len(titles)]
    # Cases in the order of the command line, tokens and threads first.
    cases = dict.fromkeys((row["tokens"], row["shape"], row["threads"])
                          for row in rows if "tokens" in row)
    for tokens, shape, threads in sorted(cases, key=lambda case: (case[0], case[2])):
        same = [row for row in rows if row.get("tokens") == tokens and row["shape"] == shape
                and row["threads"] == threads]
        of_peer = {row["peer"]: row for row in same}
        cells = [str(tokens), shape, str(threads)]
        cells += [_ours(same, dtype, name) for dtype, name in OURS.values()]
        cells += [_cell(of_peer.get(peer.name), peer.goal) for peer in peers]
        result.append("| " + " | ".join(cells) + " |")
    return result


def lines(about: dict[str, str], chosen: list[Peer], rows: list[dict]) -> list[str]:
    """The whole report: machine, versions, table, what went wrong."""
    installed = [peer for peer in chosen if peer.version()]
    report = [", ".join(f"{name} {value}" for name, value in about.items()) + ".", ""]
    if float(about["load"]) > IDLE_LOAD:
        report += ["The machine was not idle before the run: with several threads these figures "
                   "count how often a barrier waited for another process, not the work.", ""]
    if rows:
        report += ["Microseconds per token, medians; in brackets: how many times ours it is, and "
                   "the 10th to 90th percentile of the rounds' ratios.", ""]
        report += _table(installed, rows) + [""]
        report += _door(rows)
    for peer in chosen:
        version = peer.version()
        state = f"{peer.distributions[0]} {version}, beside ours in {peer.dtype}" if version else (
            f"not installed: {peer.install}")
        report.append(f"- {peer.name}: {state}")
    report += [f"- {one_line(row)}" for row in rows if "error" in row]
    return report
