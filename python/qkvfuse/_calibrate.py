"""Static scales and offsets of 8-bit caches, from keys or values of real tokens.

`calibrate` takes the values at once, `Calibrator` in pieces. What they return is what a `Cache`
with `scale_rule="divide"` takes: code = round(y / scale + offset), clamped to [-128, 127], read
back as (code - offset) * scale; of the fp8 types code = y / scale, rounded and clamped to the
largest.

What decides is the range of y that keeps its value; what lies outside is clamped:

    minmax      all values seen.
    percentile  symmetric: up to that percentile of |y|; otherwise as many percent lie inside, and
                of the rest half below and half above.
    mse         of the range of minmax and smaller ones, the one with the least squared error.

The range becomes a scale, in fp64 and rounded to fp32 at the end:

    symmetric   scale = amax / largest, largest = 127, 448 (e4m3) or 57344 (e5m2).
    asymmetric  scale = (high - low) / 255, but at least max(|low|, |high|) / 65536, so that
                y / scale keeps bits below the code in fp32;
                offset = round(-0.5 - (low + high) / (2 * scale)).

An offset is a whole number: no value inside the range is off by more than scale / 2, and a zero
inside it is read back as 0. A scale is never 0: where it would be, as of channels that were always
0, it is 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ._arrays import is_torch
from ._spec import DTypeLike
from ._words import DType, Granularity

_Floats = NDArray[np.float32]
_Doubles = NDArray[np.float64]

_LARGEST = {"int8": 127.0, "float8_e4m3fn": 448.0, "float8_e5m2": 57344.0}
_MANTISSA_BITS = {"float8_e4m3fn": 3, "float8_e5m2": 2}
_SMALLEST_NORMAL_EXPONENT = {"float8_e4m3fn": -6, "float8_e5m2": -14}
_FLOAT_TYPES = ("float16", "bfloat16", "float32", "float64")
_SHRINKS = np.linspace(1.0, 0.2, 41)  # of the range of minmax, tried by "mse"


@dataclass(frozen=True)
class Calibration:
    """Scale and offset of a cache, or of a dense q_out.

    Attributes:
        scale: float32, [1] ("tensor"), [heads] ("head") or [heads, head_dim] ("channel"), above 0.
        offset: float32 whole numbers of the same shape; None: symmetric.
    """

    scale: _Floats
    offset: _Floats | None


class Calibrator:
    """Collects values in pieces and calibrates over all of them.

    Minima and maxima are those of all values. "percentile" and "mse" look at up to `sample_rows`
    rows, drawn evenly from all that were observed; with fewer rows they see every value, and the
    result is that of `calibrate` on all rows at once. The draw is the same in every process.

    Args:
        dtype: of the codes: "int8", "float8_e4m3fn" or "float8_e5m2".
        granularity: what shares a scale: "channel", "head" or "tensor".
        method: "minmax", "percentile" or "mse".
        symmetric: without an offset. The fp8 types have none.
        percentile: of "percentile": how many percent of the values lie inside the range.
        sample_rows: rows that are kept for "percentile" and "mse".

    Raises:
        TypeError: an argument is of another type.
        ValueError: an argument is none of the allowed; fp8 that is not symmetric.
    """

    def __init__(
        self,
        *,
        dtype: Any = "int8",
        granularity: str = "channel",
        method: str = "minmax",
        symmetric: bool = True,
        percentile: float = 99.9,
        sample_rows: int = 8192,
    ) -> None:
        self._dtype = _code_dtype(dtype)
        self._granularity = str(Granularity.of(granularity, "granularity"))
        self._method = _word(method, ("minmax", "percentile", "mse"), "method")
        if not isinstance(symmetric, bool):
            raise TypeError(f"symmetric: is {symmetric!r}, must be True or False")
        if not isinstance(percentile, (int, float)) or isinstance(percentile, bool):
            raise TypeError(f"percentile: is {percentile!r}, must be a number")
        if not isinstance(sample_rows, int) or isinstance(sample_rows, bool):
            raise TypeError(f"sample_rows: is {sample_rows!r}, must be an integer")
        if not symmetric and self._dtype != "int8":
            raise ValueError(f"symmetric: is False, must be True for {self._dtype}")
        if not 0 < percentile <= 100:
            raise ValueError(f"percentile: is {percentile}, must be above 0 and at most 100")
        if sample_rows < 1:
            raise ValueError(f"sample_rows: is {sample_rows}, must be at least 1")
        self._symmetric, self._percentile = bool(symmetric), float(percentile)
        self._sample_rows = int(sample_rows)
        self._random = np.random.default_rng(0)
        self._rows = 0
        self._shape = (0, 0)  # heads, head_dim
        self._low = self._high = np.zeros((0, 0), np.float32)
        self._sample: list[_Floats] = []  # pieces until there are sample_rows rows, then one array

    def observe(self, values: Any) -> None:
        """Takes more rows into account.

        Args:
            values: [rows, heads, head_dim], float16, bfloat16, float32 or float64, of NumPy,
                ml_dtypes or PyTorch; used as float32. Later pieces have the heads and head_dim of
                the first.

        Raises:
            TypeError: the type is another.
            ValueError: the shape is another, or a value is NaN or infinite.
        """
        y = _as_float32(values)
        if self._rows > 0 and y.shape[1:] != self._shape:
            heads, head_dim = self._shape
            raise ValueError(
                f"values: shape is {list(y.shape)}, must be [rows, {heads}, {head_dim}], as before"
            )
        low, high = y.min(axis=0), y.max(axis=0)
        if self._rows > 0:
            low, high = np.minimum(low, self._low), np.maximum(high, self._high)
        if self._method != "minmax":
            self._draw(y)
        self._low, self._high = low, high
        self._shape = (y.shape[1], y.shape[2])
        self._rows += y.shape[0]

    def result(self) -> Calibration:
        """The calibration of all that was observed; more may be observed afterwards.

        Raises:
            ValueError: nothing was observed.
        """
        if self._rows == 0:
            raise ValueError("values: none were observed, must be at least one row")
        low = self._grouped(self._low[None]).min(axis=0).astype(np.float64)
        high = self._grouped(self._high[None]).max(axis=0).astype(np.float64)
        if self._method == "percentile":
            low, high = self._percentiles()
        elif self._method == "mse":
            low, high = self._least_error(low, high)
        scale, offset = self._from_range(low, high)
        shape = {"tensor": (1,), "head": self._shape[:1], "channel": self._shape}[self._granularity]
        return Calibration(scale.reshape(shape), None if offset is None else offset.reshape(shape))

    def _draw(self, y: _Floats) -> None:
        """Keeps each row seen so far with the same probability (reservoir sampling)."""
        missing = max(0, self._sample_rows - self._rows)
        if missing > 0:
            self._sample.append(y[:missing].copy())
        rest = y[missing:]
        if len(rest) == 0:
            return
        if len(self._sample) > 1:
            self._sample = [np.concatenate(self._sample)]
        seen = self._rows + missing + np.arange(len(rest))  # rows before each of the rest
        place = self._random.integers(0, seen + 1)
        kept = place < self._sample_rows
        self._sample[0][place[kept]] = rest[kept]  # of equal places the last row stays

    def _grouped(self, y: _Floats) -> _Floats:
        """[rows, heads, head_dim] as [values, groups], a column for all that shares a scale."""
        if self._granularity == "tensor":
            return y.reshape(-1, 1)
        if self._granularity == "head":
            return y.swapaxes(1, 2).reshape(-1, y.shape[1])
        return y.reshape(len(y), -1)

    def _percentiles(self) -> tuple[_Doubles, _Doubles]:
        sample = self._grouped(np.concatenate(self._sample))
        if self._symmetric:
            largest = np.percentile(np.abs(sample), self._percentile, axis=0).astype(np.float64)
            return -largest, largest
        tail = (100 - self._percentile) / 2
        low, high = np.percentile(sample, [tail, 100 - tail], axis=0).astype(np.float64)
        return low, high

    def _least_error(self, low: _Doubles, high: _Doubles) -> tuple[_Doubles, _Doubles]:
        """Shrinks the range of each group while the squared error over the sample falls."""
        sample = self._grouped(np.concatenate(self._sample))
        if self._symmetric:
            largest = np.maximum(-low, high)
            ranges = [(-shrink * largest, shrink * largest) for shrink in _SHRINKS]
            return self._best(sample, ranges)
        # Each end moves towards the mean: first the upper one, then the lower one.
        mean = sample.mean(axis=0, dtype=np.float64)
        low, high = self._best(sample, [(low, mean + s * (high - mean)) for s in _SHRINKS])
        return self._best(sample, [(mean + s * (low - mean), high) for s in _SHRINKS])

    def _best(
        self, sample: _Floats, ranges: list[tuple[_Doubles, _Doubles]]
    ) -> tuple[_Doubles, _Doubles]:
        """Of several ranges the one with the least error for each group; of equals the first."""
        errors = np.array([self._error(sample, *candidate) for candidate in ranges])
        best = errors.argmin(axis=0)[None]
        lows, highs = (np.array(ends) for ends in zip(*ranges, strict=True))
        return np.take_along_axis(lows, best, 0)[0], np.take_along_axis(highs, best, 0)[0]

    def _error(self, sample: _Floats, low: _Doubles, high: _Doubles) -> _Doubles:
        """Mean squared error of each group after writing and reading back."""
        scale, offset = self._from_range(low, high)
        z = sample / scale
        if offset is not None:
            z += offset
        z = _rounded(z, self._dtype)
        if offset is not None:
            z -= offset
        z *= scale
        z -= sample
        error: _Doubles = np.mean(np.square(z, dtype=np.float64), axis=0)
        return error

    def _from_range(self, low: _Doubles, high: _Doubles) -> tuple[_Floats, _Floats | None]:
        largest = np.maximum(np.abs(low), np.abs(high))
        if self._symmetric:
            return _never_zero(largest / _LARGEST[self._dtype]), None
        scale = _never_zero(np.maximum((high - low) / 255, largest / 65536))
        offset = np.rint(-0.5 - (low + high) / (2 * scale.astype(np.float64)))
        return scale, offset.astype(np.float32)


def calibrate(
    values: Any,
    *,
    dtype: Any = "int8",
    granularity: str = "channel",
    method: str = "minmax",
    symmetric: bool = True,
    percentile: float = 99.9,
) -> Calibration:
    """Scale and offset of an 8-bit cache whose rows look like `values`.

    Keys are calibrated as the cache holds them: normalised and rotated.

    Args:
        values: [rows, heads, head_dim], float16, bfloat16, float32 or float64, of NumPy, ml_dtypes
            or PyTorch; used as float32.
        dtype: of the codes: "int8", "float8_e4m3fn" or "float8_e5m2".
        granularity: what shares a scale: "channel", "head" or "tensor".
        method: what decides the range: "minmax", "percentile" or "mse".
        symmetric: without an offset. The fp8 types have none.
        percentile: of "percentile": how many percent of the values lie inside the range.

    Returns:
        `Calibration`: scale and, if not symmetric, offset, fp32: [1] ("tensor"), [heads] ("head")
        or [heads, head_dim] ("channel"). No scale is 0.

    Raises:
        TypeError: `values` has another type.
        ValueError: an argument is none of the allowed, fp8 is not symmetric, `values` has another
            shape, no row, or a value that is NaN or infinite.

    Example:
        >>> keys = np.array([[[127.0, -2.0]], [[-64.0, 4.0]]], np.float32)
        >>> calibrate(keys, granularity="tensor").scale
        array([1.], dtype=float32)
    """
    y = _as_float32(values)
    calibrator = Calibrator(
        dtype=dtype,
        granularity=granularity,
        method=method,
        symmetric=symmetric,
        percentile=percentile,
        sample_rows=len(y),
    )
    calibrator.observe(y)
    return calibrator.result()


def _code_dtype(value: DTypeLike) -> str:
    try:
        name = str(DType(value))
    except ValueError:
        name = ""
    if name not in _LARGEST:
        raise ValueError(f"dtype: is {value!r}, must be {_listed(tuple(_LARGEST))}")
    return name


def _word(value: str, allowed: tuple[str, ...], name: str) -> str:
    if value not in allowed:
        raise ValueError(f"{name}: is {value!r}, must be {_listed(allowed)}")
    return value


def _listed(words: tuple[str, ...]) -> str:
    return ", ".join(words[:-1]) + " or " + words[-1]


def _as_float32(values: Any) -> _Floats:
    """Values as a float32 array [rows, heads, head_dim] of finite numbers."""
    if isinstance(values, np.ma.MaskedArray):
        raise TypeError("values: is a masked array, must be an array without a mask")
    if is_torch(values):  # NumPy has no bfloat16 to take it as
        if not values.is_cpu:
            raise TypeError(f"values: lies on {values.device}, must be in CPU memory")
        values = values.detach().resolve_neg()
        values = values.float() if str(values.dtype) == "torch.bfloat16" else values
    array = np.asarray(values)
    if array.dtype.name not in _FLOAT_TYPES:
        raise TypeError(f"values: type is {array.dtype.name}, must be {_listed(_FLOAT_TYPES)}")
    if array.ndim != 3:
        raise ValueError(f"values: shape is {list(array.shape)}, must be [rows, heads, head_dim]")
    if array.size == 0:
        raise ValueError(f"values: shape is {list(array.shape)}, must be at least 1 everywhere")
    with np.errstate(over="ignore"):  # a float64 beyond float32 becomes infinite and is refused
        y = array.astype(np.float32)
    if not np.isfinite(y).all():
        raise ValueError("values: has a NaN or an infinity, must be finite in float32")
    return y


def _never_zero(scale: _Doubles) -> _Floats:
    rounded = scale.astype(np.float32)
    return np.where(rounded == 0, np.float32(1), rounded)


def _rounded(z: _Floats, dtype: str) -> _Floats:
    """The values of the codes of z."""
    if dtype == "int8":
        return np.rint(np.clip(z, -128, 127))
    bits = _MANTISSA_BITS[dtype]
    z = np.clip(z, -_LARGEST[dtype], _LARGEST[dtype])
    exponent = np.frexp(z)[1] - 1  # |z| = 1.f * 2^exponent
    step = np.maximum(exponent, _SMALLEST_NORMAL_EXPONENT[dtype]) - bits
    rounded: _Floats = np.ldexp(np.rint(np.ldexp(z, -step)), step)
    return rounded
