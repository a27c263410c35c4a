"""Calibration: hand-worked values, properties over random values, and the sentences of errors."""

from __future__ import annotations

import re
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

from qkvfuse import Calibration, Calibrator, calibrate
from qkvfuse._calibrate import _rounded

METHODS = ("minmax", "percentile", "mse")
GRANULARITIES = ("channel", "head", "tensor")
DTYPES = ("int8", "float8_e4m3fn", "float8_e5m2")
LARGEST = {"float8_e4m3fn": 448, "float8_e5m2": 57344}

Floats = NDArray[np.float32]


def some_values(rows: int = 200, heads: int = 3, head_dim: int = 8, seed: int = 1) -> Floats:
    """Channels of different widths and means, with outliers."""
    random = np.random.default_rng(seed)
    y = random.standard_t(3, (rows, heads, head_dim))
    y = y * random.uniform(0.1, 10, (heads, head_dim)) + random.normal(0, 3, (heads, head_dim))
    return y.astype(np.float32)


def spread(part: Floats, granularity: str) -> Any:
    """A scale or an offset so that it broadcasts with [rows, heads, head_dim]."""
    return part[:, None] if granularity == "head" else part


def read_back(y: Floats, of: Calibration, granularity: str, dtype: str = "int8") -> Floats:
    """What a cache would give for y, by the formulas of the operators."""
    scale = spread(of.scale, granularity)
    offset = np.float32(0) if of.offset is None else spread(of.offset, granularity)
    z = y / scale + offset
    if dtype == "int8":
        return np.asarray((np.rint(np.clip(z, -128, 127)) - offset) * scale, np.float32)
    largest = np.float32(LARGEST[dtype])
    code = np.clip(z, -largest, largest).astype(getattr(ml_dtypes, dtype))
    return np.asarray(code.astype(np.float32) * scale, np.float32)


# Hand-worked --------------------------------------------------------------------------------------

# Two rows of two heads of two channels.
Y = np.array([[[1.0, -254.0], [0.5, 0.0]], [[-2.0, 10.0], [127.0, 0.0]]], np.float32)


@pytest.mark.parametrize(
    ("granularity", "expected"),
    [
        ("channel", [[2 / 127, 2.0], [1.0, 1.0]]),  # the last channel is always 0: scale 1
        ("head", [2.0, 1.0]),
        ("tensor", [2.0]),
    ],
)
def test_symmetric_by_hand(granularity: str, expected: Any) -> None:
    got = calibrate(Y, granularity=granularity)
    assert got.offset is None
    assert got.scale.dtype == np.float32
    np.testing.assert_array_equal(got.scale, np.array(expected, np.float32))


@pytest.mark.parametrize(
    ("granularity", "scales", "offsets"),
    [
        # Channel 0: -2..1, scale 3/255, offset round(-0.5 + 1 / (2 * 3/255)) = round(42) = 42.
        # Channel 1: -254..10, scale 264/255, offset round(-0.5 + 244 / (528/255)) = round(117.34).
        # Channel 2: 0.5..127, scale 126.5/255, offset round(-129.008).
        # Channel 3: always 0: scale 1, offset round(-0.5) = 0.
        ("channel", [[3 / 255, 264 / 255], [126.5 / 255, 1.0]], [[42, 117], [-129, 0]]),
        # Head 0: -254..10. Head 1: 0..127, scale 127/255, offset round(-0.5 - 127.5) = -128.
        ("head", [264 / 255, 127 / 255], [117, -128]),
        # All: -254..127, scale 381/255, offset round(-0.5 + 127 / (762/255)) = round(42.0).
        ("tensor", [381 / 255], [42]),
    ],
)
def test_asymmetric_by_hand(granularity: str, scales: Any, offsets: Any) -> None:
    got = calibrate(Y, granularity=granularity, symmetric=False)
    assert got.offset is not None
    assert got.offset.dtype == np.float32
    np.testing.assert_allclose(got.scale, np.array(scales, np.float32), rtol=1e-7)
    np.testing.assert_array_equal(got.offset, np.array(offsets, np.float32))


@pytest.mark.parametrize(("dtype", "largest"), [("float8_e4m3fn", 448), ("float8_e5m2", 57344)])
def test_fp8_by_hand(dtype: str, largest: float) -> None:
    got = calibrate(Y, dtype=dtype, granularity="head")
    np.testing.assert_array_equal(got.scale, np.array([254 / largest, 127 / largest], np.float32))
    assert got.offset is None


def test_percentile_by_hand() -> None:
    y = np.arange(-100, 101, dtype=np.float32).reshape(-1, 1, 1)  # |y|: 0, 1, 1, .. 100, 100
    symmetric = calibrate(y, method="percentile", percentile=50)
    np.testing.assert_array_equal(symmetric.scale, np.array([[50 / 127]], np.float32))
    # Half of the values lie in -50..50; the rest is clamped, a quarter at each end.
    asymmetric = calibrate(y, method="percentile", percentile=50, symmetric=False)
    np.testing.assert_array_equal(asymmetric.scale, np.array([[100 / 255]], np.float32))
    assert asymmetric.offset is not None and asymmetric.offset[0, 0] == 0  # round(-0.5)


def test_mse_by_hand() -> None:
    # Clamping one value in 20,000 to 0.98 of itself costs less than a coarser grid for all others.
    y = np.linspace(-1, 1, 20000, dtype=np.float32).reshape(-1, 1, 1).copy()
    y[0] = 1.02
    got = calibrate(y, method="mse").scale.item()
    assert got == np.float32(0.98 * np.float64(np.float32(1.02)) / 127)


def test_constant_channels_are_read_back() -> None:
    y = np.broadcast_to(np.array([[0.0, 3.0, -1e-3, 1e6]], np.float32), (5, 1, 4))
    for symmetric in (True, False):
        got = calibrate(y, symmetric=symmetric)
        assert got.scale[0, 0] == 1
        np.testing.assert_allclose(read_back(y, got, "channel"), y, rtol=1e-5)


def test_narrow_channel_far_from_zero_keeps_its_value() -> None:
    y = (100 + 1e-5 * np.arange(8, dtype=np.float32)).reshape(-1, 1, 1)
    got = calibrate(y, symmetric=False)
    assert got.scale.item() == np.float32(np.float64(y.max()) / 65536)
    assert np.abs(read_back(y, got, "channel") - y).max() <= got.scale.item() / 2


def test_a_scale_that_underflows_is_one() -> None:
    y = np.full((2, 1, 2), 1e-45, np.float32)  # the smallest subnormal / 127 is 0 in fp32
    assert calibrate(y, granularity="tensor").scale.item() == 1


def test_a_range_beyond_float32_does_not_overflow() -> None:
    y = np.array([[[-3e38]], [[3e38]]], np.float32)
    got = calibrate(y, symmetric=False)
    np.testing.assert_allclose(got.scale.item(), 6e38 / 255, rtol=1e-6)


# Properties ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("granularity", GRANULARITIES)
@pytest.mark.parametrize("symmetric", [True, False])
def test_no_value_of_minmax_is_off_by_more_than_half_a_step(
    granularity: str, symmetric: bool
) -> None:
    for seed in range(20):
        y = some_values(seed=seed)
        got = calibrate(y, granularity=granularity, symmetric=symmetric)
        step = np.broadcast_to(spread(got.scale, granularity), y.shape)
        assert (np.abs(read_back(y, got, granularity) - y) <= step * (0.5 + 1e-4)).all()


@pytest.mark.parametrize("granularity", GRANULARITIES)
@pytest.mark.parametrize("method", METHODS)
def test_zero_is_read_back_as_zero(granularity: str, method: str) -> None:
    y = some_values() - some_values().mean(axis=0)
    got = calibrate(y, granularity=granularity, method=method, symmetric=False)
    assert (read_back(np.zeros_like(y), got, granularity) == 0).all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("granularity", GRANULARITIES)
@pytest.mark.parametrize("symmetric", [True, False])
def test_mse_has_no_more_error_than_minmax(dtype: str, granularity: str, symmetric: bool) -> None:
    if not symmetric and dtype != "int8":
        pytest.skip("fp8 is symmetric")
    for seed in range(5):
        y = some_values(seed=seed)
        errors = {}
        for method in ("minmax", "mse"):
            got = calibrate(
                y, dtype=dtype, granularity=granularity, method=method, symmetric=symmetric
            )
            off = np.square(read_back(y, got, granularity, dtype) - y, dtype=np.float64)
            axes = {"channel": 0, "head": (0, 2), "tensor": None}[granularity]
            errors[method] = off.mean(axis=axes)
        assert (errors["mse"] <= errors["minmax"] * (1 + 1e-6)).all()


@pytest.mark.parametrize("method", METHODS)
def test_a_percentile_of_100_and_finer_groups(method: str) -> None:
    y = some_values()
    whole = calibrate(y, method="percentile", percentile=100)
    np.testing.assert_array_equal(whole.scale, calibrate(y).scale)
    by_channel = calibrate(y, method=method).scale
    by_head = calibrate(y, method=method, granularity="head").scale
    if method == "minmax":
        np.testing.assert_array_equal(by_channel.max(axis=1), by_head)
    assert (by_channel > 0).all() and (by_head > 0).all()


@pytest.mark.parametrize("symmetric", [True, False])
def test_scaling_the_values_by_a_power_of_two_scales_the_scale(symmetric: bool) -> None:
    y = some_values()
    for method in METHODS:
        one = calibrate(y, method=method, symmetric=symmetric)
        four = calibrate(4 * y, method=method, symmetric=symmetric)
        np.testing.assert_allclose(four.scale, 4 * one.scale, rtol=1e-6)
        if one.offset is not None and four.offset is not None:
            np.testing.assert_array_equal(four.offset, one.offset)


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e5m2"])
def test_fp8_rounding_is_that_of_ml_dtypes(dtype: str) -> None:
    random = np.random.default_rng(0)
    bits = random.integers(0, 2**32, 200_000, dtype=np.uint32)
    z = bits.view(np.float32)
    limit = np.float32(LARGEST[dtype])
    z = np.concatenate([z[np.isfinite(z)], random.uniform(-limit, limit, 100_000)]).astype(
        np.float32
    )
    expected = np.clip(z, -limit, limit).astype(getattr(ml_dtypes, dtype)).astype(np.float32)
    np.testing.assert_array_equal(_rounded(z, dtype), expected)


# Types and pieces ---------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["float16", "bfloat16", "float64"])
def test_other_types_are_used_as_float32(kind: str) -> None:
    y = some_values().astype(getattr(ml_dtypes, kind, kind))
    got, expected = calibrate(y), calibrate(y.astype(np.float32))
    np.testing.assert_array_equal(got.scale, expected.scale)


def test_torch_tensors() -> None:
    torch = pytest.importorskip("torch")
    y = some_values()
    for kind in (torch.float32, torch.bfloat16):
        tensor = torch.from_numpy(y).to(kind).requires_grad_()
        expected = calibrate(tensor.detach().float().numpy())
        np.testing.assert_array_equal(calibrate(tensor).scale, expected.scale)


def test_types_by_dtype_and_short_name() -> None:
    y = some_values()
    for dtype in (np.int8, np.dtype("int8"), "int8"):
        np.testing.assert_array_equal(calibrate(y, dtype=dtype).scale, calibrate(y).scale)
    for dtype in (ml_dtypes.float8_e4m3fn, np.dtype(ml_dtypes.float8_e4m3fn), "fp8_e4m3"):
        expected = calibrate(y, dtype="float8_e4m3fn").scale
        np.testing.assert_array_equal(calibrate(y, dtype=dtype).scale, expected)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("symmetric", [True, False])
def test_pieces_give_what_the_whole_gives(method: str, symmetric: bool) -> None:
    y = some_values()
    before = y.copy()
    calibrator = Calibrator(method=method, symmetric=symmetric)
    for piece in (y[:1], y[1:70], y[70:]):
        calibrator.observe(piece)
    got, expected = calibrator.result(), calibrate(y, method=method, symmetric=symmetric)
    np.testing.assert_array_equal(got.scale, expected.scale)
    if expected.offset is not None:
        np.testing.assert_array_equal(got.offset, expected.offset)
    np.testing.assert_array_equal(y, before)


def test_a_sample_stands_for_all_rows() -> None:
    y = np.random.default_rng(2).normal(size=(20_000, 1, 4)).astype(np.float32)
    sampled = [Calibrator(method="percentile", percentile=95, sample_rows=2000) for _ in range(2)]
    for calibrator in sampled:
        for piece in np.array_split(y, 7):
            calibrator.observe(piece)
    first, second = (calibrator.result().scale for calibrator in sampled)
    np.testing.assert_array_equal(first, second)
    whole = calibrate(y, method="percentile", percentile=95).scale
    np.testing.assert_allclose(first, whole, rtol=0.1)
    assert (first != whole).any()


def test_every_row_is_as_likely_to_be_kept() -> None:
    # Rows 0..999 in order: the median of the rows kept is near the middle.
    y = np.arange(1000, dtype=np.float32).reshape(-1, 1, 1)
    calibrator = Calibrator(method="percentile", percentile=50, sample_rows=200)
    for piece in np.split(y, 10):
        calibrator.observe(piece)
    assert abs(calibrator.result().scale.item() * 127 - 500) < 100


def test_minmax_needs_no_sample() -> None:
    y = some_values()
    calibrator = Calibrator(sample_rows=1)
    calibrator.observe(y[:50])
    calibrator.result()
    calibrator.observe(y[50:])
    np.testing.assert_array_equal(calibrator.result().scale, calibrate(y).scale)


# Errors -------------------------------------------------------------------------------------------

GOOD = np.ones((2, 3, 4), np.float32)
BAD = GOOD.copy()
BAD[1, 2, 3] = np.nan


@pytest.mark.parametrize(
    ("values", "options", "sentence"),
    [
        (np.ones(3, np.float32), {}, "values: shape is [3], must be [rows, heads, head_dim]"),
        (GOOD[:0], {}, "values: shape is [0, 3, 4], must be at least 1 everywhere"),
        (
            np.ones((1, 1, 1), int),
            {},
            "values: type is int64, must be float16, bfloat16, float32 or float64",
        ),
        (BAD, {}, "values: has a NaN or an infinity, must be finite in float32"),
        (
            GOOD.astype(np.float64) * 1e300,
            {},
            "values: has a NaN or an infinity, must be finite in float32",
        ),
        (
            GOOD,
            {"dtype": "int4"},
            "dtype: is 'int4', must be int8, float8_e4m3fn or float8_e5m2",
        ),
        (
            GOOD,
            {"granularity": "row"},
            "granularity: is 'row', must be channel, head or tensor",
        ),
        (GOOD, {"method": "kl"}, "method: is 'kl', must be minmax, percentile or mse"),
        (
            GOOD,
            {"dtype": "float8_e5m2", "symmetric": False},
            "symmetric: is False, must be True for float8_e5m2",
        ),
        (GOOD, {"symmetric": "no"}, "symmetric: is 'no', must be True or False"),
        (GOOD, {"percentile": "99"}, "percentile: is '99', must be a number"),
        (
            np.ma.masked_array(GOOD, mask=GOOD > 2),
            {},
            "values: is a masked array, must be an array without a mask",
        ),
        (GOOD, {"percentile": 0}, "percentile: is 0, must be above 0 and at most 100"),
        (GOOD, {"percentile": 101}, "percentile: is 101, must be above 0 and at most 100"),
    ],
)
def test_sentences(values: Any, options: dict[str, Any], sentence: str) -> None:
    of_type = ("type is", "True or False", "a number", "masked")
    kind = TypeError if any(words in sentence for words in of_type) else ValueError
    with pytest.raises(kind, match=f"^{re.escape(sentence)}$"):
        calibrate(values, **options)


def test_sentences_of_the_calibrator() -> None:
    with pytest.raises(ValueError, match="^sample_rows: is 0, must be at least 1$"):
        Calibrator(sample_rows=0)
    calibrator = Calibrator()
    with pytest.raises(ValueError, match="^values: none were observed, must be at least one row$"):
        calibrator.result()
    calibrator.observe(GOOD)
    sentence = re.escape("values: shape is [2, 3, 2], must be [rows, 3, 4], as before")
    with pytest.raises(ValueError, match=f"^{sentence}$"):
        calibrator.observe(GOOD[:, :, :2])
    with pytest.raises(ValueError, match="NaN"):
        calibrator.observe(BAD)
    np.testing.assert_array_equal(calibrator.result().scale, calibrate(GOOD).scale)
