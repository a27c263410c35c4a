"""Exact arithmetic that expectations are made of: rational numbers, rounded by definition."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np

F32 = np.dtype(np.float32)
BF16 = np.dtype(ml_dtypes.bfloat16)


def f32(*values: Any) -> Any:
    return np.array(values, np.float32)


def rounded(exact: Fraction) -> np.float32:
    """The float32 nearest to a rational, ties to even; its own definition, in integers."""
    if exact == 0:
        return np.float32(0)
    exponent = math.floor(math.log2(abs(exact.numerator)) - math.log2(exact.denominator))
    while abs(exact) >= Fraction(2) ** (exponent + 1):
        exponent += 1
    while abs(exact) < Fraction(2) ** exponent:
        exponent -= 1
    step = Fraction(2) ** (max(exponent, -126) - 23)
    value = round(exact / step) * step  # round() of a Fraction: nearest, ties to even
    return np.float32(math.copysign(math.inf, value) if abs(value) >= 2**128 else float(value))


def exact_fma(a: Any, b: Any, c: Any) -> np.float32:
    return rounded(Fraction(float(a)) * Fraction(float(b)) + Fraction(float(c)))


def same_values(actual: Any, expected: Any) -> bool:
    return bool(np.array_equal(actual, expected, equal_nan=True))
