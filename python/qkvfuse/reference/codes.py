"""Codes of the 8-bit types: values to codes and back (docs/numerics.md, sections 5 to 7)."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._words import DType, ScaleRule
from .arithmetic import Array, bits_of, narrow, widen

# The largest value of each type: codes saturate there, and a dynamic scale maps a head's largest
# value to it.
LARGEST: dict[DType, int] = {
    DType.INT8: 127,
    DType.FLOAT8_E4M3FN: 448,
    DType.FLOAT8_E5M2: 57344,
}


def quantise(
    values: Array, dtype: DType, rule: ScaleRule, scale: Array, offset: Array | None
) -> Array:
    """The codes, uint8, of float32 `values`.

    Args:
        values: [tokens, heads, head_dim].
        dtype: int8, float8_e4m3fn or float8_e5m2.
        rule: whether `scale` divides or multiplies.
        scale, offset: float32 that broadcast to `values`.
    """
    z = values * scale if rule is ScaleRule.MULTIPLY else values / scale
    if offset is not None:
        z = z + offset
    if dtype is DType.INT8:
        whole = np.rint(np.clip(np.where(np.isnan(z), np.float32(0), z), -128, 127))
        codes = bits_of(whole.astype(np.int8))
    else:
        codes = narrow(np.clip(z, -LARGEST[dtype], LARGEST[dtype]), dtype)
    if rule is ScaleRule.DYNAMIC:
        codes = np.where(scale == 0, np.uint8(0), codes)
    return codes


def dynamic_scales(values: Array, dtype: DType) -> Array:
    """One scale for each token and head, float32 [tokens, heads] of values [tokens, heads, dim]."""
    magnitude = np.abs(values)
    largest = np.where(np.isnan(values), np.float32(0), magnitude).max(axis=-1)
    return np.asarray(largest / np.float32(LARGEST[dtype]))


def values_of_codes(
    codes: Array, rule: ScaleRule, scale: Array, offset: Array | None = None
) -> Array:
    """The float32 values of int8 or fp8 codes, [tokens, heads, head_dim]; the others broadcast."""
    value: Any = widen(codes, np.dtype(np.float32))
    if offset is not None:
        value = value - offset
    return np.asarray(value / scale if rule is ScaleRule.MULTIPLY else value * scale)
