"""Random choices, all from one seeded generator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np

_T = TypeVar("_T")


class Draw:
    """Choices of a generator.

    Attributes:
        rng: the generator, for arrays of random numbers.
    """

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng

    def chance(self, probability: float) -> bool:
        """True that often."""
        return bool(self.rng.random() < probability)

    def between(self, least: int, most: int) -> int:
        """An integer from least to most."""
        return int(self.rng.integers(least, most + 1))

    def one_of(self, values: Sequence[_T]) -> _T:
        """One of the values."""
        return values[self.between(0, len(values) - 1)]

    def shuffled(self, values: Sequence[_T]) -> list[_T]:
        """The values in another order."""
        return [values[index] for index in self.rng.permutation(len(values))]
