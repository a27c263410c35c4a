"""Between QKV projection and attention: the interface, and a plain NumPy implementation.

`NumpyPrologue` says in a few lines what is computed: split, RMSNorm of q and k per head, RoPE, and
the write into a paged cache. Its cache is float32; for another `CacheKind` a row is rounded to what
would be read back. `QkvfusePrologue` (prologue_qkvfuse.py) does the same with one kernel and a
cache of codes.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Protocol

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from qkvfuse import Calibration

from .cache_kinds import BLOCK_SIZE, FLOAT32, CacheKind
from .weights import Config, Floats, Weights

Ints = NDArray[np.int64]


LayerScales = Mapping[int, tuple[Calibration, Calibration]]  # of k and v


class PrologueAndCache(Protocol):
    """All that lies between the projection and the attention, for all layers."""

    def append(self, layer: int, qkv_rows: Floats, positions: Ints, sequence: int = 0) -> Floats:
        """Writes k and v of new tokens into the cache and returns their q.

        Args:
            layer: whose norms, rotation and cache.
            qkv_rows: [tokens, (heads + 2 * kv_heads) * head_dim], heads of q, of k, of v.
            positions: [tokens]; the token at position p is row p of its sequence.
            sequence: whose tokens they are.

        Returns:
            q [tokens, heads, head_dim], normalised and rotated.
        """
        ...

    def read(self, layer: int, sequence: int = 0) -> tuple[Floats, Floats]:
        """k and v of a sequence's rows as float32, each [rows, kv_heads, head_dim]."""
        ...


_LARGEST = {"int8": 127, "float8_e4m3fn": 448, "float8_e5m2": 57344}


def page_table(sequences: int, capacity: int) -> tuple[Ints, int]:
    """A table [sequences, pages] of blocks in a shuffled order, and how many blocks there are."""
    pages = -(-capacity // BLOCK_SIZE)
    blocks = np.random.default_rng(0).permutation(sequences * pages)
    return blocks.reshape(sequences, pages).astype(np.int64), sequences * pages


def rms_norm(x: Floats, weight: Floats, epsilon: float) -> Floats:
    """x / rms(x) * weight over the last axis."""
    mean = np.mean(np.square(x), axis=-1, keepdims=True)
    normalised: Floats = x / np.sqrt(mean + np.float32(epsilon))
    return normalised * weight


def rope_table(base: float, head_dim: int, positions: int) -> Floats:
    """cos and sin of every position: [positions, head_dim], half cos, half sin."""
    frequencies = base ** (-np.arange(0, head_dim, 2, dtype=np.float64) / head_dim)
    angles = np.arange(positions)[:, None] * frequencies
    return np.concatenate([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)


def round_trip(y: Floats, kind: CacheKind, scales: Calibration | None) -> Floats:
    """What is read back of y [rows, heads, head_dim] that was stored in a cache of `kind`."""
    dtype: Any = np.dtype(getattr(ml_dtypes, kind.dtype, kind.dtype))
    if kind.scale_rule is None:
        return y.astype(dtype).astype(np.float32)
    largest = np.float32(_LARGEST[kind.dtype])
    scale: Floats
    offset: Floats = np.zeros(1, np.float32)
    if kind.scale_rule == "dynamic":
        scale = np.abs(y).max(axis=-1, keepdims=True) / largest
        z = np.divide(y, scale, out=np.zeros_like(y), where=scale != 0)
    else:
        if scales is None:
            raise ValueError(f"scales: are None, must be given for a cache of kind {kind.name}")
        shape = {"tensor": (1, 1), "head": (-1, 1), "channel": y.shape[1:]}[kind.granularity]
        scale = scales.scale.reshape(shape)
        if scales.offset is not None:
            offset = scales.offset.reshape(shape)
        z = y / scale + offset
    code: Floats  # its value
    if kind.dtype == "int8":
        code = np.rint(np.clip(z, -128, 127)) - offset
    else:
        code = np.clip(z, -largest, largest).astype(dtype).astype(np.float32)
    return code * scale


class NumpyPrologue:
    """`PrologueAndCache` in NumPy.

    Args:
        weights: of the model, for the norms of q and k.
        capacity: rows of a sequence.
        sequences: how many the cache holds.
        kind: of the caches; rows are rounded as it would.
        scales: of each layer's k and v, where the kind is calibrated.
    """

    def __init__(
        self,
        config: Config,
        weights: Weights,
        capacity: int,
        sequences: int = 1,
        kind: CacheKind = FLOAT32,
        scales: LayerScales | None = None,
    ) -> None:
        self._config, self._kind, self._scales = config, kind, scales
        self._layers = weights.layers
        bases = {config.rope_base(layer) for layer in range(config.layers)}
        self._tables = {base: rope_table(base, config.head_dim, capacity) for base in bases}
        self._pages, blocks = page_table(sequences, capacity)
        shape = (config.layers, blocks, BLOCK_SIZE, config.kv_heads, config.head_dim)
        self._k, self._v = np.zeros(shape, np.float32), np.zeros(shape, np.float32)
        self._rows = np.zeros((config.layers, sequences), np.int64)

    def append(self, layer: int, qkv_rows: Floats, positions: Ints, sequence: int = 0) -> Floats:
        """Of `PrologueAndCache`."""
        config, weights = self._config, self._layers[layer]
        heads = qkv_rows.reshape(len(qkv_rows), -1, config.head_dim)
        q, k, v = np.split(heads, [config.heads, config.heads + config.kv_heads], axis=1)
        table = self._tables[config.rope_base(layer)]
        q = self._rotate(rms_norm(q, weights.q_norm, config.epsilon), table[positions])
        k = self._rotate(rms_norm(k, weights.k_norm, config.epsilon), table[positions])
        of_k, of_v = self._scales[layer] if self._scales is not None else (None, None)
        block = self._pages[sequence, positions // BLOCK_SIZE]
        self._k[layer, block, positions % BLOCK_SIZE] = round_trip(k, self._kind, of_k)
        self._v[layer, block, positions % BLOCK_SIZE] = round_trip(v, self._kind, of_v)
        self._rows[layer, sequence] = positions[-1] + 1
        return q

    def read(self, layer: int, sequence: int = 0) -> tuple[Floats, Floats]:
        """Of `PrologueAndCache`."""
        rows = int(self._rows[layer, sequence])
        blocks = self._pages[sequence, : -(-rows // BLOCK_SIZE)]
        shape = (-1, self._config.kv_heads, self._config.head_dim)
        k, v = self._k[layer, blocks].reshape(shape), self._v[layer, blocks].reshape(shape)
        return k[:rows], v[:rows]

    @staticmethod
    def _rotate(x: Floats, rows: Floats) -> Floats:
        """Rotates channel j with channel j + head_dim/2; rows are those of the tokens."""
        cos, sin = np.split(rows[:, None, :], 2, axis=-1)
        low, high = np.split(x, 2, axis=-1)
        return np.concatenate([low * cos - high * sin, high * cos + low * sin], axis=-1)


class Timed:
    """A `PrologueAndCache` that adds up the time its calls take."""

    def __init__(self, inner: PrologueAndCache) -> None:
        self._inner = inner
        self.append_seconds = 0.0
        self.read_seconds = 0.0

    def append(self, layer: int, qkv_rows: Floats, positions: Ints, sequence: int = 0) -> Floats:
        """Of `PrologueAndCache`."""
        start = time.perf_counter()
        q = self._inner.append(layer, qkv_rows, positions, sequence)
        self.append_seconds += time.perf_counter() - start
        return q

    def read(self, layer: int, sequence: int = 0) -> tuple[Floats, Floats]:
        """Of `PrologueAndCache`."""
        start = time.perf_counter()
        both = self._inner.read(layer, sequence)
        self.read_seconds += time.perf_counter() - start
        return both
