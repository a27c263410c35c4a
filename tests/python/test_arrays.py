"""Arrays that look like what they are not, and lists that do not follow each other."""

from __future__ import annotations

import copy
import ctypes
import multiprocessing
import pickle
import threading
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import qkvfuse
from calls import arrays_of, bits, qwen_plan

OUTPUTS = ("q_out", "k_cache", "v_cache")


@pytest.mark.parametrize("tokens", [6, (2, 3)])
def test_cos_may_have_an_axis_of_heads_and_no_other(tokens: Any) -> None:
    plan = qwen_plan()
    plain = arrays_of(plan, tokens)
    plan.run(**plain)
    leading = plain["cos"].shape[:-1]
    for gap in (1, 3):  # with gaps between the rows, too
        arrays = arrays_of(plan, tokens)
        for name in ("cos", "sin"):
            wide = np.full((*leading, gap, 64), np.nan, arrays[name].dtype)
            wide[..., 0, :] = arrays[name]
            arrays[name] = wide[..., :1, :]
        plan.run(**arrays)
        assert all(np.array_equal(bits(arrays[n]), bits(plain[n])) for n in OUTPUTS)
    for shape in [(6, 1, 1, 64), (1, 6, 1, 64), (1, 1, 6, 64), (6, 64, 1), (2, 3, 1, 1, 64)]:
        if shape == (1, 6, 1, 64) and tokens == 6:
            continue  # one sequence of six tokens
        arrays = arrays_of(plan, tokens)
        with pytest.raises(ValueError, match="cos: shape is"):
            plan.run(**{**arrays, "cos": np.ones(shape, arrays["cos"].dtype)})


def test_buffers_of_ctypes() -> None:
    plan = qkvfuse.Plan(x_dtype="float32", heads=(1, 1, 1), head_dim=2, rope="none")
    x = ((ctypes.c_float * 6) * 1)()
    x[0][0], x[0][1] = 3, 4
    q = ((ctypes.c_float * 2) * 1)()
    plan.run(x=x, q_out=q)
    assert list(q[0]) == [3, 4]


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, np.float32, np.int64])
def test_another_byte_order_is_refused(dtype: Any) -> None:
    plan = qwen_plan()
    arrays = arrays_of(plan)
    swapped = np.zeros((3, 512), np.dtype(dtype).newbyteorder(">"))
    with pytest.raises(TypeError, match="x: type is .* of another byte order, must be bfloat16"):
        plan.run(**{**arrays, "x": swapped})


def test_masked_arrays_are_refused() -> None:
    plan = qwen_plan()
    arrays = arrays_of(plan)
    slots = np.ma.masked_array(arrays["slots"], mask=[False, True, False])
    with pytest.raises(TypeError, match="slots: is a masked array, must be an array without"):
        plan.run(**{**arrays, "slots": slots})


def test_tensors_that_are_not_their_memory_are_refused() -> None:
    torch = pytest.importorskip("torch")
    plan = qkvfuse.Plan(x_dtype="float32", heads=(1, 1, 1), head_dim=2, rope="none")
    negated = torch.complex(torch.zeros(1, 6), torch.ones(1, 6)).conj().imag
    q = torch.zeros(1, 1, 2)
    with pytest.raises(ValueError, match="x: is a view that negates its memory, must be resolved"):
        plan.run(x=negated, q_out=q)
    plan.run(x=negated.resolve_neg(), q_out=q)
    assert q.flatten().tolist() == [-1, -1]
    with pytest.raises(ValueError, match="q_out: requires gradients, must be detached"):
        plan.run(x=torch.ones(1, 6), q_out=torch.zeros(1, 1, 2, requires_grad=True))
    with pytest.raises(TypeError, match="x: lies on meta, must be in CPU memory"):
        plan.run(x=torch.zeros(1, 6, device="meta"), q_out=q)


def test_short_lists_may_have_any_strides() -> None:
    plan = qwen_plan(rope=qkvfuse.Rope(table="joined", max_positions=8))
    plain = arrays_of(plan, (2, 3))
    plan.run(**plain)
    for name in ("slots", "positions"):
        arrays = arrays_of(plan, (2, 3))
        wide = np.full((2, 9), -7, np.int64)
        wide[:, 1:7:2] = arrays[name]
        plan.run(**{**arrays, name: wide[:, 1:7:2]})
        assert all(np.array_equal(bits(arrays[n]), bits(plain[n])) for n in OUTPUTS)


def test_measuring_plans_are_values_too() -> None:
    plan = qwen_plan(q_norm=qkvfuse.Norm("full_width", total_heads=8)).measure()
    for again in (pickle.loads(pickle.dumps(plan)), copy.deepcopy(plan)):
        assert set(again.operands(1)) == set(plan.operands(1)) == {"x", "q_head_sums"}
        assert repr(again) == repr(plan) and repr(plan).endswith(".measure()")


def test_numbers_are_checked() -> None:
    plan = qwen_plan()
    for call in (plan.describe, plan.traffic):
        with pytest.raises(ValueError, match=r"tokens: is -1, must be from 0 to 2\^32"):
            call(-1)
        with pytest.raises(TypeError, match="tokens: is 'x', must be an integer"):
            call("x")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="sequences: is -1"):
        plan.operands(1, sequences=-1)
    with pytest.raises(TypeError, match="strict: is None, must be True or False"):
        qwen_plan(strict=None)
    with pytest.raises(TypeError, match="path: is None, must be a string"):
        qwen_plan(path=None)
    with pytest.raises(TypeError, match="threads: is None, must be an integer"):
        plan.run(threads=None, **arrays_of(plan))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"heads: is \(True, 1, 1\), must be integers"):
        qwen_plan(heads=(True, 1, 1))
    with pytest.raises(TypeError, match="layout: is None, must be a string"):
        qkvfuse.Cache("int8", None, 4)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="dtype: is None, must be float32, "):
        qkvfuse.Cache(None, "paged_nhd", 4)


def test_zero_tokens_do_nothing() -> None:
    plan = qwen_plan()
    plan.run(**arrays_of(plan, 0))
    p = np.float16
    cache = np.zeros((2, 4, 1, 32), np.int8)
    scale = np.ones((1, 32), np.float32)
    q, k, v = qkvfuse.npu_qkv_rms_norm_rope_cache(
        np.zeros((0, 128), p),
        np.ones(32, p),
        np.ones(32, p),
        np.zeros((0, 32), p),
        np.zeros((0, 32), p),
        np.zeros(0, np.int64),
        np.zeros((0, 64), p),
        cache,
        cache.copy(),
        [1, 0, 4, 32],
        [2, 1, 1],
        k_scale=scale,
        v_scale=scale,
        cache_mode="PA",
        is_output_qkv=True,
    )
    assert q.shape == (0, 64) and k.shape == v.shape == (0, 32)
    q, *_ = qkvfuse.npu_dequant_rope_quant_kvcache(
        np.zeros((0, 128), p),
        np.zeros((0, 32), p),
        np.zeros((0, 32), p),
        cache,
        cache.copy(),
        np.zeros(0, np.int32),
        scale,
        scale,
        [64, 32, 32],
    )
    assert q.shape == (0, 2, 32) and not cache.any()


def _forks_beside_a_running_thread() -> None:
    plan = qwen_plan()
    stop = threading.Event()

    def work(seed: int) -> None:
        arrays = arrays_of(plan, 8, seed)
        while not stop.is_set():
            for padding in range(20):  # strides that the plan has not met
                wide = np.zeros((8, 512 + padding), arrays["x"].dtype)
                plan.run(threads=1, **{**arrays, "x": wide[:, :512]})

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(3)]
    for thread in threads:
        thread.start()
    context = multiprocessing.get_context("fork")
    try:
        for _ in range(20):
            child = context.Process(target=plan.run, kwargs=arrays_of(plan, 8))
            child.start()
            child.join(timeout=30)
            assert child.exitcode == 0, "the child of a fork hangs"
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def test_fork_while_other_threads_run() -> None:
    parent = multiprocessing.get_context("spawn").Process(target=_forks_beside_a_running_thread)
    parent.start()
    parent.join(timeout=120)
    assert parent.exitcode == 0
