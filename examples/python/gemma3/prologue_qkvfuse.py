"""Between QKV projection and attention with qkvfuse: one kernel, and a cache that holds codes.

One `Plan` serves all layers: what differs from layer to layer are the arrays of a call, the weights
of the norms, the table of the rotation, scales and caches.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

import qkvfuse

from .cache_kinds import BLOCK_SIZE, FLOAT32, CacheKind
from .prologue import LayerScales, page_table
from .weights import Config, Floats, Weights

Ints = NDArray[np.int64]


class QkvfusePrologue:
    """`PrologueAndCache` with qkvfuse.

    Args:
        weights: of the model, for the norms of q and k.
        capacity: rows of a sequence.
        sequences: how many the cache holds.
        kind: of the caches.
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
        if kind.is_calibrated and scales is None:
            raise ValueError(f"scales: are None, must be given for a cache of kind {kind.name}")
        self._config = config
        self._pages, blocks = page_table(sequences, capacity)
        self._rows = np.zeros((config.layers, sequences), np.int64)
        self._cache = qkvfuse.Cache(
            kind.dtype,
            "paged_nhd",
            blocks,
            BLOCK_SIZE,
            has_offset=kind.has_offset,
            scale_rule=kind.scale_rule or "divide",
            granularity=kind.granularity,
        )
        self._plan = qkvfuse.Plan(
            x_dtype="float32",
            heads=(config.heads, config.kv_heads, config.kv_heads),
            head_dim=config.head_dim,
            q_norm="per_head",  # gamma plain: 1 + gamma is in the weights
            k_norm="per_head",
            epsilon=config.epsilon,
            rope=qkvfuse.Rope("halves", table="joined", max_positions=capacity),
            k_cache=self._cache,
            v_cache=self._cache,
        )
        tables = {
            base: qkvfuse.rope_table(qkvfuse.RopeTable(config.head_dim, capacity, theta=base))
            for base in (config.global_rope_base, config.local_rope_base)
        }
        # Of each layer: what a call takes besides the tokens' own arrays.
        self._arrays: list[dict[str, Any]] = []
        for index, layer in enumerate(weights.layers):
            arrays = {
                "q_gamma": layer.q_norm,
                "k_gamma": layer.k_norm,
                "cos": tables[config.rope_base(index)],
                **self._plan.zeros(),  # caches, and q_out, which every call replaces
            }
            if kind.is_calibrated and scales is not None:
                for part, of_part in zip("kv", scales[index], strict=True):
                    arrays[f"{part}_scale"] = of_part.scale
                    if of_part.offset is not None:
                        arrays[f"{part}_offset"] = of_part.offset
            self._arrays.append(arrays)

    def append(self, layer: int, qkv_rows: Floats, positions: Ints, sequence: int = 0) -> Floats:
        """Of `PrologueAndCache`."""
        block = self._pages[sequence, positions // BLOCK_SIZE]
        shape = (len(positions), self._config.heads, self._config.head_dim)
        q: Floats = np.empty(shape, np.float32)
        arrays: dict[str, Any] = {
            **self._arrays[layer],
            "x": qkv_rows,
            "positions": positions,
            "slots": block * BLOCK_SIZE + positions % BLOCK_SIZE,
            "q_out": q,
        }
        self._plan.run(**arrays)
        self._rows[layer, sequence] = positions[-1] + 1
        return q

    def read(self, layer: int, sequence: int = 0) -> tuple[Floats, Floats]:
        """Of `PrologueAndCache`."""
        return self._read("k", layer, sequence), self._read("v", layer, sequence)

    def _read(self, part: str, layer: int, sequence: int) -> Floats:
        arrays = self._arrays[layer]
        view = qkvfuse.CacheView(
            self._cache,
            arrays[f"{part}_cache"],
            self._config.kv_heads,
            self._config.head_dim,
            scale=arrays.get(f"{part}_scale"),
            offset=arrays.get(f"{part}_offset"),
            scale_cache=arrays.get(f"{part}_scale_cache"),
        )
        lengths = self._rows[layer, sequence : sequence + 1]
        rows: Floats = qkvfuse.read_cache(
            view, self._pages[sequence : sequence + 1], lengths=lengths
        )
        return rows
