"""Random calls of the library, held against `qkvfuse.reference` byte by byte.

`main` is `python -m qkvfuse verify`. A case is made of its seed alone:

    case = random_case(numpy.random.default_rng(seed))
    elements, differences = check(case, run_library)

Cases cover all that a Spec can say: types, norms, rotations, tables, scales, layouts, addressing,
strides, and data with NaN, infinities and subnormals.
"""

from __future__ import annotations

import itertools
import sys
import time
from typing import Any

import numpy as np

from .cases import Case, random_case
from .compare import RunLibrary, check

__all__ = ["Case", "RunLibrary", "check", "main", "random_case"]

_SECONDS_BETWEEN_REPORTS = 5.0
_MOST_SENTENCES = 10


def main(
    seed: int = 0,
    count: int | None = None,
    run_library: RunLibrary | None = None,
    *,
    seconds: float | None = None,
) -> int:
    """Checks `count` cases, those of the seeds from `seed` on, and prints what differs.

    Args:
        count: None: 1000, or as many as `seconds` has time for.
        run_library: what to check; None: `qkvfuse.Plan`.
        seconds: no case begins later than that; None: they take the time they need.

    Returns:
        0; 1 where a case differs, or is refused.
    """
    run_library = run_library or _run_plan
    if count is None and seconds is None:
        count = 1000
    elements = differing = done = 0
    started = reported = time.monotonic()
    for index in itertools.count() if count is None else range(count):
        if seconds is not None and time.monotonic() - started > seconds:
            break
        done += 1
        case = random_case(np.random.default_rng(seed + index))
        sentences: list[str]
        try:
            size, sentences = check(case, run_library)
            elements += size
        except (ValueError, TypeError, RuntimeError) as error:
            sentences = [f"refused: {error}"]
        if sentences:
            differing += 1
            if differing <= _MOST_SENTENCES:
                print(f"--seed {seed + index} --count 1: {'; '.join(sentences)}\n  {case}")
        if time.monotonic() - reported > _SECONDS_BETWEEN_REPORTS:
            reported = time.monotonic()
            print(f"{done} cases, {differing} differ", file=sys.stderr)
    print(f"{done} cases, {elements} elements, {differing} differ")
    return 1 if differing else 0


def _run_plan(
    spec: Any, tokens: int | tuple[int, int], arrays: dict[str, Any], is_measured: bool
) -> None:
    import qkvfuse

    plan = qkvfuse.Plan(spec, strict=False)
    (plan.measure() if is_measured else plan).run(tokens=tokens, **arrays)
