"""Reading caches back, and moving their pages: docs/reading_back.md."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from . import _core
from ._arrays import ArrayLike, zeros
from ._spec import Cache, DTypeLike


@dataclass(frozen=True)
class CacheView:
    """A cache in memory: what its elements mean and where they are.

    Attributes:
        cache: type, layout and scales.
        data: the array that `cache.layout` says, of `cache.dtype`.
        heads: 1 to 65536.
        head_dim: 1 to 1024.
        scale, offset: float32, of `cache.granularity`: 8-bit types with static scales.
        scale_cache: float32, the array that `cache.scale_layout` says: dynamic scales.
    """

    cache: Cache
    data: ArrayLike
    heads: int
    head_dim: int
    scale: ArrayLike | None = None
    offset: ArrayLike | None = None
    scale_cache: ArrayLike | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.cache, Cache):
            raise TypeError(f"cache: is {self.cache!r}, must be a Cache")


def read_cache(
    cache: CacheView,
    slots: ArrayLike,
    *,
    lengths: ArrayLike | None = None,
    row_offsets: ArrayLike | None = None,
    dtype: DTypeLike = None,
    out: ArrayLike | None = None,
    threads: int = 0,
) -> Any:
    """Rows of a cache as floats.

    Args:
        cache: the cache.
        slots: int64 or int32; [rows], the slot of each row of the result, zeros where negative; or,
            with lengths, [sequences, pages], the blocks of each sequence in order.
        lengths: [sequences], rows of each sequence; they follow each other in the result.
        row_offsets: [sequences] or [sequences + 1], where each sequence begins in `out`.
        dtype: of a new result: float32, float16 or bfloat16; None: float32.
        out: [rows, heads, head_dim] to write to, any strides; None: a new array, of the kind that
            the cache's is.
        threads: 0: as many as the work is worth.

    Returns:
        [rows, heads, head_dim].

    Raises:
        TypeError, ValueError: one sentence; `out` has not changed.
    """
    _check_view(cache, "cache")
    if out is not None and dtype is not None:
        raise TypeError("dtype: is given with out, must be left out: it is that of out")
    if out is None:
        if row_offsets is not None:
            raise TypeError("out: is missing, must be given with row_offsets")
        rows = _count(slots, "slots") if lengths is None else _sum(lengths, "lengths")
        shape = (rows, cache.heads, cache.head_dim)
        if any(not isinstance(size, int) or size < 0 for size in shape) or math.prod(shape) > 2**48:
            raise ValueError(f"out: would be {list(shape)}, must be of a size that fits the memory")
        out = zeros(shape, dtype or "float32", like=cache.data)
    _core.read_cache(cache, slots, lengths, row_offsets, out, threads)
    return out


def _check_view(view: object, name: str) -> None:
    if not isinstance(view, CacheView):
        raise TypeError(f"{name}: is {view!r}, must be a CacheView")


def _count(array: ArrayLike, name: str) -> int:
    try:
        return len(array)
    except TypeError:
        raise TypeError(f"{name}: is {array!r}, must be an array of one axis") from None


def _sum(array: ArrayLike, name: str) -> int:
    _count(array, name)
    return max(0, sum(int(element) for element in array))


def convert_pages(
    source: CacheView, destination: CacheView, pairs: ArrayLike, *, threads: int = 0
) -> None:
    """Converts blocks to the type, scales and layout of another cache.

    Args:
        source, destination: caches of the same heads, head_dim and block_size, without shared
            memory.
        pairs: [count, 2] int64 or int32: a block of `source`, the block of `destination` it goes
            to. Every destination is named once.
        threads: 0: as many as the work is worth.

    Raises:
        TypeError, ValueError: one sentence; the destination has not changed.
    """
    _check_view(source, "source")
    _check_view(destination, "destination")
    _core.convert_pages(source, destination, pairs, threads)


def copy_pages(
    source: CacheView, destination: CacheView, pairs: ArrayLike, *, threads: int = 0
) -> None:
    """Copies blocks bit for bit, dynamic scales included, between caches of one type.

    Layouts may differ. Both may be the same cache, unless a block is a source and a destination.

    Args:
        source, destination: caches of the same type, heads, head_dim and block_size.
        pairs: [count, 2] int64 or int32: a block of `source`, the block of `destination` it goes
            to.
        threads: 0: as many as the work is worth.

    Raises:
        TypeError, ValueError: one sentence; the destination has not changed.
    """
    _check_view(source, "source")
    _check_view(destination, "destination")
    _core.copy_pages(source, destination, pairs, threads)
