"""Reading a cache: from codes, or 16-bit elements, back to numbers (docs/reading_back.md)."""

from __future__ import annotations

import numpy as np

from .._spec import Cache
from .._words import DType, ScaleRule
from .arithmetic import Array, bits_of, narrow, numpy_dtype, widen
from .codes import LARGEST, values_of_codes
from .places import Rows, cache_index, cache_shape, joined, rows_of_pages, rows_of_slots


def read_cache(
    cache: Cache,
    array: Array,
    *,
    heads: int,
    head_dim: int,
    slots: Array,
    lengths: Array | None = None,
    row_offsets: Array | None = None,
    scale: Array | None = None,
    offset: Array | None = None,
    scale_cache: Array | None = None,
    dtype: object = DType.BFLOAT16,
    out: Array | None = None,
) -> Array:
    """Rows of a cache as floats, [rows, heads, head_dim].

    Args:
        cache: what the array's elements mean and where they lie.
        array: the cache.
        slots: [rows], a slot of each row, negative: a row of zeros; with `lengths` the page table
            [sequences, pages], of which only the pages that are needed are looked at.
        lengths: [sequences], rows of each sequence of a page table.
        row_offsets: [sequences] or [sequences + 1], the row of the result where each sequence
            begins; None: one after another from row 0.
        scale, offset: float32 [heads, head_dim], [heads] or [1] in any shape, by the granularity.
        scale_cache: float32, the array that `cache.scale_layout` says, of dynamic scales.
        dtype: of the result: float32, float16 or bfloat16.
        out: the array to write, whose rows between the sequences keep their bytes; None: a new one,
            in which they are zeros.

    Returns:
        `out`, or the new array. Elements that have its type already are copied bit for bit.

    Raises:
        ValueError: an array has another type or shape than the cache says.
    """
    shape = cache_shape(cache, cache.layout, heads, head_dim)
    if array.dtype != numpy_dtype(cache.dtype) or array.shape != shape:
        raise ValueError(f"array: is {array.dtype} {array.shape}, must be {cache.dtype} {shape}")
    kind = DType.of(dtype, "dtype")
    if lengths is None:
        rows, count = rows_of_slots(slots, cache.block_size), len(slots)
    else:
        rows, count = _rows_of_sequences(cache.block_size, slots, lengths, row_offsets)
    elements = array[cache_index(cache, cache.layout, heads, head_dim, rows.block, rows.row)]
    if out is None:
        out = np.zeros((count, heads, head_dim), numpy_dtype(kind))
    target = bits_of(out)
    if lengths is None:
        target[...] = 0
    if cache.dtype is kind:
        target[rows.token] = bits_of(elements)
        return out
    with np.errstate(all="ignore"):
        if cache.dtype in LARGEST:
            rule = ScaleRule(cache.scale_rule)
            if rule is ScaleRule.DYNAMIC:
                if scale_cache is None:
                    raise ValueError("scale_cache: is absent, dynamic scales need it")
                index = cache_index(cache, cache.scale_layout, heads, 1, rows.block, rows.row)
                shared, offset = scale_cache[index], None
            else:
                shared, offset = _shared(scale, "scale", heads), offset
                offset = _shared(offset, "offset", heads) if cache.has_offset else None
            values = values_of_codes(elements, rule, shared, offset)
        else:
            values = widen(elements, np.dtype(np.float32))
        target[rows.token] = narrow(values, kind)
    return out


def _rows_of_sequences(
    block_size: int, pages: Array, lengths: Array, row_offsets: Array | None
) -> tuple[Rows, int]:
    """The rows of a page table, their tokens being rows of the result, and how many it has."""
    ends = np.cumsum(lengths) if row_offsets is None else row_offsets[: len(lengths)] + lengths
    parts = []
    for index, (length, end) in enumerate(zip(lengths, ends, strict=True)):
        part = rows_of_pages(pages, block_size, index, 0, int(length))
        parts.append(Rows(part.token + int(end - length), part.block, part.row))
    count = int(ends[-1]) if len(ends) > 0 else 0
    if row_offsets is not None and len(row_offsets) > len(lengths):
        count = max(count, int(row_offsets[-1]))
    return joined(parts), count


def _shared(values: Array | None, name: str, heads: int) -> Array:
    """A scale or an offset, to broadcast to [rows, heads, head_dim]."""
    if values is None:
        raise ValueError(f"{name}: is absent, this cache needs it")
    return values.reshape(1 if values.size == 1 else heads, -1)
