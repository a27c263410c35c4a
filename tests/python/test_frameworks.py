"""Arrays of PyTorch, JAX and the buffer protocol: in without copies, bit for bit as from NumPy."""

from __future__ import annotations

import array
from typing import Any

import numpy as np
import pytest

import qkvfuse
from calls import arrays_of, bits, qwen_plan


def _torch_tensor(value: Any) -> Any:
    torch = pytest.importorskip("torch")
    if value.dtype.kind in "iu" or value.dtype in (np.float32, np.float16):
        return torch.from_numpy(value)
    integer = torch.from_numpy(value.view(f"i{value.itemsize}"))
    return integer.view(getattr(torch, str(value.dtype)))


@pytest.mark.parametrize(
    "dtype", ["float32", "float16", "bfloat16", "int8", "float8_e4m3fn", "float8_e5m2"]
)
def test_torch_tensors_of_every_dtype(dtype: str) -> None:
    cache = qkvfuse.Cache(
        dtype,
        "paged_nhd",
        blocks=4,
        block_size=16,
        granularity=("channel" if dtype[-2:] in ("32", "16") else "head"),
    )
    plan = qwen_plan(k_cache=cache, v_cache=cache)
    ours = arrays_of(plan)
    plan.run(**ours)
    arrays = arrays_of(plan)
    plan.run(**{name: _torch_tensor(value) for name, value in arrays.items()})
    for name in ("q_out", "k_cache", "v_cache"):  # the tensors share the arrays' memory
        assert np.array_equal(bits(ours[name]), bits(arrays[name])), name
    assert np.count_nonzero(bits(arrays["k_cache"])) > 0


def test_torch_outputs_for_torch_inputs() -> None:
    torch = pytest.importorskip("torch")
    x = torch.arange(4 * 16, dtype=torch.float16).reshape(1, 64)
    cos, sin = torch.ones(1, 16, dtype=torch.float16), torch.zeros(1, 16, dtype=torch.float16)
    caches = [torch.zeros(1, 4, 1, 16, dtype=torch.int8) for _ in range(2)]
    scale = torch.full((16,), 0.5)
    q, k, v, k_cache, _ = qkvfuse.npu_dequant_rope_quant_kvcache(
        x,
        cos,
        sin,
        *caches,
        torch.tensor([2], dtype=torch.int32),
        scale,
        scale,
        [32, 16, 16],
        kv_output=True,
    )
    assert torch.equal(q.reshape(-1), x[0, :32]) and torch.equal(v.reshape(-1), x[0, 48:])
    assert k.dtype == torch.float16 and k_cache is caches[0]
    assert caches[0][0, 2, 0].tolist() == [2 * value for value in range(32, 48)]
    plan = qwen_plan()
    zeros = plan.zeros(2, like=x)
    assert zeros["q_out"].dtype == torch.bfloat16 and zeros["k_cache"].shape == (4, 16, 2, 64)


def test_strided_torch_views() -> None:
    torch = pytest.importorskip("torch")
    plan = qwen_plan()
    ours = arrays_of(plan)
    plan.run(**ours)
    arrays = {name: _torch_tensor(value) for name, value in arrays_of(plan).items()}
    wide = torch.zeros(3, 2 * 512, dtype=torch.bfloat16)
    wide[:, ::2] = arrays["x"]
    both = torch.zeros(4, 16, 2, 2, 64, dtype=torch.int8)
    plan.run(**{**arrays, "x": wide[:, ::2], "k_cache": both[:, :, 0], "v_cache": both[:, :, 1]})
    assert np.array_equal(both[:, :, 0].numpy(), ours["k_cache"])
    assert np.array_equal(both[:, :, 1].numpy(), ours["v_cache"])


def test_a_tensor_on_a_device_is_refused() -> None:
    torch = pytest.importorskip("torch")
    plan = qwen_plan()
    arrays = arrays_of(plan)
    with pytest.raises(TypeError, match="x: lies on meta, must be in CPU memory"):
        plan.run(**{**arrays, "x": torch.zeros(3, 512, dtype=torch.bfloat16, device="meta")})


def test_jax_arrays_are_inputs_and_no_outputs() -> None:
    jnp = pytest.importorskip("jax.numpy")
    plan = qwen_plan()
    ours = arrays_of(plan)
    plan.run(**ours)
    arrays = arrays_of(plan)
    inputs = {
        name: jnp.asarray(arrays[name])
        for name in ("x", "q_gamma", "k_gamma", "cos", "sin", "k_scale", "v_scale")
    }
    plan.run(**{**arrays, **inputs})
    for name in ("q_out", "k_cache", "v_cache"):
        assert np.array_equal(bits(ours[name]), bits(arrays[name])), name
    with pytest.raises(ValueError, match="q_out: is read-only, must be writable"):
        plan.run(**{**arrays, "q_out": jnp.asarray(arrays["q_out"])})


def test_buffers_without_numpy() -> None:
    plan = qkvfuse.Plan(x_dtype="float32", heads=(1, 1, 1), head_dim=2, rope="none")
    x = memoryview(array.array("f", range(12))).cast("B").cast("f", [2, 6])
    q = bytearray(16)
    plan.run(x=x, q_out=memoryview(q).cast("f", [2, 2]))
    assert memoryview(q).cast("f").tolist() == [0, 1, 6, 7]
    with pytest.raises(ValueError, match="q_out: is read-only"):
        plan.run(x=x, q_out=memoryview(bytes(16)).cast("f", [2, 2]))


@pytest.mark.parametrize(
    ("value", "kind", "sentence"),
    [
        (
            np.ones((3, 512), ">f4"),
            TypeError,
            "x: type is >f4 of another byte order, must be bfloat16",
        ),
        (np.ones((3, 512), np.complex64), TypeError, "x: type is complex64, must be bfloat16"),
        (np.ones((3, 512), object), TypeError, "x: is a ndarray of dtype object that cannot"),
        (np.ones((1,) * 9), TypeError, "x: type is float64"),
        (np.ones((1,) * 9, np.float32), ValueError, "x: has 9 dimensions, must have from 0 to 8"),
        (np.float32(1), TypeError, "x: type is float32, must be bfloat16"),
        ("x", TypeError, "x: is a str, must be an array"),
    ],
)
def test_what_is_no_array_of_ours(value: Any, kind: type[Exception], sentence: str) -> None:
    plan = qwen_plan()
    with pytest.raises(kind) as refused:
        plan.run(tokens=3, **{**arrays_of(plan), "x": value})
    assert str(refused.value).startswith(sentence)
