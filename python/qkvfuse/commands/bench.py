"""`python -m qkvfuse bench`: times of `Plan.run`, of the same work in NumPy, and of a copy."""

from __future__ import annotations

import json
import platform
import re
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

import qkvfuse
import qkvfuse.reference

from .._words import DType
from ..reference.arithmetic import bits_of, numpy_dtype, widen
from ..reference.codes import LARGEST
from . import CheckFailed, UsageError, refusals, specs
from .composition import Composition, shortened, without_outputs
from .explain import model_of
from .models import CONFIGS

Array = npt.NDArray[Any]

BLOCK_SIZE = 16
_CHECKED_TOKENS = 16
_FEWEST_ROUNDS = 3
_SECONDS_OF_A_TURN = 2e-3  # short calls are repeated for so long in their turn

EXPLANATION = f"""\
us per token  median time of Plan.run over the tokens; spread: slowest - fastest, over the median
GB/s          bytes that a call must move, each input and output once, over its time
roof          time of numpy.copyto of as many bytes (half read, half written, one thread) over it
numpy         time of the same work in whole-array NumPy operations over it
Ratios are medians over rounds, at least {_FEWEST_ROUNDS}, in which all take turns."""


@dataclass(frozen=True)
class Options:
    """What `bench` is asked for.

    Attributes:
        config: a model's config.json; None: `models.CONFIGS`.
        tokens: of the rows.
        caches: types of caches, as `specs.cache_of` has them.
        layout: of the caches.
        threads: of `Plan.run`.
        pattern: a regular expression that the names of rows must contain.
        seconds: of the rounds of a row.
        save: where the results go as JSON.
    """

    config: Path | None = None
    tokens: tuple[int, ...] = (1, 64, 2048)
    caches: tuple[str, ...] = ("16bit", "int8+head")
    layout: str = "paged_nhd"
    threads: int = 1
    pattern: str = ""
    seconds: float = 0.3
    save: Path | None = None


class Row(NamedTuple):
    """One measurement to make."""

    name: str
    spec: qkvfuse.Spec
    tokens: int


Series = dict[str, list[float]]  # seconds of each round by contender: fused, copy, numpy


def bench(options: Options) -> None:
    """Checks, times and prints the rows; the table follows row by row.

    Raises:
        UsageError: a model, a cache, the pattern or the file is refused.
        CheckFailed: what would be timed computes something else than it should.
    """
    if min(options.tokens) < 1:
        raise UsageError(f"--tokens: has {min(options.tokens)}, must be at least 1")
    rows = list(_rows(options))
    if not rows:
        raise UsageError(f"--filter: {options.pattern!r} is in the name of no row")
    if options.save is not None and not options.save.parent.is_dir():
        raise UsageError(f"--save: there is no folder {options.save.parent}")
    width = max(len(row.name) for row in rows)
    print(f"qkvfuse {qkvfuse.__version__}, NumPy {np.__version__}, {platform.machine()}")
    print(f"{'row':{width}}  us per token  spread   GB/s   roof   numpy")
    results = []
    checked: set[str] = set()
    for row in rows:
        key = row.name.split("/T")[0]
        with refusals():
            if key not in checked:
                check(row.spec)
                checked.add(key)
            result = _measured(row, options)
        results.append(result)
        print(_line(result, width), flush=True)
    print(EXPLANATION)
    if options.save is not None:
        options.save.write_text(json.dumps(_report(results), indent=2) + "\n", encoding="utf-8")
        print(f"written: {options.save}")


def _rows(options: Options) -> Iterator[Row]:
    try:
        pattern = re.compile(options.pattern)
    except re.error as error:
        raise UsageError(f"--filter: {options.pattern!r} is no pattern: {error}") from error
    models: dict[str, qkvfuse.Model]
    if options.config is not None:
        models = {options.config.parent.name or "model": model_of(options.config, None)}
    else:
        models = {name: qkvfuse.spec_from_config(config) for name, config in CONFIGS.items()}
    for name, model in models.items():
        for cache in options.caches:
            for tokens in options.tokens:
                full = f"{name}/{cache}/{options.layout}/T{tokens}/hot/{options.threads}t"
                if pattern.search(full):
                    blocks = -(-max(tokens, _CHECKED_TOKENS) // BLOCK_SIZE)
                    spec = shortened(model.spec, max(tokens, _CHECKED_TOKENS))
                    spec = specs.with_caches(spec, cache, options.layout, blocks, BLOCK_SIZE)
                    yield Row(full, spec, tokens)


def arrays_of(spec: qkvfuse.Spec, tokens: int, seed: int = 0) -> dict[str, Any]:
    """Arrays of a call: random numbers, consecutive slots, outputs full of zeros."""
    rng = np.random.default_rng(seed)
    arrays: dict[str, Any] = {}
    for name, operand in qkvfuse.Plan(spec).operands(tokens).items():
        shape, dtype = operand.shape, numpy_dtype(operand.dtype)
        if operand.is_output:
            arrays[name] = np.zeros(shape, dtype)
        elif name in ("slots", "positions"):
            arrays[name] = np.broadcast_to(np.arange(tokens, dtype=dtype), shape).copy()
        elif name in ("cos", "sin"):
            angles = rng.uniform(0, 2 * np.pi, (shape[0], shape[1] // 2))
            arrays[name] = np.concatenate([np.cos(angles), np.sin(angles)], axis=1).astype(dtype)
        elif name.endswith("_scale"):
            arrays[name] = rng.uniform(0.02, 0.04, shape).astype(dtype)
        else:
            arrays[name] = rng.standard_normal(shape, np.float32).astype(dtype)
    return arrays


def check(spec: qkvfuse.Spec) -> None:
    """Compares, over a few tokens, the plan with `qkvfuse.reference` and with the NumPy passes.

    Raises:
        CheckFailed: the plan differs by a bit, or the NumPy passes by more than their roundings.
    """
    plan = qkvfuse.Plan(spec)
    arrays, operands = arrays_of(spec, _CHECKED_TOKENS), plan.operands(_CHECKED_TOKENS)
    plan.run(**arrays)
    expected = without_outputs(arrays, operands)
    qkvfuse.reference.run(spec, **expected)
    passes = without_outputs(arrays, operands)
    composition = _composition(spec, passes)
    for name, operand in operands.items():
        if not operand.is_output:
            continue
        if not np.array_equal(bits_of(arrays[name]), bits_of(expected[name])):
            raise CheckFailed(f"{name}: differs from qkvfuse.reference")
        if composition is not None and _is_far(passes[name], arrays[name], operand.dtype):
            raise CheckFailed(f"{name}: the NumPy passes differ from it by more than roundings")


def _composition(spec: qkvfuse.Spec, arrays: dict[str, Any]) -> Composition | None:
    """The NumPy passes, after a first run; None where the Spec has none."""
    try:
        composition = Composition(spec, arrays)
    except ValueError:
        return None
    composition.run()
    return composition


def _is_far(array: Array, expected: Array, dtype: DType) -> bool:
    """Whether more than the last digit of the type differs."""
    real = np.dtype(np.float64)
    got, want = widen(array, real), widen(expected, real)
    if dtype is DType.INT8:
        return bool(np.abs(got - want).max() > 1)
    steps = 2.0 ** -(3 if dtype in LARGEST else 7)
    return bool((np.abs(got - want) > 2 * steps * np.abs(want) + 1e-2 * steps).any())


def _measured(row: Row, options: Options) -> dict[str, Any]:
    plan = qkvfuse.Plan(row.spec)
    arrays = arrays_of(row.spec, row.tokens)
    traffic = plan.traffic(row.tokens)
    total = traffic.read_bytes + traffic.write_bytes
    source = np.ones(total // 2, np.uint8)
    target = np.zeros_like(source)
    composition = _composition(row.spec, without_outputs(arrays, plan.operands(row.tokens)))
    calls: dict[str, Callable[[], None]] = {
        "fused": lambda: plan.run(threads=options.threads, **arrays),
        "copy": lambda: np.copyto(target, source),
    }
    if composition is not None:
        calls["numpy"] = composition.run
    times = alternate(calls, options.seconds)
    fused = statistics.median(times["fused"])
    result = {
        "name": row.name,
        "regime": "hot",
        "tokens": row.tokens,
        "threads": options.threads,
        "rounds": len(times["fused"]),
        "read_bytes": traffic.read_bytes,
        "write_bytes": traffic.write_bytes,
        "us_per_token": fused * 1e6 / row.tokens,
        "gb_per_s": total * 1e-9 / fused,
        "roof_gb_per_s": total * 1e-9 / statistics.median(times["copy"]),
        "fused_us": _spread(times["fused"], 1e6),
        "memcpy_us": _spread(times["copy"], 1e6),
        "share_of_roof": _ratio(times["copy"], times["fused"]),
    }
    if composition is not None:
        result["numpy_us"] = _spread(times["numpy"], 1e6)
        result["numpy_over_fused"] = _ratio(times["numpy"], times["fused"])
    return result


def alternate(calls: dict[str, Callable[[], None]], seconds: float) -> Series:
    """Seconds of each call, round after round in turn; a first round is not counted.

    Short calls are repeated within a round. There are at least three rounds.
    """
    repeats = {}
    for name, call in calls.items():
        call()
        started = time.perf_counter()
        call()
        once = max(time.perf_counter() - started, 1e-9)
        repeats[name] = max(1, int(_SECONDS_OF_A_TURN / once))
    times: Series = {name: [] for name in calls}
    end = time.perf_counter() + seconds
    while len(times["fused"]) < _FEWEST_ROUNDS or time.perf_counter() < end:
        for name, call in calls.items():
            started = time.perf_counter()
            for _ in range(repeats[name]):
                call()
            times[name].append((time.perf_counter() - started) / repeats[name])
    return times


def _spread(values: list[float], unit: float) -> dict[str, float]:
    return {
        "median": statistics.median(values) * unit,
        "min": min(values) * unit,
        "max": max(values) * unit,
    }


def _ratio(over: list[float], under: list[float]) -> dict[str, float]:
    """Of each round, so that what disturbs the machine disturbs both."""
    return _spread([a / b for a, b in zip(over, under, strict=True)], 1)


def _line(result: dict[str, Any], width: int) -> str:
    fused = result["fused_us"]
    spread = (fused["max"] - fused["min"]) / fused["median"]
    numpy = result.get("numpy_over_fused")
    ratio = f"{numpy['median']:7.1f}" if numpy else "      -"
    return (
        f"{result['name']:{width}}  {result['us_per_token']:12.3f}  {spread:5.0%}  "
        f"{result['gb_per_s']:5.1f}  {result['share_of_roof']['median']:5.0%} {ratio}"
    )


def _report(results: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "version": qkvfuse.__version__,
        "numpy": np.__version__,
        "cpu": _processor(),
        "target": qkvfuse.available_targets()[0],
        "rows": results,
    }


def _processor() -> str:
    """The processor's name, as far as the system tells it."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return platform.processor() or platform.machine()
    found = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return found[1] if found else platform.machine()
