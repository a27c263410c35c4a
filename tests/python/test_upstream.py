"""The two operators of Ascend under torch_npu's names, bit for bit as the oracle has them."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import qkvfuse
from calls import bits, numpy_dtype
from qkvfuse import reference


def _strided(draw: Any, array: Any) -> Any:
    """The same values with strides of the array's own: as drawn, for any dimension."""
    kind = draw(st.sampled_from(["plain", "fortran", "spread", "reversed"]))
    if kind == "fortran":
        return np.asfortranarray(array)
    if kind == "spread":
        wide = np.zeros((*array.shape[:-1], 3 * array.shape[-1]), array.dtype)
        view = wide[..., ::3]
    elif kind == "reversed":
        view = np.zeros_like(array)[::-1]
    else:
        return array
    view[...] = array
    return view


@st.composite
def qnr_calls(draw: Any) -> dict[str, Any]:
    """Arguments of npu_qkv_rms_norm_rope_cache."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    p = numpy_dtype(draw(st.sampled_from(["float16", "bfloat16"])))
    batch, sequence = draw(st.integers(1, 3)), draw(st.integers(1, 4))
    tokens = batch * sequence
    q_heads, kv_heads = draw(st.integers(1, 5)), draw(st.integers(1, 3))
    heads = q_heads + 2 * kv_heads
    mode = draw(st.sampled_from(["PA_NZ", "PA", "Norm"]))
    head_dim = draw(st.sampled_from([32, 64, 96, 128] if mode == "PA_NZ" else [2, 6, 30, 64, 160]))
    blocks, block_size = draw(st.integers(2, 5)), draw(st.integers(6, 20))

    def floats(*shape: int) -> Any:
        return _strided(draw, (rng.standard_t(3, shape) * 2).astype(p))

    call: dict[str, Any] = {
        "qkv": floats(tokens, heads * head_dim),
        "q_gamma": floats(head_dim),
        "k_gamma": floats(head_dim),
        "cos": floats(tokens, head_dim),
        "sin": floats(tokens, head_dim),
        "index": rng.permutation(blocks * block_size)[:tokens] - draw(st.integers(0, 1)),
        "q_out": _strided(draw, rng.standard_normal((tokens, q_heads * head_dim)).astype(p)),
        "qkv_size": [batch, sequence, heads, head_dim],
        "head_nums": [q_heads, kv_heads, kv_heads],
        "epsilon": draw(st.sampled_from([0.0, 1e-6, 0.5])),
        "cache_mode": mode,
        "is_output_qkv": draw(st.booleans()),
    }
    for part in ("k", "v"):
        dtype = numpy_dtype(draw(st.sampled_from(["int8", str(p)])))
        chunk = 32 if dtype == np.int8 else 16
        shape = (
            (blocks, kv_heads * head_dim // chunk, block_size, chunk)
            if mode == "PA_NZ"
            else (blocks, block_size, kv_heads, head_dim)
        )
        call[f"{part}_cache"] = _strided(draw, np.full(shape, 7, dtype))
        if dtype == np.int8:
            scale = rng.uniform(-0.1, 0.1, (kv_heads, head_dim)).astype(np.float32)
            call[f"{part}_scale"] = _strided(draw, scale)
            if draw(st.booleans()):
                offset = rng.uniform(-9, 9, (kv_heads, head_dim)).astype(np.float32)
                call[f"{part}_offset"] = _strided(draw, offset)
    return call


@st.composite
def drq_calls(draw: Any) -> dict[str, Any]:
    """Arguments of npu_dequant_rope_quant_kvcache."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    p = numpy_dtype(draw(st.sampled_from(["float16", "bfloat16"])))
    batch, sequence = draw(st.integers(1, 3)), draw(st.integers(1, 4))
    has_sequence = draw(st.booleans())
    sequence = sequence if has_sequence else 1
    q_heads, kv_heads = draw(st.integers(1, 5)), draw(st.integers(1, 3))
    head_dim = draw(st.sampled_from([2, 16, 30, 64, 128]))
    width = (q_heads + 2 * kv_heads) * head_dim
    rows = batch * sequence
    tokens = (batch, sequence) if has_sequence else (batch,)
    is_int32 = draw(st.booleans())
    blocks, block_size = draw(st.integers(3, 5)), draw(st.integers(4, 12))
    is_paged = draw(st.booleans())

    def optional(array: Any) -> Any:
        return _strided(draw, array) if draw(st.booleans()) else None

    if is_int32:
        x = rng.integers(-(2**28), 2**28, (*tokens, width)).astype(np.int32)
    else:
        x = rng.standard_normal((*tokens, width)).astype(p)
    angles = (*tokens, 1, head_dim) if has_sequence else (*tokens, head_dim)
    bias_type = numpy_dtype(draw(st.sampled_from(["float32", "float16", "bfloat16", "int32"])))
    indices = (
        rng.permutation(blocks * block_size)[:rows]
        if is_paged
        else rng.integers(0, block_size - sequence + 1, batch)
    )
    codes = kv_heads * head_dim
    return {
        "x": _strided(draw, x),
        "cos": _strided(draw, rng.standard_normal(angles).astype(p)),
        "sin": _strided(draw, rng.standard_normal(angles).astype(p)),
        "k_cache": _strided(draw, np.full((blocks, block_size, kv_heads, head_dim), 7, np.int8)),
        "v_cache": _strided(draw, np.full((blocks, block_size, kv_heads, head_dim), 7, np.int8)),
        "indices": indices.astype(np.int32),
        "scale_k": rng.uniform(0.01, 0.1, codes).astype(np.float32),
        "scale_v": rng.uniform(0.01, 0.1, (kv_heads, head_dim)).astype(np.float32),
        "size_splits": [q_heads * head_dim, codes, codes],
        "offset_k": optional(rng.uniform(-9, 9, codes).astype(np.float32)),
        "offset_v": optional(rng.uniform(-9, 9, codes).astype(np.float32)),
        "weight_scale": rng.uniform(0, 1e-7, width).astype(np.float32) if is_int32 else None,
        "activation_scale": optional(rng.uniform(0, 2, rows).astype(np.float32)),
        "bias": optional(rng.integers(-3, 3, width).astype(bias_type)),
        "quant_mode": draw(st.sampled_from(["static", 0])),
        "kv_output": draw(st.booleans()),
        "cache_mode": "page" if is_paged else "contiguous",
    }


def _copied(call: dict[str, Any]) -> dict[str, Any]:
    return {k: v.copy() if isinstance(v, np.ndarray) else v for k, v in call.items()}


def _assert_same(ours: Any, expected: Any, what: str) -> None:
    assert (ours is None) == (expected is None), what
    if ours is None:
        return
    assert ours.dtype == expected.dtype and ours.shape == expected.shape, what
    same = bits(ours) == bits(expected)
    if ours.dtype.kind in "fV":  # the sign and payload of a computed NaN are free
        same |= np.isnan(ours.astype(np.float32)) & np.isnan(expected.astype(np.float32))
    assert same.all(), what


@settings(max_examples=200, deadline=None)
@given(qnr_calls())
def test_qnr_equals_the_oracle(call: dict[str, Any]) -> None:
    expected_call = _copied(call)
    ours = qkvfuse.npu_qkv_rms_norm_rope_cache(**call)
    expected = reference.npu_qkv_rms_norm_rope_cache(**expected_call)
    for name, one, other in zip("qkv", ours, expected, strict=True):
        _assert_same(one, other, f"{name} before quantisation")
    for name, value in call.items():
        if isinstance(value, np.ndarray):
            _assert_same(value, expected_call[name], name)


@settings(max_examples=200, deadline=None)
@given(drq_calls())
def test_drq_equals_the_oracle(call: dict[str, Any]) -> None:
    expected_call = _copied(call)
    ours = qkvfuse.npu_dequant_rope_quant_kvcache(**call)
    expected = reference.npu_dequant_rope_quant_kvcache(**expected_call)
    assert ours[3] is call["k_cache"] and ours[4] is call["v_cache"]
    for name, one, other in zip(("q", "k", "v", "k_cache", "v_cache"), ours, expected, strict=True):
        _assert_same(one, other, name)


def test_signatures_are_torch_npus() -> None:
    def names(function: Any) -> str:
        return ", ".join(inspect.signature(function).parameters)

    assert names(qkvfuse.npu_qkv_rms_norm_rope_cache) == (
        "qkv, q_gamma, k_gamma, cos, sin, index, q_out, k_cache, v_cache, qkv_size, head_nums, "
        "k_scale, v_scale, k_offset, v_offset, epsilon, cache_mode, is_output_qkv, strict, threads"
    )
    assert names(qkvfuse.npu_dequant_rope_quant_kvcache) == (
        "x, cos, sin, k_cache, v_cache, indices, scale_k, scale_v, size_splits, offset_k, "
        "offset_v, weight_scale, activation_scale, bias, quant_mode, input_layout, kv_output, "
        "cache_mode, strict, threads"
    )


def _qnr() -> dict[str, Any]:
    p = np.float16
    return {
        "qkv": np.ones((2, 4 * 32), p),
        "q_gamma": np.ones(32, p),
        "k_gamma": np.ones(32, p),
        "cos": np.ones((2, 32), p),
        "sin": np.zeros((2, 32), p),
        "index": np.array([3, 5]),
        "q_out": np.zeros((2, 64), p),
        "k_cache": np.zeros((2, 1, 4, 32), np.int8),
        "v_cache": np.zeros((2, 1, 4, 32), np.int8),
        "qkv_size": [1, 2, 4, 32],
        "head_nums": [2, 1, 1],
        "k_scale": np.ones((1, 32), np.float32),
        "v_scale": np.ones((1, 32), np.float32),
    }


def _drq() -> dict[str, Any]:
    p = np.float16
    return {
        "x": np.ones((2, 4 * 16), p),
        "cos": np.ones((2, 16), p),
        "sin": np.zeros((2, 16), p),
        "k_cache": np.zeros((2, 4, 1, 16), np.int8),
        "v_cache": np.zeros((2, 4, 1, 16), np.int8),
        "indices": np.array([3, 1], np.int32),
        "scale_k": np.ones(16, np.float32),
        "scale_v": np.ones(16, np.float32),
        "size_splits": [32, 16, 16],
    }


@pytest.mark.parametrize(
    ("operator", "kind", "sentence", "change"),
    [
        (
            "qnr",
            TypeError,
            "cos: type is float32, must be float16",
            {"cos": np.ones((2, 32), np.float32)},
        ),
        (
            "qnr",
            ValueError,
            "sin: shape is [32], must be [2, 32]",
            {"sin": np.ones(32, np.float16)},
        ),
        ("qnr", TypeError, "k_gamma: is missing, must be given", {"k_gamma": None}),
        ("qnr", ValueError, "k_scale: is absent, an int8 k_cache needs it", {"k_scale": None}),
        (
            "qnr",
            ValueError,
            'cache_mode: is "ND", must be None or "PA_NZ" or "PA" or "Norm"',
            {"cache_mode": "ND"},
        ),
        ("qnr", TypeError, "cache_mode: is 1, must be a string", {"cache_mode": 1}),
        ("qnr", ValueError, "qkv_size: has 3 values, must have 4", {"qkv_size": [1, 2, 4]}),
        ("qnr", TypeError, "head_nums: is 3, must be a list of integers", {"head_nums": 3}),
        (
            "qnr",
            TypeError,
            "head_nums: is [2, 1.5, 1], must be a list of integers",
            {"head_nums": [2, 1.5, 1]},
        ),
        ("qnr", ValueError, "index: element 1 is 8, must be below 8", {"index": np.array([0, 8])}),
        ("qnr", ValueError, "index: elements 0 and 1 are both 2", {"index": np.array([2, 2])}),
        (
            "qnr",
            ValueError,
            "epsilon: is -1, must be 0 or a positive finite float",
            {"epsilon": -1.0},
        ),
        ("drq", TypeError, "indices: type is int64, must be int32", {"indices": np.array([3, 1])}),
        ("drq", ValueError, 'quant_mode: is 1, must be 0 or "static"', {"quant_mode": 1}),
        (
            "drq",
            ValueError,
            'quant_mode: is "dynamic", must be None or "static"',
            {"quant_mode": "dynamic"},
        ),
        (
            "drq",
            ValueError,
            "size_splits: is [30, 16, 16], must be multiples of head_dim 16",
            {"size_splits": [30, 16, 16]},
        ),
        ("drq", ValueError, "size_splits: has 2 values, must have 3", {"size_splits": [32, 16]}),
        ("drq", ValueError, "weight_scale: is absent", {"x": np.ones((2, 64), np.int32)}),
        ("drq", TypeError, "x: is missing, must be given", {"x": None}),
        (
            "drq",
            TypeError,
            "k_cache: type is float16, must be int8",
            {"k_cache": np.zeros((2, 4, 1, 16), np.float16)},
        ),
        ("drq", ValueError, "scale_v: element 0 is 0", {"scale_v": np.zeros(16, np.float32)}),
    ],
)
def test_refusals(
    operator: str, kind: type[Exception], sentence: str, change: dict[str, Any]
) -> None:
    function = (
        qkvfuse.npu_qkv_rms_norm_rope_cache
        if operator == "qnr"
        else qkvfuse.npu_dequant_rope_quant_kvcache
    )
    call = {**(_qnr() if operator == "qnr" else _drq()), **change}
    before = _copied(call)
    with pytest.raises(kind) as refused:
        function(**call)
    assert str(refused.value).startswith(sentence)
    for name, value in before.items():
        if isinstance(value, np.ndarray):
            assert np.array_equal(bits(value), bits(call[name])), name


def test_lenient_calls_take_what_strict_ones_refuse() -> None:
    call = {**_qnr(), "index": np.array([2, 2])}
    call["qkv"][1] = 3  # the highest token wins: v = 3
    qkvfuse.npu_qkv_rms_norm_rope_cache(**call, strict=False)
    assert np.all(call["v_cache"][0, 0, 2] == 3)
