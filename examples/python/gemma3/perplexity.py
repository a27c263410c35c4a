"""Perplexity and KL divergence of each kind of cache: `python -m gemma3.perplexity`.

Windows of one book are read by the model once for each kind of cache; nothing but the cache
differs. KL is that of the next-token distributions from those of the bfloat16 cache. Scales of the
static kinds come from another book. The model has one kv head, for which a scale per head is a
scale per tensor: of the kinds of these names only the latter is run by default.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from .cache_kinds import BASELINE, KINDS
from .engines import ENGINES, collect_rows, make_prologue, scales_of
from .model import Gemma3
from .text import CALIBRATION, EVALUATION, passage
from .tokenizer import Tokenizer
from .weights import Floats, GgufFile, find_gguf

Ints = NDArray[np.int64]
Doubles = NDArray[np.float64]
_ROWS_PER_CHUNK = 64  # of logits, 262,144 each


METHODS = ("minmax", "percentile", "mse")


@dataclass(frozen=True)
class Result:
    """What one kind of cache does to the model."""

    kind: str
    bytes_per_token: int
    perplexity: float
    perplexity_increase_percent: float
    kl_divergence: float  # mean over tokens, nats
    same_top_token_percent: float
    seconds: float


def windows_of(tokenizer: Tokenizer, text: str, count: int, length: int) -> list[Ints]:
    """The first `count` windows of `length` tokens, each with <bos> for its first."""
    ids = tokenizer.encode(text, add_bos=False)[: count * (length - 1)]
    if len(ids) < count * (length - 1):
        raise ValueError(f"text: has {len(ids)} tokens, must be {count * (length - 1)}")
    pieces = ids.reshape(count, length - 1)
    return [np.concatenate([np.array([tokenizer.bos]), piece]) for piece in pieces]


def log_sum_exp(logits: Floats) -> tuple[Floats, Doubles]:
    """exp(logits - the row's largest), and log(sum(exp(logits))) of each row."""
    largest = logits.max(axis=1, keepdims=True)
    exps = np.exp(logits - largest)
    return exps, np.log(exps.sum(axis=1, dtype=np.float64)) + largest[:, 0]


def losses(logits: Floats, targets: Ints) -> Doubles:
    """-log p of the target of each row."""
    _, normaliser = log_sum_exp(logits)
    return normaliser - logits[np.arange(len(targets)), targets]


@dataclass
class _Sums:
    loss: float = 0.0
    divergence: float = 0.0
    same_top: int = 0


def compare_hidden(
    model: Gemma3, hidden: dict[str, list[Floats]], windows: Sequence[Ints]
) -> dict[str, _Sums]:
    """Sums over all predicted tokens, for the final rows of each kind of cache."""
    sums = {kind: _Sums() for kind in hidden}
    chunks = [
        (index, start)
        for index, window in enumerate(windows)
        for start in range(0, len(window) - 1, _ROWS_PER_CHUNK)
    ]
    for index, start in tqdm(chunks, desc="logits", leave=False):
        rows = slice(start, min(start + _ROWS_PER_CHUNK, len(windows[index]) - 1))
        targets = windows[index][1:][rows]
        base = model.logits(hidden[BASELINE.name][index][rows])
        exps, base_normaliser = log_sum_exp(base)
        for kind, parts in hidden.items():
            logits = base if kind == BASELINE.name else model.logits(parts[index][rows])
            _, normaliser = log_sum_exp(logits)
            of_targets = normaliser - logits[np.arange(len(targets)), targets]
            # KL = sum p (log p - log p'): differences of logits, less that of the normalisers.
            expected = np.einsum("rv,rv->r", exps, base - logits) / exps.sum(
                axis=1, dtype=np.float64
            )
            divergence = expected - (base_normaliser - normaliser)
            sums[kind].loss += float(of_targets.sum())
            sums[kind].divergence += float(divergence.sum())
            sums[kind].same_top += int((logits.argmax(axis=1) == base.argmax(axis=1)).sum())
    return sums


def evaluate(
    model: Gemma3,
    engine: str,
    kinds: Sequence[str],
    windows: Sequence[Ints],
    calibration: Sequence[Ints],
    method: str,
) -> list[Result]:
    """A result for each kind; the baseline is always the first."""
    kinds = [BASELINE.name, *(kind for kind in kinds if kind != BASELINE.name)]
    rows = collect_rows(model, engine, calibration)
    hidden: dict[str, list[Floats]] = {}
    seconds: dict[str, float] = {}
    for name in tqdm(kinds, desc="kinds of cache"):
        start = time.perf_counter()
        scales = scales_of(KINDS[name], rows, method)
        hidden[name] = []
        for window in windows:
            cache = make_prologue(engine, model, len(window), KINDS[name], scales)
            hidden[name].append(model.forward(window, 0, cache))
        seconds[name] = time.perf_counter() - start
    sums = compare_hidden(model, hidden, windows)
    predicted = sum(len(window) - 1 for window in windows)
    base = float(np.exp(sums[BASELINE.name].loss / predicted))
    sizes = (model.config.layers, model.config.kv_heads, model.config.head_dim)
    results = []
    for name in kinds:
        perplexity = float(np.exp(sums[name].loss / predicted))
        results.append(
            Result(
                kind=name,
                bytes_per_token=KINDS[name].bytes_per_token(*sizes),
                perplexity=perplexity,
                perplexity_increase_percent=100 * (perplexity / base - 1),
                kl_divergence=sums[name].divergence / predicted,
                same_top_token_percent=100 * sums[name].same_top / predicted,
                seconds=round(seconds[name], 1),
            )
        )
    return results


def check(results: Sequence[Result]) -> None:
    """Holds what any evaluation of this model shows: more scales, less divergence.

    Raises:
        AssertionError: a kind of cache is not where it has to be.
    """
    divergence = {result.kind: result.kl_divergence for result in results}
    order = ["float32", "int8 channel symmetric", "int8 dynamic", "int8 tensor symmetric"]
    found = [divergence[kind] for kind in order if kind in divergence]
    if found != sorted(found) or any(value > 0.2 for value in divergence.values()):
        raise AssertionError(
            f"KL divergences are {divergence}, must rise from {' to '.join(order)}"
        )


def _default_kinds() -> list[str]:
    return [kind.name for kind in KINDS.values() if " head " not in kind.name]


def main() -> None:
    """Of the command line."""
    parser = argparse.ArgumentParser(prog="python -m gemma3.perplexity", description=__doc__)
    parser.add_argument("--engine", choices=ENGINES, default=ENGINES[0])
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=_default_kinds())
    parser.add_argument("--windows", type=int, default=4)
    parser.add_argument("--length", type=int, default=1024, help="tokens of a window")
    parser.add_argument("--calibration-windows", type=int, default=8)
    parser.add_argument("--method", choices=METHODS, default=METHODS[0], help="of calibration")
    parser.add_argument("--json", type=Path, default=Path("results.json"))
    parser.add_argument("--plot", type=Path, help="an SVG file")
    options = parser.parse_args()

    file = GgufFile(find_gguf())
    tokenizer = Tokenizer(file)
    model = Gemma3.load(file)
    windows = windows_of(tokenizer, passage(EVALUATION), options.windows, options.length)
    calibration = windows_of(
        tokenizer, passage(CALIBRATION), options.calibration_windows, options.length
    )
    results = evaluate(model, options.engine, options.kinds, windows, calibration, options.method)
    for result in results:
        print(
            f"{result.kind:25} {result.bytes_per_token:6} B/token  ppl {result.perplexity:8.4f}"
            f" ({result.perplexity_increase_percent:+8.4f}%)  KL {result.kl_divergence:.3e}"
            f"  same top token {result.same_top_token_percent:.2f}%  {result.seconds} s"
        )
    check(results)
    report = {
        "model": file.path.name,
        "engine": options.engine,
        "evaluation": EVALUATION,
        "calibration": CALIBRATION,
        "method": options.method,
        "windows": options.windows,
        "tokens_per_window": options.length,
        "calibration_tokens": sum(map(len, calibration)),
        "results": [asdict(result) for result in results],
    }
    options.json.write_text(json.dumps(report, indent=2) + "\n")
    if options.plot is not None:
        from .plot import plot

        plot(report, options.plot)


if __name__ == "__main__":
    main()
