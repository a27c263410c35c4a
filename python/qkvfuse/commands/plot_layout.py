"""`python -m qkvfuse plot layout`: a cache in memory, address by address, and who owns what."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from .._layouts import axes_of
from .._spec import Cache
from ..reference.places import cache_index, cache_shape
from . import UsageError, drawing, refusals

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Array = npt.NDArray[Any]

_MOST_LINES = 40
_MOST_PIECES = 8192
_TINTS = ("#dbeafe", "#fde9c8", "#d7f5e3", "#f3dff5")  # of heads, in turn
_WIDTH = 12.0  # inches
_BAR_POINTS = 660.0  # of a line, about
_FONT = 7.5


@dataclass(frozen=True)
class Layout:
    """A cache to draw.

    Attributes:
        name: of the layout, or the names of its array's axes.
        dtype: of the elements; says how many channels are in a chunk of "pa_nz" or "x_split_k".
        slots: that are highlighted.
    """

    name: str
    blocks: int = 2
    block_size: int = 4
    heads: int = 2
    head_dim: int = 32
    chunk: int = 0
    dtype: str = "int8"
    slots: tuple[int, ...] = (0, 1, 5)


class Piece(NamedTuple):
    """Elements [first, first + size) of a line: consecutive channels of one slot and head."""

    line: int
    first: int
    size: int
    slot: int
    head: int
    channel: int


class Memory(NamedTuple):
    """A cache as it lies in memory.

    Attributes:
        axes, shape: of the array.
        line: elements of a line of the drawing, all entries of the last axes.
        line_axes: how many axes that are.
        owners: [elements, 3], slot, head and channel of each address.
    """

    axes: tuple[str, ...]
    shape: tuple[int, ...]
    line: int
    line_axes: int
    owners: Array


def draw(layout: Layout, output: Path) -> None:
    """Writes the drawing.

    Raises:
        UsageError: the layout is refused, a slot is outside of the cache, or there is too much to
            draw.
    """
    sizes = {name: getattr(layout, name) for name in ("blocks", "block_size", "heads", "head_dim")}
    for name, size in sizes.items():
        if size < 1:
            raise UsageError(f"--{name.replace('_', '-')}: is {size}, must be at least 1")
    slots = layout.blocks * layout.block_size
    for slot in layout.slots:
        if not 0 <= slot < slots:
            raise UsageError(f"--slots: has {slot}, must be from 0 to {slots - 1}")
    if len(layout.slots) > len(drawing.COLOURS):
        most = len(drawing.COLOURS)
        raise UsageError(f"--slots: has {len(layout.slots)} slots, must have up to {most}")
    if math.prod(sizes.values()) > 1 << 20:
        raise UsageError(f"layout: has {math.prod(sizes.values())} elements, must have up to 2^20")
    with refusals():
        cache = Cache(layout.dtype, layout.name, layout.blocks, layout.block_size, layout.chunk)
        memory = memory_of(cache, layout.heads, layout.head_dim)
    pieces = list(pieces_of(memory))
    if len(pieces) > _MOST_PIECES:
        raise UsageError(
            f"layout: falls into {len(pieces)} pieces, must be up to {_MOST_PIECES}: "
            "choose fewer blocks, rows, heads or channels"
        )
    lines = len(memory.owners) // memory.line
    with drawing.figure(output, _WIDTH, 1.9 + 0.24 * (lines + 0.5 * layout.blocks)) as figure:
        axes = figure.add_subplot()
        _draw_pieces(axes, pieces, memory, layout)
        _label(axes, memory, layout)
        array = " x ".join(f"{name} {size}" for name, size in zip(memory.axes, memory.shape))
        figure.suptitle(
            f"{layout.name}, {cache.dtype}: {len(memory.owners)} elements [{array}]",
            x=0.01,
            ha="left",
            fontsize=13,
        )


def memory_of(cache: Cache, heads: int, head_dim: int) -> Memory:
    """Who owns which address of a packed cache."""
    shape = cache_shape(cache, cache.layout, heads, head_dim)
    block, row = np.divmod(np.arange(cache.blocks * cache.block_size), cache.block_size)
    index = cache_index(cache, cache.layout, heads, head_dim, block, row)
    size = math.prod(shape)
    address = np.arange(size).reshape(shape)[index]
    owners = np.empty((size, 3), np.int64)
    owners[address.reshape(-1)] = np.indices(address.shape).reshape(3, -1).T
    line_axes = next(
        count
        for count in range(1, len(shape) + 1)
        if size // math.prod(shape[-count:]) <= _MOST_LINES or count == len(shape)
    )
    axes = axes_of(cache.layout, "layout")
    return Memory(axes, shape, math.prod(shape[-line_axes:]), line_axes, owners)


def pieces_of(memory: Memory) -> Iterator[Piece]:
    """The pieces, by address."""
    slot, head, channel = memory.owners.T
    step = (np.diff(slot) == 0) & (np.diff(head) == 0) & (np.diff(channel) == 1)
    begins = np.flatnonzero(np.concatenate([[True], ~step]))
    begins = np.union1d(begins, np.arange(0, len(slot), memory.line))
    for begin, end in zip(begins, [*begins[1:], len(slot)], strict=True):
        line, first = divmod(int(begin), memory.line)
        owner = (int(value) for value in memory.owners[begin])
        yield Piece(line, first, int(end - begin), *owner)


def _tops(memory: Memory) -> Array:
    """Where the lines begin, downwards; a gap is where the entry of the first axis changes."""
    line = np.arange(len(memory.owners) // memory.line)
    lines_of_first = max(1, len(line) // memory.shape[0])
    has_gaps = memory.line_axes < len(memory.shape)
    return np.asarray(line + (0.5 * (line // lines_of_first) if has_gaps else 0.0))


def _draw_pieces(axes: Axes, pieces: list[Piece], memory: Memory, layout: Layout) -> None:
    from matplotlib.collections import PolyCollection

    colours = dict(zip(layout.slots, drawing.COLOURS))
    tops, boxes, fills = _tops(memory), [], []
    points = _BAR_POINTS / memory.line  # of an element
    edge = 0.5 if min(piece.size for piece in pieces) * points > 2 else 0.0
    for piece in pieces:
        left, right = piece.first, piece.first + piece.size
        top = tops[piece.line]
        boxes.append([(left, top), (right, top), (right, top + 0.9), (left, top + 0.9)])
        fills.append(colours.get(piece.slot, _TINTS[piece.head % len(_TINTS)]))
        text = _text(piece, piece.size * points)
        if text:
            axes.text(
                (left + right) / 2,
                top + 0.47,
                text,
                ha="center",
                va="center",
                fontsize=_FONT,
                color="white" if piece.slot in colours else drawing.GREY,
            )
    axes.add_collection(
        PolyCollection(boxes, facecolors=fills, edgecolors="white", linewidths=edge)
    )


def _text(piece: Piece, points: float) -> str:
    """The longest description that fits into so many points."""
    last = piece.channel + piece.size - 1
    channels = f"{piece.channel}-{last}" if piece.size > 1 else str(piece.channel)
    for text in (
        f"slot {piece.slot}, head {piece.head}, channels {channels}",
        f"slot {piece.slot}, head {piece.head}, ch {channels}",
        f"s{piece.slot} h{piece.head} c{channels}",
        str(piece.slot),
    ):
        if len(text) * 0.62 * _FONT <= points:
            return text
    return ""


def _label(axes: Axes, memory: Memory, layout: Layout) -> None:

    tops = _tops(memory)
    outer = memory.shape[: len(memory.shape) - memory.line_axes]
    names = memory.axes[: len(outer)]
    widths = [len(str(size - 1)) for size in outer]
    width = len(str(len(memory.owners)))
    labels = []
    for line in range(len(tops)):
        index = np.unravel_index(line, outer) if outer else ()
        words = [
            f"{name} {entry:>{columns}}"
            for name, entry, columns in zip(names, index, widths, strict=True)
        ]
        labels.append("  ".join([*words, f"{line * memory.line:>{width}}"]))
    axes.set_xlim(0, memory.line)
    axes.set_ylim(float(tops[-1]) + 1, -0.1)
    axes.set_yticks(tops + 0.45, labels, fontsize=8.5, fontfamily="DejaVu Sans Mono")
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    step = max(1, -(-memory.line // 8))
    axes.set_xticks(range(0, memory.line + 1, step))
    inner = ", ".join(memory.axes[len(outer) :])
    axes.set_xlabel(f"element of a line ({inner}); beside each line its first address")
    axes.legend(**_legend(layout), loc="lower left", bbox_to_anchor=(0, 1), fontsize=9)


def _legend(layout: Layout) -> dict[str, Any]:
    """A row of highlighted slots, and below it a row of heads."""
    from matplotlib.patches import Patch

    places = [divmod(slot, layout.block_size) for slot in layout.slots]
    slots = [f"slot {slot}" for slot in layout.slots]
    if len(slots) <= 5:
        slots = [
            f"{slot} (block {block}, row {row})"
            for slot, (block, row) in zip(slots, places, strict=True)
        ]
    heads = [
        f"other slots, head {', '.join(map(str, range(tint, layout.heads, len(_TINTS))))}"
        for tint in range(min(layout.heads, len(_TINTS)))
    ]
    columns = max(len(slots), len(heads))
    rows = []
    for labels, colours in ((slots, drawing.COLOURS), (heads, _TINTS)):
        patches = [Patch(color=colour, label=label) for label, colour in zip(labels, colours)]
        rows.append(patches + [Patch(alpha=0, label=" ")] * (columns - len(patches)))
    # Matplotlib fills column by column.
    handles = [patch for column in zip(*rows, strict=True) for patch in column]
    return {"handles": handles, "ncols": columns}
