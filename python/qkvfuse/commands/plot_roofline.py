"""`python -m qkvfuse plot roofline`: bandwidth under its roof, from a file of `bench --save`."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import UsageError, drawing

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Row = dict[str, Any]

_MOST_SERIES = 4
# The key of a row with the times of the same work in several passes, and what it is called.
_PASSES = {"unfused_us": "unfused passes", "numpy_us": "NumPy operations"}


def draw(file: Path, pattern: str, output: Path) -> None:
    """Writes the drawing of the rows whose name contains the pattern.

    Raises:
        UsageError: the file is not what a bench has saved, or no row is left.
    """
    series = series_of(rows_of(file, pattern))
    drawn = sorted(series, key=lambda name: -len(series[name]))[:_MOST_SERIES]
    if len(drawn) < len(series):
        print(
            f"{len(series)} series, the {len(drawn)} longest are drawn; --filter chooses",
            file=sys.stderr,
        )
    drawn = [name for name in series if name in drawn]
    with drawing.figure(output, 12.5, 5.4) as figure:
        from matplotlib.ticker import LogLocator

        left, right = figure.subplots(1, 2)
        for name, colour in zip(drawn, drawing.COLOURS):
            _draw_bandwidth(left, name, series[name], colour)
            _draw_time(right, series[name], colour)
        tokens = sorted({row["tokens"] for name in drawn for row in series[name]})
        for axes in (left, right):
            axes.set_xscale("log", base=2)
            axes.set_yscale("log")
            axes.set_xticks(tokens, [str(count) for count in tokens])
            axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            axes.minorticks_off()
            axes.set_xlabel("tokens of a call")
            axes.grid(axis="y", color="#dddddd")
            axes.yaxis.set_major_formatter("{x:g}")
        left.set_ylabel("GB/s")
        left.set_title("Bytes moved per second; dashed: the roof, a copy of as many bytes")
        right.set_ylabel("us per token")
        passes = " or ".join(_PASSES[key] for key in _PASSES if key in series[drawn[0]][0])
        right.set_title(f"Time per token; dotted: the same work in {passes or 'passes'}")
        handles, labels = left.get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower left", ncols=2)


def rows_of(file: Path, pattern: str) -> list[Row]:
    """The rows of a file that a bench has saved, whose names contain the pattern."""
    if not file.is_file():
        raise UsageError(f"{file}: there is no such file")
    try:
        rows: list[Row] = json.loads(file.read_text(encoding="utf-8"))["rows"]
        for row in rows:
            for key in ("tokens", "gb_per_s", "roof_gb_per_s", "us_per_token"):
                row[key] = float(row[key]) if key != "tokens" else int(row[key])
            row["name"] = str(row["name"])
        wanted = [row for row in rows if re.search(pattern, row["name"])]
    except re.error as error:
        raise UsageError(f"--filter: {pattern!r} is no pattern: {error}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{file}: is not what bench --save has written") from error
    if not wanted:
        raise UsageError(f"{file}: has no row with {pattern!r} in its name")
    return wanted


def series_of(rows: list[Row]) -> dict[str, list[Row]]:
    """Rows that differ in nothing but T, in order of T, by the rest of their names."""
    series: dict[str, list[Row]] = {}
    for row in rows:
        series.setdefault(re.sub(r"/T\d+(?=/|$)", "", row["name"]), []).append(row)
    return {name: sorted(own, key=lambda row: row["tokens"]) for name, own in series.items()}


def _draw_bandwidth(axes: Axes, name: str, rows: list[Row], colour: str) -> None:
    tokens = [row["tokens"] for row in rows]
    axes.plot(tokens, [row["gb_per_s"] for row in rows], "o-", color=colour, label=name)
    roof = [row["roof_gb_per_s"] for row in rows]
    axes.plot(tokens, roof, "_--", color=colour, markersize=14, markeredgewidth=2)


def _draw_time(axes: Axes, rows: list[Row], colour: str) -> None:
    axes.plot(
        [row["tokens"] for row in rows], [row["us_per_token"] for row in rows], "o-", color=colour
    )
    for key in _PASSES:
        timed = [row for row in rows if key in row]
        times = [row[key]["median"] / row["tokens"] for row in timed]
        axes.plot([row["tokens"] for row in timed], times, "s:", color=colour, markersize=4)
