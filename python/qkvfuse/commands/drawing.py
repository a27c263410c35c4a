"""Figures of Matplotlib that are the same bytes on every run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import UsageError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

INK = "#1f2933"
GREY = "#616e7c"
# Distinct in print and for most colour-blind readers (Okabe, Ito), darkened to carry white text.
COLOURS = ("#1f5fa8", "#c2620a", "#15803d", "#9333a8", "#a51d2d", "#0f766e", "#7a5c00", "#444b57")

_STYLE: Any = {
    "axes.edgecolor": GREY,
    "axes.labelcolor": INK,
    "axes.labelsize": 11,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 11,
    "font.family": "DejaVu Sans",
    "font.size": 10,
    "legend.frameon": False,
    "savefig.facecolor": "white",
    "svg.fonttype": "path",
    "svg.hashsalt": "qkvfuse",
    "text.color": INK,
    "xtick.color": GREY,
    "xtick.labelcolor": INK,
    "ytick.color": GREY,
    "ytick.labelcolor": INK,
}


@contextmanager
def figure(output: Path, width: float, height: float) -> Iterator[Figure]:
    """A figure of so many inches, written to `output`, .svg, .png or .pdf, at the end.

    Raises:
        UsageError: Matplotlib is not installed, or the name ends with something else.
    """
    metadata: dict[str, dict[str, str | None]] = {
        ".svg": {"Date": None, "Creator": "qkvfuse"},
        ".png": {"Software": "qkvfuse"},
        ".pdf": {"CreationDate": None, "Creator": "qkvfuse", "Producer": None},
    }
    if output.suffix not in metadata:
        raise UsageError(f"--output: is {output}, must end with {', '.join(metadata)}")
    try:
        import matplotlib
        from matplotlib.figure import Figure
        from matplotlib.layout_engine import ConstrainedLayoutEngine
    except ImportError:
        raise UsageError(
            'matplotlib: is not installed, must be to plot: pip install "qkvfuse[plot]"'
        ) from None
    with matplotlib.rc_context(_STYLE):
        engine = ConstrainedLayoutEngine(w_pad=0.1, h_pad=0.1)
        made = Figure(figsize=(width, height), layout=engine)
        yield made
        made.savefig(output, dpi=120, metadata=metadata[output.suffix])
    print(f"written: {output}")
