"""Makes a `PrologueAndCache` by name, and scales for the kinds of cache that need them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from qkvfuse import calibrate

from .cache_kinds import FLOAT32, CacheKind
from .model import Gemma3
from .prologue import LayerScales, NumpyPrologue, PrologueAndCache
from .prologue_qkvfuse import QkvfusePrologue
from .weights import Floats

ENGINES = ("qkvfuse", "numpy")
LayerRows = list[tuple[Floats, Floats]]  # k and v of each layer, [rows, kv_heads, head_dim]


def make_prologue(
    engine: str,
    model: Gemma3,
    capacity: int,
    kind: CacheKind = FLOAT32,
    scales: LayerScales | None = None,
) -> PrologueAndCache:
    """The prologue and an empty cache of one sequence of `capacity` rows."""
    if engine == "numpy":
        return NumpyPrologue(model.config, model.weights, capacity, 1, kind, scales)
    return QkvfusePrologue(model.config, model.weights, capacity, 1, kind, scales)


def collect_rows(model: Gemma3, engine: str, windows: Sequence[NDArray[np.int64]]) -> LayerRows:
    """k and v of every layer over windows of tokens, as a float32 cache holds them."""
    parts: list[list[tuple[Floats, Floats]]] = []
    for window in tqdm(windows, desc="calibration windows", leave=False):
        cache = make_prologue(engine, model, len(window))
        model.forward(window, 0, cache)
        parts.append([cache.read(layer) for layer in range(model.config.layers)])
    return [
        (np.concatenate([k for k, _ in layer]), np.concatenate([v for _, v in layer]))
        for layer in zip(*parts, strict=True)
    ]


def scales_of(kind: CacheKind, rows: LayerRows, method: str) -> LayerScales | None:
    """Calibrated scales of each layer's k and v; None for kinds that need none."""
    if not kind.is_calibrated:
        return None
    options: dict[str, Any] = {
        "dtype": kind.dtype,
        "granularity": kind.granularity,
        "method": method,
        "symmetric": not kind.has_offset,
    }
    return {
        layer: (calibrate(k, **options), calibrate(v, **options))
        for layer, (k, v) in enumerate(rows)
    }
