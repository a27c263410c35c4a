"""The general door: what it takes, what it refuses, and that refusals write nothing."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import qkvfuse
from calls import BF16, TOKENS, arrays_of, bits, qwen_plan
from qkvfuse import verify


def _library(spec: Any, tokens: Any, arrays: dict[str, Any], is_measured: bool) -> None:
    plan = qkvfuse.Plan(spec, strict=False)
    (plan.measure() if is_measured else plan).run(tokens=tokens, **arrays)


@settings(max_examples=400, deadline=None)
@given(st.integers(min_value=0, max_value=2**63 - 1))
def test_random_specs_shapes_strides_and_dtypes_equal_the_oracle(seed: int) -> None:
    case = verify.random_case(np.random.default_rng(seed))
    elements, differences = verify.check(case, _library)
    assert not differences, (differences, str(case))


def test_a_call_by_hand() -> None:
    # One token of ones: the mean square is 1, so k = 1 / sqrt(1 + 3) = 0.5 and k / 0.125 = code 4;
    # v is not normalised: 1 / 0.25 = code 4, at slot 18 = block 1, row 2.
    plan = qwen_plan(rope="none", epsilon=3.0)
    arrays = arrays_of(plan, 1)
    arrays["x"][:] = 1
    arrays["q_gamma"][:] = 2
    arrays["k_gamma"][:] = 1
    arrays["k_scale"][:] = 0.125
    arrays["v_scale"][:] = 0.25
    arrays["slots"][:] = 18
    plan.run(**arrays)
    assert np.all(arrays["q_out"].astype(np.float32) == 1.0)
    for name in ("k_cache", "v_cache"):
        assert np.all(arrays[name][1, 2] == 4)
        assert np.count_nonzero(arrays[name]) == 2 * 64


@pytest.mark.parametrize("tokens", [6, (2, 3)])
def test_token_axes_and_heads_may_be_apart_or_joined(tokens: Any) -> None:
    plan = qwen_plan()
    one = arrays_of(plan, tokens)
    plan.run(**one)
    flat = arrays_of(plan, tokens)
    flat = {
        name: array.reshape(6, -1) if name in ("x", "q_out", "cos", "sin") else array
        for name, array in flat.items()
    }
    flat["slots"] = flat["slots"].reshape(6)
    plan.run(**flat)
    for name in ("q_out", "k_cache", "v_cache"):
        assert np.array_equal(bits(one[name]).ravel(), bits(flat[name]).ravel()), name
    apart = arrays_of(plan, tokens)
    apart["x"] = apart["x"].reshape(*one["x"].shape[:-1], 8, 64)
    plan.run(**apart)
    assert np.array_equal(bits(one["q_out"]), bits(apart["q_out"]))


def _fortran(array: Any) -> Any:
    return np.asfortranarray(array)


def _reversed(array: Any) -> Any:
    return array[tuple(slice(None, None, -1) for _ in array.shape)].copy()[
        tuple(slice(None, None, -1) for _ in array.shape)
    ]


def _spread(array: Any) -> Any:
    wide = np.zeros(tuple(2 * size for size in array.shape), array.dtype)
    view = wide[tuple(slice(None, None, 2) for _ in array.shape)]
    view[...] = array
    return view


@pytest.mark.parametrize("arranged", [_fortran, _reversed, _spread])
def test_every_array_may_have_any_strides(arranged: Callable[[Any], Any]) -> None:
    plan = qwen_plan()
    plain = arrays_of(plan)
    plan.run(**plain)
    for name in plain:
        arrays = arrays_of(plan)
        arrays[name] = arranged(arrays[name])
        plan.run(**arrays)
        for output in ("q_out", "k_cache", "v_cache"):
            assert np.array_equal(bits(plain[output]), bits(arrays[output])), (name, output)


def test_keys_and_values_in_one_buffer() -> None:
    plan = qwen_plan()
    plain = arrays_of(plan)
    plan.run(**plain)
    both = np.zeros((4, 2, 16, 2, 64), np.int8)
    plan.run(**{**arrays_of(plan), "k_cache": both[:, 0], "v_cache": both[:, 1]})
    assert np.array_equal(both[:, 0], plain["k_cache"])
    assert np.array_equal(both[:, 1], plain["v_cache"])


def test_the_general_path_gives_the_same_bits_on_every_target_and_thread_count() -> None:
    outputs = []
    for target in qkvfuse.available_targets():
        for path in ("fused", "general"):
            for threads in (1, 2, 5):
                plan = qwen_plan(target=target, path=path)
                arrays = arrays_of(plan, 64)
                plan.run(threads=threads, **arrays)
                outputs.append([bits(arrays[n]) for n in ("q_out", "k_cache", "v_cache")])
    for other in outputs[1:]:
        assert all(np.array_equal(a, b) for a, b in zip(outputs[0], other, strict=True))


def test_what_a_plan_says_of_itself() -> None:
    plan = qwen_plan()
    assert plan.target == qkvfuse.available_targets()[0] and plan.is_fused
    assert "q: 4 heads of 64, bf16" in plan.describe(TOKENS)
    operands = plan.operands((2, 3))
    assert operands["x"] == ((2, 3, 512), "bfloat16", False)
    assert operands["k_cache"] == ((4, 16, 2, 64), "int8", True)
    assert set(plan.zeros(3)) == {"q_out", "k_cache", "v_cache"}
    assert plan.zeros(3)["q_out"].dtype == BF16
    read, written = plan.traffic(3)
    # x, cos and sin of 3 tokens, two gammas, 2 + 2 scales, 3 slots; q and the codes of k and v.
    assert read == 2 * 3 * (512 + 2 * 64) + 2 * 2 * 64 + 4 * 4 + 8 * 3
    assert written == 2 * 3 * 256 + 3 * 2 * 128


def test_plans_and_specs_are_values() -> None:
    plan = qwen_plan(strict=False, rope=qkvfuse.Rope(table="joined", max_positions=8))
    again = pickle.loads(pickle.dumps(plan))
    assert again.spec == plan.spec and repr(again) == repr(plan)
    assert qkvfuse.Spec.from_json(plan.spec.to_json()) == plan.spec
    assert qkvfuse.Plan(plan.spec, head_dim=32).spec.head_dim == 32
    with pytest.raises(ValueError, match="must be a JSON object"):
        qkvfuse.Spec.from_json("[]")


def test_page_tables() -> None:
    # docs/cache_layouts.md: block_size 4, lengths [6, 9], row_offsets [0, 5, 6].
    cache = qkvfuse.Cache("float32", "paged_nhd", blocks=8, block_size=4)
    plan = qkvfuse.Plan(
        x_dtype="float32",
        heads=(1, 1, 1),
        head_dim=2,
        rope="none",
        k_cache=cache,
        v_cache=cache,
        slots=qkvfuse.Slots("page_table", pages=3),
    )
    x = np.arange(1, 37, dtype=np.float32).reshape(6, 6)
    out = plan.zeros(6)
    page_table = np.array([[7, 2, -1], [0, 5, 3]])
    plan.run(
        x=x,
        slots=page_table,
        lengths=np.array([6, 9]),
        row_offsets=np.array([0, 5, 6]),
        **out,
    )
    rows = [(7, 1), (7, 2), (7, 3), (2, 0), (2, 1), (3, 0)]
    for token, (block, row) in enumerate(rows):
        assert np.array_equal(out["k_cache"][block, row, 0], x[token, 2:4])
        assert np.array_equal(out["v_cache"][block, row, 0], x[token, 4:6])
    assert np.count_nonzero(out["k_cache"]) == 2 * 6
