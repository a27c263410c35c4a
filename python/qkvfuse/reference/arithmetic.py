"""Rounding by rounding: widening, narrowing and the fused multiply-add of docs/numerics.md.

NumPy's own float32 operators + - * / and sqrt are correctly rounded and are used as they are. The
rest is written here from its definition and uses no library's conversion: small floats are taken
apart into exponent and mantissa, and a fused multiply-add is made of float64 operations that are
proven to give it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from .._words import DType

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Format:
    """A binary floating-point format of at most 16 bits: sign, exponent, mantissa.

    Attributes:
        exponent_bits, mantissa_bits: widths of the two fields.
        overflow: code, without sign, of what is too large: infinity, or the largest finite value of
            the types whose values are clamped before they are narrowed.
        nan: code that a NaN becomes.
        has_infinity: whether the largest exponent means infinity and NaN, as in IEEE-754;
            float8_e4m3fn keeps it for numbers and has a single NaN, all ones.
    """

    exponent_bits: int
    mantissa_bits: int
    overflow: int
    nan: int
    has_infinity: bool = True

    @property
    def bits(self) -> int:
        """Bits of a code."""
        return 1 + self.exponent_bits + self.mantissa_bits

    @property
    def bias(self) -> int:
        """The exponent field of 1.0."""
        return (1 << (self.exponent_bits - 1)) - 1


FORMATS: dict[DType, Format] = {
    DType.FLOAT16: Format(5, 10, overflow=0x7C00, nan=0x7E00),
    DType.BFLOAT16: Format(8, 7, overflow=0x7F80, nan=0x7FC0),
    DType.FLOAT8_E4M3FN: Format(4, 3, overflow=0x7E, nan=0x7F, has_infinity=False),
    DType.FLOAT8_E5M2: Format(5, 2, overflow=0x7B, nan=0x7F),
}


def numpy_dtype(dtype: DType) -> np.dtype[Any]:
    """The NumPy or ml_dtypes dtype of a `DType`."""
    return np.dtype(getattr(ml_dtypes, dtype.value, dtype.value))


def bits_of(array: Array) -> Array:
    """A view of `array` as unsigned integers, through which elements keep every bit."""
    return np.asarray(array.view(np.dtype(f"u{array.dtype.itemsize}")))


def widen(array: Array, dtype: np.dtype[Any]) -> Array:
    """Every element as `dtype`, float32 or float64: exact but for an int32, which is rounded once.

    Args:
        array: float32, float16, bfloat16, float8_e4m3fn, float8_e5m2, int8 or int32, any shape.
    """
    small = FORMATS.get(DType.of(array.dtype, "array"))
    if small is None:
        return array.astype(dtype)
    return np.asarray(_values_of(small)[bits_of(array)].astype(dtype))


@cache
def _values_of(small: Format) -> Array:
    """The value of every code of a format, float32 [2 ** bits]."""
    code = np.arange(1 << small.bits)
    magnitude = code & ((1 << (small.bits - 1)) - 1)
    field = magnitude >> small.mantissa_bits
    mantissa = magnitude & ((1 << small.mantissa_bits) - 1)
    # A subnormal has the exponent of the smallest normal number and no leading one.
    significand = np.where(field > 0, mantissa + (1 << small.mantissa_bits), mantissa)
    exponent = np.maximum(field, 1) - small.bias - small.mantissa_bits
    value = np.ldexp(significand.astype(np.float64), exponent)
    if small.has_infinity:
        is_top = field == (1 << small.exponent_bits) - 1
        value[is_top] = np.where(mantissa[is_top] == 0, np.inf, np.nan)
    else:
        value[magnitude == small.nan] = np.nan
    return np.asarray(np.where(code == magnitude, value, -value).astype(np.float32))


def narrow(values: Array, dtype: DType) -> Array:
    """The codes, unsigned integers, of float32 `values` rounded to nearest, ties to even.

    What is too large becomes infinity, of the 8-bit types the largest value. Subnormals and the
    sign of zero are kept. A NaN becomes the format's quiet NaN. float32 stays what it is.
    """
    if dtype is DType.FLOAT32:
        return bits_of(values)
    small = FORMATS[dtype]
    magnitude = np.abs(values).astype(np.float64)  # exact, and wide enough for all that follows
    magnitude = np.where(np.isfinite(magnitude), magnitude, 0.0)
    # The exponent field, at least 1: subnormals, and 0, are counted in the steps of the smallest
    # normal number. frexp's own exponent of 0 would be that of 0.5.
    exponent = np.where(magnitude > 0, np.frexp(magnitude)[1] - 1, -small.bias)
    field = np.maximum(exponent + small.bias, 1)
    steps = np.rint(np.ldexp(magnitude, small.bias + small.mantissa_bits - field))
    # `steps` holds the leading one, which adds itself to the field; so does a carry out of it.
    code = ((field - 1) << small.mantissa_bits) + steps.astype(np.int64)
    code = np.where(np.isinf(values), small.overflow, np.minimum(code, small.overflow))
    code |= np.signbit(values).astype(np.int64) << (small.bits - 1)
    codes = np.where(np.isnan(values), small.nan, code)
    return codes.astype(np.uint16 if small.bits == 16 else np.uint8)


def multiply_add(a: Array, b: Array, c: Array) -> Array:
    """a * b + c: of float32 operands rounded once (fused), of float64 ones rounded twice.

    NumPy has no fused multiply-add. The product of two float32 is exact in float64 (48 bits of 53).
    The float64 sum is not, and rounding it again to float32 would round twice; so its exact error
    is found and the sum is rounded to odd, which leaves the last rounding what it has to be.

    Source: Boldo, Melquiond: Emulation of FMA and correctly rounded sums: proved algorithms using
        rounding to odd. IEEE Transactions on Computers 57(4), 2008.
    """
    if a.dtype == np.float64:
        return np.asarray(a * b + c)
    product = a.astype(np.float64) * b.astype(np.float64)
    addend = c.astype(np.float64)
    total = np.asarray(product + addend)
    # Knuth's two-sum: total + error is the sum without any error. Nothing overflows or underflows
    # in float64, the operands being float32 and products of two of them.
    part = total - product
    error = (product - (total - part)) + (addend - part)
    bits = total.view(np.int64)
    is_odd = (bits & 1) == 1
    is_inexact = np.isfinite(total) & (error != 0)
    # Of the two float64 around the sum the odd one: `total` itself, or its neighbour beyond the
    # sum. Bits count magnitudes, so the neighbour away from 0 is one more, whatever the sign.
    towards = np.where((error > 0) == (total > 0), 1, -1)
    bits = np.where(is_inexact & ~is_odd, bits + towards, bits)
    return bits.view(np.float64).astype(np.float32)
