"""Draws results of perplexity.py: `python -m gemma3.plot results.json results.svg`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("svg")
from matplotlib import pyplot  # noqa: E402

from .cache_kinds import BASELINE  # noqa: E402


def plot(report: dict[str, Any], path: Path) -> None:
    """One row for each kind of cache, with its bytes per token: KL and increase of perplexity."""
    results = [result for result in report["results"] if result["kind"] != BASELINE.name]
    results.sort(key=lambda result: (-result["bytes_per_token"], -result["kl_divergence"]))
    names = [f"{result['kind']}\n{result['bytes_per_token']:,} bytes" for result in results]
    matplotlib.rcParams.update({"svg.hashsalt": "gemma3", "svg.fonttype": "none"})
    figure, (left, right) = pyplot.subplots(
        1, 2, figsize=(10, 0.45 * len(results) + 1.5), sharey=True, layout="constrained"
    )
    places = range(len(results))
    left.scatter([max(result["kl_divergence"], 1e-9) for result in results], places)
    left.set_xscale("log")
    left.set_xlabel("KL from the bfloat16 cache, nats per token")
    left.set_yticks(places, names, fontsize=8)
    right.scatter([result["perplexity_increase_percent"] for result in results], places)
    right.axvline(0, color="grey", linewidth=0.8)
    right.set_xscale("symlog", linthresh=0.01)
    right.margins(x=0.1)
    right.set_xlabel("perplexity, % above the bfloat16 cache's")
    for axes in (left, right):
        axes.grid(alpha=0.3)
    figure.suptitle("Gemma 3 270M: kinds of KV cache, with bytes per token over all layers")
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)


if __name__ == "__main__":
    plot(json.loads(Path(sys.argv[1]).read_text()), Path(sys.argv[2]))
