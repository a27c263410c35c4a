"""Times several calls against each other: turns that alternate in one process, so that whatever
else the machine does meets all of them alike."""
from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable

import numpy as np

MAX_ROUNDS = 31
MIN_ROUNDS = 5
SETTLE_SECONDS = 0.002  # untimed calls before each turn: caches, and threads of the other side
LONG_SECONDS = 0.02  # calls from here on need no second look to plan with


@dataclasses.dataclass(frozen=True)
class Side:
    """A call to time, and what to do when its turn is over."""
    run: Callable[[], None]
    rest: Callable[[], None]


@dataclasses.dataclass(frozen=True)
class Spread:
    """Median and the 10th and 90th percentile."""
    median: float
    p10: float
    p90: float

    @staticmethod
    def of(values: np.ndarray) -> Spread:
        """Of one value a round."""
        p10, median, p90 = np.percentile(values, [10, 50, 90])
        return Spread(float(median), float(p10), float(p90))


def _seconds_of(run: Callable[[], None], calls: int) -> float:
    """Seconds of one call, averaged over `calls` calls in a row."""
    start = time.perf_counter_ns()
    for _ in range(calls):
        run()
    return (time.perf_counter_ns() - start) * 1e-9 / calls


def _settle(run: Callable[[], None]) -> None:
    """Calls for SETTLE_SECONDS, at least once."""
    end = time.perf_counter() + SETTLE_SECONDS
    run()
    while time.perf_counter() < end:
        run()


def _typical_seconds(side: Side) -> float:
    """Seconds of one call, to plan with."""
    _settle(side.run)
    seconds = _seconds_of(side.run, 1)
    if seconds < LONG_SECONDS:
        seconds = min(seconds, *(_seconds_of(side.run, 1) for _ in range(4)))
    side.rest()
    return seconds


def alternate(sides: list[Side], seconds: float) -> np.ndarray:
    """Seconds of one call, [sides, rounds]. All sides together are timed for about `seconds`, more
    when calls are so long that MIN_ROUNDS need it."""
    typical = [_typical_seconds(side) for side in sides]
    rounds = int(np.clip(seconds / sum(typical), MIN_ROUNDS, MAX_ROUNDS))
    turn = seconds / rounds / len(sides)
    calls = [max(1, int(turn / one)) for one in typical]
    times = np.empty((len(sides), rounds))
    for number in range(rounds):
        for index, side in enumerate(sides):
            _settle(side.run)
            times[index, number] = _seconds_of(side.run, calls[index])
            side.rest()
    return times
