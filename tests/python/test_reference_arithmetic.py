"""The arithmetic of the NumPy oracle: exact rational numbers, every code and every tie."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exact import F32, exact_fma, f32, same_values
from qkvfuse._words import DType, ScaleRule
from qkvfuse.reference import codes
from qkvfuse.reference.arithmetic import FORMATS, multiply_add, narrow, numpy_dtype, widen

SMALL = list(FORMATS)


def assert_fma(a: Any, b: Any, c: Any) -> None:
    with np.errstate(all="ignore"):
        actual = multiply_add(a, b, c)
    expected = np.array([exact_fma(*triple) for triple in zip(a, b, c, strict=True)], np.float32)
    assert actual.dtype == np.float32
    assert same_values(actual, expected)


def test_fma_of_numbers_of_every_size() -> None:
    rng = np.random.default_rng(1)
    numbers = np.ldexp(rng.uniform(-2, 2, (3, 4000)), rng.integers(-70, 63, (3, 4000)))
    a, b = numbers[:2].astype(np.float32)
    # An addend near the product, where the sum cancels or rounds, or anywhere.
    near = np.ldexp(numbers[0] * numbers[1], rng.integers(-30, 30, 4000))
    c = np.where(rng.random(4000) < 0.7, near, numbers[2])
    finite = np.abs(c) < 2.0**127
    assert_fma(a[finite], b[finite], c[finite].astype(np.float32))


def test_fma_where_two_roundings_differ_from_one() -> None:
    # c + half a unit in the last place of c, but for 2^-46 of it, which float64 cannot see.
    rng = np.random.default_rng(2)
    c = rng.uniform(1, 2, 2000).astype(np.float32)
    half = np.float32(2.0**-24) * rng.choice([-1, 1], 2000).astype(np.float32)
    delta = rng.integers(1, 50, 2000).astype(np.float32) * np.float32(2.0**-23)
    a, b = half * (1 + delta), 1 - delta
    naive = (a.astype(np.float64) * b + c).astype(np.float32)
    expected = np.array([exact_fma(*t) for t in zip(a, b, c, strict=True)], np.float32)
    assert np.count_nonzero(naive != expected) > 500  # the triples do what they are made for
    assert_fma(a, b, c)


def test_fma_at_subnormals_and_overflow() -> None:
    rng = np.random.default_rng(3)
    tiny = np.ldexp(rng.uniform(-2, 2, (2, 1000)), rng.integers(-80, -65, (2, 1000)))
    steps = rng.integers(-9, 9, 1000) * 2.0**-149
    a, b = tiny.astype(np.float32)
    assert_fma(a, b, steps.astype(np.float32))
    # Around the largest float32 plus half of its last place, where rounding begins to overflow.
    largest = np.finfo(np.float32).max
    a, b = np.full(3, 2.0**64, np.float32), f32(2.0**39 - 2.0**15, 2.0**39, 2.0**39 + 2.0**16)
    assert_fma(a, b, np.full(3, largest, np.float32))
    assert_fma(-a, b, np.full(3, -largest, np.float32))
    assert exact_fma(2.0**64, 2.0**39, largest) == np.inf


@settings(deadline=None, max_examples=300)
@given(*[st.floats(width=32, allow_nan=False, allow_infinity=False)] * 3)
def test_fma_of_any_numbers(a: float, b: float, c: float) -> None:
    assert_fma(f32(a), f32(b), f32(c))


@pytest.mark.parametrize(
    ("a", "b", "c", "text"),
    [
        (0.0, -1.0, -0.0, "-0.0"),
        (0.0, -1.0, 0.0, "0.0"),
        (1.0, 1.0, -1.0, "0.0"),
        (np.inf, 1.0, -np.inf, "nan"),
        (np.inf, 0.0, 1.0, "nan"),
        (np.inf, -1.0, 1.0, "-inf"),
        (2.0**127, 2.0, -np.inf, "-inf"),
        (-(2.0**-149), 2.0**-149, 0.0, "-0.0"),
        (1.0, np.nan, 1.0, "nan"),
    ],
)
def test_fma_of_zeros_and_infinities(a: float, b: float, c: float, text: str) -> None:
    with np.errstate(all="ignore"):
        assert str(multiply_add(f32(a), f32(b), f32(c))[0]) == text


def all_codes(dtype: DType) -> Any:
    bits = FORMATS[dtype].bits
    return np.arange(1 << bits, dtype=np.uint16 if bits == 16 else np.uint8)


@pytest.mark.parametrize("dtype", SMALL)
def test_every_code_widens_to_what_ml_dtypes_says(dtype: DType) -> None:
    numbers = all_codes(dtype).view(numpy_dtype(dtype))
    actual, expected = widen(numbers, F32), numbers.astype(np.float32)
    assert same_values(actual, expected)
    is_number = ~np.isnan(expected)
    assert np.array_equal(np.signbit(actual)[is_number], np.signbit(expected)[is_number])


@pytest.mark.parametrize("dtype", SMALL)
def test_rounding_around_every_tie(dtype: DType) -> None:
    """Between two neighbours: below the middle the lower, above it the upper, on it the even."""
    codes_ = all_codes(dtype)
    values = codes_.view(numpy_dtype(dtype)).astype(np.float32)
    lower = codes_[np.isfinite(values) & ~np.signbit(values)]
    lower = lower[np.isfinite(values[lower + 1])]
    below, above = values[lower].astype(np.float64), values[lower + 1].astype(np.float64)
    middle = ((below + above) / 2).astype(np.float32)
    assert np.array_equal(middle, (below + above) / 2)  # float32 has every tie of a small format
    expected = {
        -np.inf: lower,
        0.0: np.where(lower % 2 == 0, lower, lower + 1),
        np.inf: lower + 1,
    }
    sign = 1 << (FORMATS[dtype].bits - 1)
    for towards, code in expected.items():
        value = middle if towards == 0 else np.nextafter(middle, np.float32(towards))
        assert np.array_equal(narrow(value, dtype), code)
        assert np.array_equal(narrow(-value, dtype), code + sign)
    assert np.array_equal(narrow(values[lower], dtype), lower)


def test_overflow_and_nan_of_16_bits() -> None:
    inf, nan = np.inf, np.nan
    # Half a step beyond the largest value, 65504 and (2 - 2^-7) * 2^127, is a tie with infinity.
    fp16 = f32(65504, 65519.996, 65520, 1e30, inf, -65520, -inf, nan)
    expected = [0x7BFF, 0x7BFF, 0x7C00, 0x7C00, 0x7C00, 0xFC00, 0xFC00, 0x7E00]
    assert narrow(fp16, DType.FLOAT16).tolist() == expected
    largest = (2 - 2.0**-7) * 2.0**127
    tie = (2 - 2.0**-8) * 2.0**127
    bf16 = f32(largest, np.nextafter(np.float32(tie), np.float32(0)), tie, inf, -inf, nan)
    expected = [0x7F7F, 0x7F7F, 0x7F80, 0x7F80, 0xFF80, 0x7FC0]
    assert narrow(bf16, DType.BFLOAT16).tolist() == expected


@pytest.mark.parametrize("dtype", SMALL)
def test_random_floats_narrow_as_ml_dtypes_does(dtype: DType) -> None:
    values = np.random.default_rng(4).integers(0, 1 << 32, 1 << 17, np.uint32).view(np.float32)
    every = all_codes(dtype).view(numpy_dtype(dtype)).astype(np.float32)
    largest = every[np.isfinite(every)].max()
    values = values[np.abs(values) <= largest]
    expected = values.astype(numpy_dtype(dtype))
    assert np.array_equal(narrow(values, dtype), expected.view(all_codes(dtype).dtype))


def test_int32_beyond_24_bits_rounds_to_even() -> None:
    numbers = np.array([2**24 + 1, 2**24 + 3, -(2**24) - 1, 2**31 - 1, -(2**31)], np.int32)
    expected = [2**24, 2**24 + 4, -(2**24), 2**31, -(2**31)]
    assert widen(numbers, F32).tolist() == expected


def quantised(y: Any, dtype: DType, rule: ScaleRule, scale: Any, offset: Any = None) -> Any:
    with np.errstate(all="ignore"):
        got = codes.quantise(y, dtype, rule, f32(scale), None if offset is None else f32(offset))
    return got.view(np.int8).tolist() if dtype is DType.INT8 else got.tolist()


INF, NAN = math.inf, math.nan


@pytest.mark.parametrize(
    ("y", "scale", "offset", "expected"),
    [
        ([0.5, 1.5, 2.5, -0.5, -1.5], 1, None, [0, 2, 2, 0, -2]),
        ([127.4, 127.5, 1e30, -128.5, -128.6, -1e30], 1, None, [127, 127, 127, -128, -128, -128]),
        ([NAN, INF, -INF, 0.0], 1, None, [0, 127, -128, 0]),
        ([1.0, -1.0, 0.0], 0, None, [127, -128, 0]),
        ([1.0, INF], INF, None, [0, 0]),
        ([1.0, -3.0], -0.5, None, [-2, 6]),
        ([1.0, 2.0], 2, 0.25, [1, 1]),
        ([INF, 1.0], 1, -INF, [0, -128]),
        ([7.0], 1, NAN, [0]),
    ],
)
def test_int8_codes(
    y: list[float], scale: float, offset: float | None, expected: list[int]
) -> None:
    assert quantised(f32(*y), DType.INT8, ScaleRule.DIVIDE, scale, offset) == expected


def test_multiplying_scale_of_0_and_infinity() -> None:
    multiply = ScaleRule.MULTIPLY
    assert quantised(f32(3, -1, INF), DType.INT8, multiply, 2) == [6, -2, 127]
    assert quantised(f32(3, INF), DType.INT8, multiply, 0) == [0, 0]
    assert quantised(f32(0, -1), DType.INT8, multiply, INF) == [0, -128]


@pytest.mark.parametrize(
    ("dtype", "y", "expected"),
    [
        # e4m3: 1 is 0x38, 448 is 0x7E, the smallest step 2^-9 is 0x01; half of it ties to 0.
        (DType.FLOAT8_E4M3FN, [1, 448, 464, 1e9, INF, -INF], [0x38, 0x7E, 0x7E, 0x7E, 0x7E, 0xFE]),
        (DType.FLOAT8_E4M3FN, [2**-9, 2**-10, 1.1 * 2**-10, -(2**-10)], [1, 0, 1, 0x80]),
        (DType.FLOAT8_E4M3FN, [NAN, -0.0, 0.0], [0x7F, 0x80, 0]),
        # e5m2: 1 is 0x3C, 57344 is 0x7B, the smallest step 2^-16 is 0x01.
        (DType.FLOAT8_E5M2, [1, 57344, 65536, INF, -INF], [0x3C, 0x7B, 0x7B, 0x7B, 0xFB]),
        (DType.FLOAT8_E5M2, [2**-16, 2**-17, -1e-30, NAN], [1, 0, 0x80, 0x7F]),
        # Between 1 and 1.25 the tie 1.125 goes to the even code; between 1.25 and 1.5 as well.
        (DType.FLOAT8_E5M2, [1.125, 1.375], [0x3C, 0x3E]),
    ],
)
def test_fp8_codes(dtype: DType, y: list[float], expected: list[int]) -> None:
    assert quantised(f32(*y), dtype, ScaleRule.DIVIDE, 1) == expected


@pytest.mark.parametrize(
    ("dtype", "largest"),
    [(DType.INT8, 127), (DType.FLOAT8_E4M3FN, 448), (DType.FLOAT8_E5M2, 57344)],
)
def test_dynamic_scales(dtype: DType, largest: int) -> None:
    rows = [[3, -largest / 2], [0, -0.0], [NAN, 0], [NAN, 1], [INF, 1], [1e-45, 0]]
    values = f32(*rows).reshape(len(rows), 1, 2)
    with np.errstate(all="ignore"):
        scales = codes.dynamic_scales(values, dtype)
        got = codes.quantise(values, dtype, ScaleRule.DYNAMIC, scales[..., None], None)
    expected = [0.5, 0, 0, np.float32(1) / np.float32(largest), INF, 0]
    assert scales[:, 0].tolist() == expected
    # Where the scale is 0 every code is 0, those of NaN and -0 too.
    assert got[1:3].tolist() == [[[0, 0]], [[0, 0]]] and got[5].tolist() == [[0, 0]]
    nan = 0 if dtype is DType.INT8 else 0x7F
    assert got[3, 0, 0] == nan and got[4, 0].tolist() == [nan, 0]
    assert codes.values_of_codes(
        got[3, 0, 1:].view(numpy_dtype(dtype)), ScaleRule.DYNAMIC, scales[3]
    ) == pytest.approx(1)
