"""Where the rows of tokens lie: slots, starts and page tables, and the arrays of caches.

docs/cache_layouts.md has the drawings. A layout is used here as the names of an array's axes
(`qkvfuse.LAYOUTS`), so that NumPy's own indexing finds the address and no stride is ever computed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .._layouts import axes_of
from .._spec import Cache, Slots
from .._words import SlotMode
from .arithmetic import Array


def cache_shape(cache: Cache, layout: str, heads: int, channels: int) -> tuple[int, ...]:
    """The shape of a cache's array, or with its `scale_layout` and 1 channel of its scales'.

    Raises:
        ValueError: a chunk does not divide what it cuts, or an axis is missing that has entries.
    """
    axes = axes_of(layout, "layout")
    chunk = cache.chunk or 1
    named = {part for axis in axes for part in axis.split("*")}
    has_chunks = {part: f"{part}_chunk" in named for part in ("row", "channel")}
    for part, size in (("row", cache.block_size), ("channel", channels)):
        if has_chunks[part] and size % chunk != 0:
            raise ValueError(f"chunk: is {chunk}, must divide {size}, the {part}s")
        if part not in named and size != 1:
            raise ValueError(f"layout: {layout!r} has no axis {part}, but {size} {part}s")
    sizes = {
        "block": cache.blocks,
        "row_chunk": cache.block_size // chunk,
        "row": chunk if has_chunks["row"] else cache.block_size,
        "head": heads,
        "channel_chunk": channels // chunk,
        "channel": chunk if has_chunks["channel"] else channels,
    }
    sizes["head*channel_chunk"] = heads * sizes["channel_chunk"]
    return tuple(sizes[axis] for axis in axes)


def cache_index(
    cache: Cache, layout: str, heads: int, channels: int, block: Array, row: Array
) -> tuple[Array, ...]:
    """The index of [rows, heads, channels] elements in the array of `cache_shape`.

    Args:
        block, row: [rows], a row of a block each.
    """
    axes = axes_of(layout, "layout")
    chunk = cache.chunk or 1
    head = np.arange(heads)[None, :, None]
    channel = np.arange(channels)[None, None, :]
    block, row = block[:, None, None], row[:, None, None]
    index = {
        "block": block,
        "row_chunk": row // chunk,
        "row": row % chunk if "row_chunk" in axes else row,
        "head": head,
        "channel_chunk": channel // chunk,
        "channel": channel,
        "head*channel_chunk": head * (channels // chunk) + channel // chunk,
    }
    if "channel_chunk" in axes or "head*channel_chunk" in axes:
        index["channel"] = channel % chunk
    return tuple(np.broadcast_arrays(*(index[axis] for axis in axes)))


@dataclass(frozen=True)
class Rows:
    """Rows of caches and the tokens that they belong to, three arrays of one length."""

    token: Array
    block: Array
    row: Array

    def __getitem__(self, some: Array) -> Rows:
        """A selection, by index or mask."""
        return Rows(self.token[some], self.block[some], self.row[some])


def rows_of_slots(slots: Array, block_size: int) -> Rows:
    """The rows that a list of slots names; a negative slot names none."""
    slots = slots.astype(np.int64)
    token = np.flatnonzero(slots >= 0)
    return Rows(token, slots[token] // block_size, slots[token] % block_size)


def rows_of_starts(starts: Array, sequence: int) -> Rows:
    """Rows starts[b], starts[b] + 1, ... of block b, `sequence` of them for each b."""
    block = np.repeat(np.arange(len(starts)), sequence)
    row = starts.astype(np.int64)[block] + np.tile(np.arange(sequence), len(starts))
    return Rows(np.arange(len(block)), block, row)


def rows_of_pages(pages: Array, block_size: int, sequence: int, first: int, last: int) -> Rows:
    """Rows first .. last - 1 of one sequence of a page table; their tokens are counted from 0."""
    place = np.arange(first, last)
    block = pages[sequence, place // block_size].astype(np.int64)
    return Rows(place - first, block, place % block_size)


def joined(parts: list[Rows]) -> Rows:
    """One list of rows after another."""
    none = np.empty(0, np.int64)
    return Rows(
        np.concatenate([none, *(part.token for part in parts)]),
        np.concatenate([none, *(part.block for part in parts)]),
        np.concatenate([none, *(part.row for part in parts)]),
    )


def rows_of_tokens(
    slots: Slots,
    block_size: int,
    sequence: int,
    slot_array: Array,
    lengths: Array | None,
    row_offsets: Array | None,
) -> Rows:
    """The rows that a call writes, each once: of a row that is named again the last token stays.

    Args:
        sequence: tokens of each sequence, "start_per_sequence" only.
        slot_array, lengths, row_offsets: as the call has them.
    """
    if slots.mode is SlotMode.SLOT_PER_TOKEN:
        rows = rows_of_slots(slot_array, block_size)
    elif slots.mode is SlotMode.START_PER_SEQUENCE:
        rows = rows_of_starts(slot_array, sequence)
    else:
        assert lengths is not None and row_offsets is not None
        parts = []
        for index, length in enumerate(lengths):
            begin, end = int(row_offsets[index]), int(row_offsets[index + 1])
            first = int(length) - (end - begin)
            part = rows_of_pages(slot_array, block_size, index, first, int(length))
            parts.append(Rows(part.token + begin, part.block, part.row))
        rows = joined(parts)
    place = rows.block * block_size + rows.row
    _, last = np.unique(place[::-1], return_index=True)
    return rows[len(place) - 1 - last]


def unused_rows(block_size: int, pages: Array, lengths: Array, row_offsets: Array) -> Rows:
    """The rows behind the end of each sequence, in its last page, of the sequences with tokens."""
    parts = []
    for index, length in enumerate(lengths):
        if row_offsets[index + 1] > row_offsets[index]:
            end = -(-int(length) // block_size) * block_size
            parts.append(rows_of_pages(pages, block_size, index, int(length), end))
    return joined(parts)
