"""What the general door refuses, in which words, and that refusals write nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import qkvfuse
from calls import arrays_of, bits, qwen_plan


def _read_only(array: Any) -> Any:
    array = array.copy()
    array.flags.writeable = False
    return array


REFUSED: dict[str, tuple[type[Exception], str, Callable[[dict[str, Any]], dict[str, Any]]]] = {
    "dtype": (
        TypeError,
        "x: type is float32, must be bfloat16",
        lambda a: {"x": a["x"].astype(np.float32)},
    ),
    "dtype that is not ours": (
        TypeError,
        "k_scale: type is float64, must be float32",
        lambda a: {"k_scale": a["k_scale"].astype(np.float64)},
    ),
    "width of x": (
        ValueError,
        "x: shape is [3, 500], must be [tokens, 512] or [batch, sequence, 512], or with the heads "
        "as [8, 64]",
        lambda a: {"x": a["x"][:, :500]},
    ),
    "tokens of an output": (
        ValueError,
        "q_out: shape is [2, 4, 64], must be [3, 4, 64]",
        lambda a: {"q_out": a["q_out"][:2]},
    ),
    "rows of cos": (
        ValueError,
        "cos: shape is [2, 64], must be [3, 64]",
        lambda a: {"cos": a["cos"][:2]},
    ),
    "transposed cache": (
        ValueError,
        "k_cache: shape is [64, 2, 16, 4], must be [4, 16, 2, 64]",
        lambda a: {"k_cache": a["k_cache"].T},
    ),
    "scales of another granularity": (
        ValueError,
        "k_scale: shape is [2, 64], must be [2]",
        lambda a: {"k_scale": np.ones((2, 64), np.float32)},
    ),
    "a read-only cache": (
        ValueError,
        "k_cache: is read-only, must be writable, since it is an output",
        lambda a: {"k_cache": _read_only(a["k_cache"])},
    ),
    "a read-only bf16 output": (
        ValueError,
        "q_out: is read-only, must be writable, since it is an output",
        lambda a: {"q_out": _read_only(a["q_out"])},
    ),
    "no array": (
        TypeError,
        "k_scale: is a float, must be an array with DLPack or the buffer protocol",
        lambda a: {"k_scale": 0.5},
    ),
    "a list": (
        TypeError,
        "slots: is a list, must be an array with DLPack or the buffer protocol",
        lambda a: {"slots": [0, 1, 2]},
    ),
    "missing": (TypeError, "sin: is missing, must be given", lambda a: {"sin": None}),
    "missing x": (TypeError, "x: is missing, must be given", lambda a: {"x": None}),
    "not needed": (
        TypeError,
        "v_gamma: is given, but the Spec has no use for it",
        lambda a: {"v_gamma": a["k_gamma"]},
    ),
    "not known": (
        TypeError,
        "kcache: is given, but the Spec has no use for it",
        lambda a: {"kcache": a["k_cache"]},
    ),
    "a repeated slot": (
        ValueError,
        "slots: elements 0 and 1 are both 7, every slot must be named once, -1 excepted (strict "
        "mode)",
        lambda a: {"slots": np.array([7, 7, 1])},
    ),
    "a slot behind the cache": (
        ValueError,
        "slots: element 1 is 64, must be below 64, the slots of the cache",
        lambda a: {"slots": np.array([1, 64, 2])},
    ),
    "int32 slots": (
        TypeError,
        "slots: type is int32, must be int64",
        lambda a: {"slots": a["slots"].astype(np.int32)},
    ),
    "a scale of 0": (
        ValueError,
        "v_scale: element 1 is 0, every scale must differ from 0 (strict mode)",
        lambda a: {"v_scale": np.array([1, 0], np.float32)},
    ),
    "an output that overlaps itself": (
        ValueError,
        "q_out: its strides put two elements at one address, an output must not overlap itself",
        lambda a: {"q_out": np.lib.stride_tricks.as_strided(a["q_out"], strides=(0, 128, 2))},
    ),
    "caches in the same memory": (
        ValueError,
        "k_cache: overlaps v_cache, an output must not share an element with another tensor",
        lambda a: {"v_cache": a["k_cache"]},
    ),
    "tokens that x does not have": (
        ValueError,
        "x: shape is [3, 512], must be [2, 512]",
        lambda a: {"tokens": 2},
    ),
    "negative tokens": (
        ValueError,
        "tokens: are 1 x -1, must be from 0 to 2^32 in all",
        lambda a: {"tokens": -1},
    ),
    "tokens of three axes": (
        ValueError,
        "tokens: has 3 values, must have 2, (batch, sequence)",
        lambda a: {"tokens": (1, 1, 3)},
    ),
    "negative threads": (
        ValueError,
        "threads: is -1, must be 0 or more",
        lambda a: {"threads": -1},
    ),
    "threads of another type": (
        TypeError,
        "threads: is 'two', must be an integer",
        lambda a: {"threads": "two"},
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals_name_the_argument_and_write_nothing(name: str) -> None:
    kind, sentence, change = REFUSED[name]
    plan = qwen_plan()
    arrays = arrays_of(plan)
    arrays = {**arrays, **change(arrays)}
    before = {key: array.copy() for key, array in arrays.items() if isinstance(array, np.ndarray)}
    with pytest.raises(kind) as refused:
        plan.run(**arrays)
    assert str(refused.value).startswith(sentence)
    for key, array in before.items():
        assert np.array_equal(bits(array), bits(arrays[key])), key


REFUSED_SPECS: dict[str, tuple[type[Exception], str, dict[str, Any]]] = {
    "odd head_dim": (
        ValueError,
        "head_dim: head_dim is 63, must be an even number from 2 to 1024",
        {"head_dim": 63},
    ),
    "head_dim of another type": (
        TypeError,
        "head_dim: is 2.5, must be an integer of 64 bits",
        {"head_dim": 2.5},
    ),
    "a fraction of a head": (
        TypeError,
        "heads: is (4, 1.5, 2), must be integers",
        {"heads": (4, 1.5, 2)},
    ),
    "a word for a truth value": (
        TypeError,
        "is_separate: is 'no', must be True or False",
        {"is_separate": "no"},
    ),
    "an unknown norm": (
        ValueError,
        "q_norm: is 'layer', must be none, per_head or full_width",
        {"q_norm": "layer"},
    ),
    "an unknown dtype": (
        ValueError,
        "x_dtype: is 'float64', must be float32, float16, bfloat16, int8, int32, int64, "
        "float8_e4m3fn or float8_e5m2",
        {"x_dtype": "float64"},
    ),
    "words of Python in sentences of the core": (
        ValueError,
        "rope: pairing is none, but rotary_dim is 64, must be left out",
        {"rope": qkvfuse.Rope(pairing="none", rotary_dim=64)},
    ),
    "one cache": (
        ValueError,
        "v_cache: is absent, but k_cache is given, must be given with it",
        {"v_cache": None},
    ),
    "a path": (ValueError, "path: is 'slow', must be auto, general or fused", {"path": "slow"}),
    "a target": (ValueError, "target: is mmx, must be one of ", {"target": "mmx"}),
    "an unknown field": (
        TypeError,
        "Spec.__init__() got an unexpected keyword argument 'kv_heads'",
        {"kv_heads": 2},
    ),
    "a cache that is none": (
        TypeError,
        "k_cache: is 'int8', must be a Cache",
        {"k_cache": "int8"},
    ),
    "chunks that do not divide": (
        ValueError,
        "k_cache: chunk is 48, must divide 64, the head_dim",
        {"k_cache": qkvfuse.Cache("int8", "pa_nz", 4, 16, chunk=48)},
    ),
    "no blocks": (
        ValueError,
        "k_cache.blocks: is 0, must be at least 1",
        {"k_cache": qkvfuse.Cache("int8", "paged_nhd", 0, 16)},
    ),
    "sizes beyond 64 bits": (
        ValueError,
        "k_cache: 4611686018427387904 blocks of 16 rows, 2 heads and 64 channels, must fit 64 bits",
        {"k_cache": qkvfuse.Cache("int8", "paged_nhd", 2**62, 16)},
    ),
}


@pytest.mark.parametrize("name", REFUSED_SPECS)
def test_specs_that_contradict_themselves_are_refused(name: str) -> None:
    kind, sentence, fields = REFUSED_SPECS[name]
    with pytest.raises(kind) as refused:
        qwen_plan(**fields)
    assert str(refused.value).startswith(sentence)


@pytest.mark.parametrize(
    ("layout", "sentence"),
    [
        ("nhd", "layout: is 'nhd', must be paged_nhd, "),
        ("block row head row", "layout: 'block row head row' names the axis row twice"),
        ("row head channel", "layout: 'row head channel' does not name the axis block"),
        ("block head row_chunk channel", "layout: 'block head row_chunk channel' does not name "),
        ("block row*head channel", "layout: is 'block row*head channel', must be"),
    ],
)
def test_layouts_that_are_none(layout: str, sentence: str) -> None:
    with pytest.raises(ValueError) as refused:
        qkvfuse.Cache("int8", layout, 4, 16)
    assert str(refused.value).startswith(sentence)
