"""Caches back to floats, pages to other caches, rotary tables and Specs of models."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import qkvfuse
from calls import bits, numpy_dtype
from qkvfuse import Cache, CacheView, reference

HEADS, HEAD_DIM, BLOCKS, BLOCK_SIZE = 3, 16, 5, 8
LAYOUTS = [
    "paged_nhd",
    "paged_hnd",
    "pa_nz",
    "x_split_k",
    "transposed",
    "shuffled_v",
    "channel block head row",
]
WITH_CHUNKS = ["pa_nz", "x_split_k", "shuffled_v"]
DTYPES = ["float32", "float16", "bfloat16", "int8", "float8_e4m3fn", "float8_e5m2"]


def _shape(layout: str, chunk: int) -> tuple[int, ...]:
    sizes = {"block": BLOCKS, "row": BLOCK_SIZE, "head": HEADS, "channel": HEAD_DIM}
    shapes = {
        "paged_nhd": "block row head channel",
        "paged_hnd": "block head row channel",
        "transposed": "block head channel row",
        "channel block head row": "channel block head row",
    }
    if layout == "pa_nz":
        return (BLOCKS, HEADS * HEAD_DIM // chunk, BLOCK_SIZE, chunk)
    if layout == "x_split_k":
        return (BLOCKS, HEADS, HEAD_DIM // chunk, BLOCK_SIZE, chunk)
    if layout == "shuffled_v":
        return (BLOCKS, HEADS, BLOCK_SIZE // chunk, HEAD_DIM, chunk)
    return tuple(sizes[axis] for axis in shapes[layout].split())


@st.composite
def views(draw: Any) -> CacheView:
    """A cache of random bits, with all that its type has."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    dtype = draw(st.sampled_from(DTYPES))
    layout = draw(st.sampled_from(LAYOUTS))
    chunk = draw(st.sampled_from([2, 4, 8])) if layout in WITH_CHUNKS else 0
    itemsize = numpy_dtype(dtype).itemsize
    shape = _shape(layout, chunk)
    raw = rng.integers(0, 256, (*shape[:-1], shape[-1] * itemsize), dtype=np.uint8)
    data = raw.view(numpy_dtype(dtype))
    has_codes = itemsize == 1
    rule = draw(st.sampled_from(["divide", "multiply", "dynamic"])) if has_codes else "divide"
    is_static = has_codes and rule != "dynamic"
    granularity = draw(st.sampled_from(["tensor", "head", "channel"])) if is_static else "channel"
    has_offset = is_static and dtype == "int8" and draw(st.booleans())
    of = {"tensor": (1,), "head": (HEADS,), "channel": (HEADS, HEAD_DIM)}[granularity]
    cache = Cache(dtype, layout, BLOCKS, BLOCK_SIZE, chunk, has_offset, rule, granularity)
    scales = rng.uniform(0.01, 2, (BLOCKS, BLOCK_SIZE, HEADS)).astype(np.float32)
    return CacheView(
        cache,
        data,
        HEADS,
        HEAD_DIM,
        scale=rng.uniform(0.01, 2, of).astype(np.float32) if is_static else None,
        offset=rng.uniform(-9, 9, of).astype(np.float32) if has_offset else None,
        scale_cache=scales if rule == "dynamic" else None,
    )


def _equal(ours: Any, expected: Any) -> bool:
    same = bits(ours) == bits(expected)
    same |= np.isnan(ours.astype(np.float32)) & np.isnan(expected.astype(np.float32))
    return bool(same.all())


def _reference(view: CacheView, slots: Any, **more: Any) -> Any:
    return reference.read_cache(
        view.cache,
        view.data,
        heads=view.heads,
        head_dim=view.head_dim,
        slots=slots,
        scale=view.scale,
        offset=view.offset,
        scale_cache=view.scale_cache,
        **more,
    )


@settings(max_examples=200, deadline=None)
@given(views(), st.sampled_from(DTYPES[:3]), st.booleans(), st.integers(0, 2**32))
def test_reading_equals_the_oracle(view: CacheView, dtype: str, is_table: bool, seed: int) -> None:
    rng = np.random.default_rng(seed)
    if is_table:
        slots = rng.integers(0, BLOCKS, (2, 3)).astype(np.int32)
        lengths = rng.integers(0, 3 * BLOCK_SIZE + 1, 2).astype(np.int32)
        ours = qkvfuse.read_cache(view, slots, lengths=lengths, dtype=dtype)
        expected = _reference(view, slots, lengths=lengths, dtype=dtype)
    else:
        slots = rng.integers(-1, BLOCKS * BLOCK_SIZE, 7)
        ours = qkvfuse.read_cache(view, slots, dtype=dtype)
        expected = _reference(view, slots, dtype=dtype)
    assert ours.shape == expected.shape and ours.dtype == numpy_dtype(dtype)
    assert _equal(ours, expected)


def test_rows_between_sequences_keep_their_bytes() -> None:
    view = CacheView(Cache("float32", "paged_nhd", 2, 4), np.ones((2, 4, 1, 2), np.float32), 1, 2)
    out = np.full((6, 1, 2), 9, np.float32)
    qkvfuse.read_cache(
        view, np.array([[1], [0]]), lengths=np.array([2, 1]), row_offsets=np.array([1, 4]), out=out
    )
    assert out[:, 0, 0].tolist() == [9, 1, 1, 9, 1, 9]


def test_pages_are_converted_and_copied() -> None:
    rng = np.random.default_rng(0)
    values = rng.standard_normal((4, 8, 2, 16)).astype(np.float32)
    floats = CacheView(Cache("float32", "paged_nhd", 4, 8), values, 2, 16)
    codes = CacheView(
        Cache("int8", "pa_nz", 4, 8, chunk=8, scale_rule="dynamic", scale_layout="scales_hn"),
        np.zeros((4, 4, 8, 8), np.int8),
        2,
        16,
        scale_cache=np.zeros((4, 2, 8), np.float32),
    )
    pairs = np.array([[3, 0], [1, 2]])
    qkvfuse.convert_pages(floats, codes, pairs)
    back = qkvfuse.read_cache(codes, np.array([[0, 2]]), lengths=np.array([16]))
    expected = values[[3, 1]].reshape(16, 2, 16)
    largest = np.abs(expected).max(axis=2, keepdims=True)
    assert np.all(np.abs(back - expected) <= largest / 127 * 0.5001)
    assert not codes.data[[1, 3]].any()
    other = CacheView(
        Cache("int8", "paged_hnd", 2, 8, scale_rule="dynamic"),
        np.zeros((2, 2, 8, 16), np.int8),
        2,
        16,
        scale_cache=np.zeros((2, 8, 2), np.float32),
    )
    qkvfuse.copy_pages(codes, other, np.array([[2, 1]]))
    again = qkvfuse.read_cache(other, np.array([[1]]), lengths=np.array([8]))
    assert np.array_equal(bits(again), bits(back[8:]))


def _int8_view(**changes: Any) -> CacheView:
    fields: dict[str, Any] = {
        "cache": Cache("int8", "paged_nhd", 2, 4, granularity="head"),
        "data": np.zeros((2, 4, 2, 8), np.int8),
        "heads": 2,
        "head_dim": 8,
        "scale": np.ones(2, np.float32),
        **changes,
    }
    return CacheView(**fields)


@pytest.mark.parametrize(
    ("changes", "arguments", "kind", "sentence"),
    [
        ({"scale": None}, {}, TypeError, "cache.scale: is missing, must be given"),
        (
            {"offset": np.ones(2, np.float32)},
            {},
            TypeError,
            "cache.offset: is given, needs has_off",
        ),
        ({"data": np.zeros((2, 4, 2, 8), np.uint8)}, {}, TypeError, "cache.data: type is uint8"),
        (
            {"data": np.zeros((2, 4, 2, 8), np.float16)},
            {},
            TypeError,
            "cache.data: type is float16, must be int8",
        ),
        (
            {"data": np.zeros((2, 2, 4, 8), np.int8)},
            {},
            ValueError,
            "cache.data: shape is [2, 2, 4, 8], must be [2, 4, 2, 8]",
        ),
        (
            {"scale": np.ones(3, np.float32)},
            {},
            ValueError,
            "cache.scale: has 3 elements, must have 2",
        ),
        ({}, {"slots": np.array([8])}, ValueError, "slots: element 0 is 8, must be below 8"),
        ({}, {"slots": np.array([0.5])}, TypeError, "slots: type is float64"),
        (
            {},
            {"slots": np.array([[0]])},
            ValueError,
            "slots: shape is [1, 1], must have 1 dimension",
        ),
        (
            {},
            {"slots": np.array([[0]]), "lengths": np.array([9])},
            ValueError,
            "lengths: element 0",
        ),
        (
            {},
            {"out": np.zeros((1, 2, 7), np.float32)},
            ValueError,
            "out: shape is [1, 2, 7], must be [rows, 2, 8]",
        ),
        ({}, {"dtype": "int8"}, ValueError, "dtype: is int8, must be float32, float16 or bfloat16"),
        (
            {},
            {"dtype": "float32", "out": np.zeros((1, 2, 8), np.float32)},
            TypeError,
            "dtype: is given with out, must be left out: it is that of out",
        ),
        (
            {},
            {"row_offsets": np.array([0]), "out": np.zeros((1, 2, 8), np.float32)},
            TypeError,
            "row_offsets: is given, needs lengths",
        ),
    ],
)
def test_reading_refuses(
    changes: dict[str, Any], arguments: dict[str, Any], kind: type[Exception], sentence: str
) -> None:
    with pytest.raises(kind) as refused:
        qkvfuse.read_cache(_int8_view(**changes), **{"slots": np.array([0]), **arguments})
    assert str(refused.value).startswith(sentence)


def test_moving_refuses() -> None:
    view, pairs = _int8_view(), np.array([[0, 1]])
    with pytest.raises(ValueError, match="pairs: shape is"):
        qkvfuse.copy_pages(view, _int8_view(), np.array([[0, 1, 2]]))
    with pytest.raises(ValueError, match="destination.data: is read-only"):
        frozen = np.zeros((2, 4, 2, 8), np.int8)
        frozen.flags.writeable = False
        qkvfuse.copy_pages(view, _int8_view(data=frozen), pairs)
    with pytest.raises(ValueError, match="pairs"):
        qkvfuse.copy_pages(view, _int8_view(), np.array([[0, 2]]))


def test_rope_tables() -> None:
    table = qkvfuse.RopeTable(8, 5, theta=100.0)
    joined = qkvfuse.rope_table(table)
    assert joined.shape == (5, 8) and joined.dtype == np.float32
    for position in range(5):
        for pair in range(4):
            angle = position * 100.0 ** (-2 * pair / 8)
            assert abs(joined[position, pair] - math.cos(angle)) < 1e-7
            assert abs(joined[position, 4 + pair] - math.sin(angle)) < 1e-7
    cos, sin = qkvfuse.rope_table(table, qkvfuse.Rope(table="two_tables"), dtype="bfloat16")
    assert cos.shape == sin.shape == (5, 8) and str(cos.dtype) == "bfloat16"
    assert np.array_equal(bits(cos[:, :4]), bits(joined[:, :4].astype(cos.dtype)))
    half, _ = qkvfuse.rope_table(table, qkvfuse.Rope(table="two_tables", half_width=True))
    assert np.array_equal(half, joined[:, :4])
    assert np.allclose(qkvfuse.rope_frequencies(table), [1, 100**-0.25, 0.1, 100**-0.75])
    yarn = qkvfuse.RopeTable(
        64, 4, scaling=qkvfuse.RopeScaling("yarn", factor=4, original_max_positions=32)
    )
    assert math.isclose(qkvfuse.rope_attention_factor(yarn), 0.1 * math.log(4) + 1)


def test_rope_tables_refuse() -> None:
    with pytest.raises(ValueError, match="rotary_dim"):
        qkvfuse.rope_table(qkvfuse.RopeTable(7, 5))
    with pytest.raises(ValueError, match="factor"):
        qkvfuse.rope_table(qkvfuse.RopeTable(8, 5, scaling=qkvfuse.RopeScaling(factor=2)))
    with pytest.raises(ValueError, match="dtype: is int8, must be float32, float16 or bfloat16"):
        qkvfuse.rope_table(qkvfuse.RopeTable(8, 5), dtype="int8")
    with pytest.raises(ValueError, match="kind: is 'ntk2', must be none, linear"):
        qkvfuse.RopeScaling("ntk2")


QWEN3 = {
    "model_type": "qwen3",
    "architectures": ["Qwen3ForCausalLM"],
    "hidden_size": 1024,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "num_hidden_layers": 2,
    "head_dim": 128,
    "max_position_embeddings": 64,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1000000.0,
    "torch_dtype": "bfloat16",
}


def test_specs_from_configs(tmp_path: Any) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(QWEN3))
    for config in (path, str(path), QWEN3):
        model = qkvfuse.spec_from_config(config)
        assert model.model_type == "qwen3" and model.layers == 2
        assert model.spec.heads == (16, 8, 8) and model.spec.head_dim == 128
        assert model.spec.q_norm == qkvfuse.Norm("per_head", gamma_dtype="bfloat16") or (
            model.spec.q_norm == qkvfuse.Norm("per_head")
        )
        assert model.rope_tables == (qkvfuse.RopeTable(128, 64, theta=1e6),)
    assert qkvfuse.spec_from_config(QWEN3, dtype="float32").spec.x_dtype == "float32"
    table = qkvfuse.rope_table(model.rope_tables[0], model.spec.rope)
    cache = Cache("bfloat16", "paged_nhd", 4, 16)
    plan = qkvfuse.Plan(model.spec, k_cache=cache, v_cache=cache)
    assert plan.operands(3)["cos"] == (table.shape, "float32", False)
    with pytest.raises(ValueError, match="model_type"):
        qkvfuse.spec_from_config({**QWEN3, "model_type": "mamba"})
    with pytest.raises(ValueError, match="no_such_file"):
        qkvfuse.spec_from_config("no_such_file.json")
