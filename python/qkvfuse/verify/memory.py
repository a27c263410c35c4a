"""Memory of arrays: strided, backwards or broadcast views of buffers that can be compared whole."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from .draw import Draw

Array = npt.NDArray[Any]
Bytes = npt.NDArray[np.uint8]

# What lies in outputs, and between their elements, before a call. No value that a case computes has
# many of these bytes by chance.
POISON = 0xA5


@dataclass(frozen=True)
class View:
    """An array in a buffer.

    Attributes:
        buffer: the buffer's name; arrays may share one.
        offset: bytes from the buffer's first one to the element with all indices 0.
        strides: in bytes.
    """

    buffer: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    offset: int
    strides: tuple[int, ...]

    def of(self, buffers: dict[str, Bytes]) -> Array:
        """The array, in one set of buffers."""
        memory = buffers[self.buffer]
        return np.ndarray(self.shape, self.dtype, memory, self.offset, self.strides)

    def part(self, buffers: dict[str, Bytes], own: Array) -> View:
        """The view that `own` is, which was made of `self.of(buffers)` by indexing."""
        memory = buffers[self.buffer]
        offset = own.__array_interface__["data"][0] - memory.__array_interface__["data"][0]
        return View(self.buffer, own.dtype, own.shape, offset if own.size else 0, own.strides)


def packed(
    buffers: dict[str, Bytes], name: str, shape: tuple[int, ...], dtype: np.dtype[Any]
) -> View:
    """A new buffer full of poison, and the packed array in it."""
    size = max(1, math.prod(shape)) * dtype.itemsize
    buffers[name] = np.full(size, POISON, np.uint8)
    strides = np.empty(shape, np.uint8).strides
    return View(name, dtype, shape, 0, tuple(stride * dtype.itemsize for stride in strides))


def strided(
    draw: Draw,
    buffers: dict[str, Bytes],
    name: str,
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
) -> View:
    """A new buffer full of poison, and an array in it with axes in any order, gaps and steps back.

    Its strides nest: each is at least what the next smaller one reaches over.
    """
    order = draw.shuffled(range(len(shape))) if draw.chance(0.3) else list(range(len(shape)))
    steps = [draw.one_of((1, 1, 1, 2, 3, -1, -1, -2)) for _ in shape]
    pads = [draw.between(0, 2) for _ in shape]
    sizes = [shape[axis] * abs(steps[axis]) + pads[axis] for axis in order]
    whole = packed(buffers, name, tuple(sizes), dtype)
    own = whole.of(buffers).transpose(np.argsort(order))
    cut = []
    for size, step, pad in zip(shape, steps, pads, strict=True):
        first = draw.between(0, pad)
        cut.append(slice(first, first + size * abs(step), abs(step)))
    own = own[tuple(cut)]
    own = own[tuple(slice(None, None, -1 if step < 0 else 1) for step in steps)]
    return whole.part(buffers, own)


def broadcast(
    draw: Draw,
    buffers: dict[str, Bytes],
    name: str,
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
) -> View:
    """An array of which some axes repeat one entry, with a stride of 0."""
    repeats = [draw.chance(0.5) for _ in shape]
    sizes = tuple(1 if repeat else size for size, repeat in zip(shape, repeats, strict=True))
    once = packed(buffers, name, sizes, dtype)
    strides = [0 if repeat else step for step, repeat in zip(once.strides, repeats, strict=True)]
    return View(name, dtype, shape, 0, tuple(strides))
