"""Which scales an int8 cache needs when a few channels of the keys are larger than the rest.

Keys of many models have outlier channels. Here: Student-t numbers, and three channels of each head
that are ten to forty times the others and not centred. Each variant writes them to a cache with
Plan.run, reads them back with read_cache, and is judged by three errors: of the keys (root mean
square, relative), the largest one, and of attention scores, q.k / sqrt(head_dim), which is what the
model sees. Prints the table and draws it and the error by channel (needs matplotlib).
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import qkvfuse

TOKENS, HEADS, HEAD_DIM, OUTLIERS = 1024, 4, 128, (9, 40, 101)
Floats = npt.NDArray[np.float32]
GRANULARITIES = ("tensor", "head", "channel")


def make_keys(rng: np.random.Generator) -> Floats:
    keys = rng.standard_t(5, (TOKENS, HEADS, HEAD_DIM)).astype(np.float32)
    for channel, size in zip(OUTLIERS, (10, 20, 40)):
        keys[:, :, channel] = keys[:, :, channel] * size / 3 + size
    return keys


def through_cache(keys: Floats, dtype: str, granularity: str, is_symmetric: bool = True) -> Floats:
    """The keys as a cache gives them back; granularity "dynamic": a scale per token and head."""
    kind: dict[str, Any] = {"granularity": granularity}
    if granularity == "dynamic":
        kind = {"scale_rule": "dynamic"}
    cache = qkvfuse.Cache(dtype, "paged_nhd", TOKENS // 16, 16, has_offset=not is_symmetric, **kind)
    plan = qkvfuse.Plan(
        x_dtype="float32",
        heads=(1, HEADS, HEADS),
        head_dim=HEAD_DIM,
        is_separate=True,
        rope="none",
        k_cache=cache,
        v_cache=cache,
    )
    arrays = plan.zeros(TOKENS)
    scale = offset = None
    if granularity != "dynamic":
        made = qkvfuse.calibrate(keys, dtype=dtype, granularity=granularity, symmetric=is_symmetric)
        scale, offset = made.scale, made.offset
        arrays.update(k_scale=scale, v_scale=scale)
    if offset is not None:
        arrays.update(k_offset=offset, v_offset=offset)
    slots, q = np.arange(TOKENS), np.zeros((TOKENS, 1, HEAD_DIM), np.float32)
    plan.run(q=q, k=keys, v=keys, slots=slots, **arrays)
    view = qkvfuse.CacheView(
        cache,
        arrays["k_cache"],
        HEADS,
        HEAD_DIM,
        scale=scale,
        offset=offset,
        scale_cache=arrays.get("k_scale_cache"),
    )
    return np.asarray(qkvfuse.read_cache(view, slots))


def errors(keys: Floats, back: Floats, queries: Floats) -> tuple[float, float, float]:
    """Relative rms of the keys, largest error of a key, rms of attention scores."""
    difference = back - keys
    scores = np.einsum("qhd,thd->hqt", queries, difference) / np.sqrt(HEAD_DIM)
    relative = np.sqrt((difference**2).sum() / (keys**2).sum())
    return float(relative), float(np.abs(difference).max()), float(np.sqrt((scores**2).mean()))


def draw(
    table: dict[str, tuple[float, float, float]], channels: dict[str, Floats], folder: str
) -> None:
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    colours = ("#444b57", "#c2620a", "#15803d", "#9333a8")
    with rc_context({"svg.hashsalt": "study", "axes.spines.right": False}):
        figure = Figure(figsize=(12, 4.6), layout="constrained")
        bars, lines = figure.subplots(1, 2, width_ratios=(1, 1.25))
        drawn = bars.barh(list(table), [row[2] for row in table.values()], color="#1f5fa8")
        bars.bar_label(drawn, fmt="%.3f", padding=4)
        bars.invert_yaxis()
        bars.set_xlim(0, 1.15 * max(row[2] for row in table.values()))
        bars.set_xlabel("rms error of attention scores")
        for (name, error), colour in zip(channels.items(), colours):
            lines.plot(error, ".-", color=colour, label=name, linewidth=0.8)
        lines.set_yscale("log")
        lines.set_xlabel(f"channel of head 0 ({', '.join(map(str, OUTLIERS))} are large)")
        lines.set_ylabel("rms error of the keys")
        lines.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2, frameon=False)
        path = Path(folder) / "quantisation_study.svg"
        figure.savefig(path, metadata={"Date": None})
        print(f"written: {path}")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Errors of 8-bit caches.")
    parser.add_argument("--output", default=".", help="folder of the picture")
    folder = parser.parse_args(arguments).output
    rng = np.random.default_rng(3)
    keys, queries = make_keys(rng), rng.standard_normal((64, HEADS, HEAD_DIM), np.float32)
    variants: dict[str, tuple[Any, ...]] = {
        f"int8 {name}": ("int8", name) for name in GRANULARITIES
    }
    variants.update({f"int8 {name}, offset": ("int8", name, False) for name in GRANULARITIES})
    variants.update({f"{dtype} dynamic": (dtype, "dynamic") for dtype in ("int8", "fp8_e4m3")})
    back = {name: through_cache(keys, *how) for name, how in variants.items()}
    table = {name: errors(keys, values, queries) for name, values in back.items()}
    print(f"{'cache':22} keys, rms  largest  scores, rms")
    for name, (relative, largest, scores) in table.items():
        print(f"{name:22} {relative:9.3%}  {largest:7.3f}  {scores:11.4f}")
    shown = ("int8 tensor", "int8 head", "int8 channel", "int8 dynamic")
    by_channel = {name: np.sqrt(((back[name] - keys)[:, 0] ** 2).mean(axis=0)) for name in shown}
    draw(table, by_channel, folder)


if __name__ == "__main__":
    main()
