"""torch.ops.qkvfuse.*: traced whole by torch.compile, and called by tensor-parallel ranks."""

from __future__ import annotations

import os
import tempfile
from typing import Any

import numpy as np
import pytest

import qkvfuse
from calls import arrays_of, bits, qwen_plan

torch = pytest.importorskip("torch")
import qkvfuse.torch  # noqa: E402

OUTPUTS = ("q_out", "k_cache", "v_cache")


def _tensors(arrays: dict[str, Any]) -> dict[str, Any]:
    def tensor(value: Any) -> Any:
        if str(value.dtype) == "bfloat16":
            return torch.from_numpy(value.view(np.int16)).view(torch.bfloat16)
        return torch.from_numpy(value)

    return {name: tensor(value) for name, value in arrays.items()}


class Prologue(torch.nn.Module):
    """A projection, the fused call, and something behind it, as a layer of a model has them."""

    def __init__(self, plan: qkvfuse.Plan) -> None:
        super().__init__()
        self.spec = plan.spec.to_json()
        torch.manual_seed(0)
        self.projection = torch.nn.Linear(32, 512, bias=False, dtype=torch.bfloat16)
        parameters = _tensors(arrays_of(plan))
        self.q_gamma = torch.nn.Parameter(parameters["q_gamma"].clone(), requires_grad=False)
        self.k_gamma = torch.nn.Parameter(parameters["k_gamma"].clone(), requires_grad=False)

    def forward(
        self, hidden: Any, cos: Any, sin: Any, slots: Any, scale: Any, k_cache: Any, v_cache: Any
    ) -> Any:
        q = hidden.new_empty(hidden.shape[0], 4, 64)
        torch.ops.qkvfuse.fused_qkv(
            self.spec,
            self.projection(hidden),
            q_gamma=self.q_gamma,
            k_gamma=self.k_gamma,
            cos=cos,
            sin=sin,
            slots=slots,
            k_scale=scale,
            v_scale=scale,
            q_out=q,
            k_cache=k_cache,
            v_cache=v_cache,
        )
        return q * 2


def _inputs(tokens: int) -> tuple[Any, ...]:
    given = _tensors(arrays_of(qwen_plan(), tokens))
    hidden = torch.randn(tokens, 32, generator=torch.Generator().manual_seed(1)).bfloat16()
    names = ("cos", "sin", "slots", "k_scale", "k_cache", "v_cache")
    return (hidden, *(given[name].clone() for name in names))


def test_compile_of_a_whole_module_equals_eager() -> None:
    module = Prologue(qwen_plan()).eval()
    compiled = torch.compile(module, fullgraph=True, backend="aot_eager")
    with torch.no_grad():
        for tokens in (3, 5):
            eager_inputs, inputs = _inputs(tokens), _inputs(tokens)
            expected = module(*eager_inputs)
            assert torch.equal(compiled(*inputs), expected)
            for cache, eager_cache in zip(inputs[-2:], eager_inputs[-2:], strict=True):
                assert torch.equal(cache, eager_cache) and torch.count_nonzero(cache) > 0


def test_opcheck_of_the_general_operator() -> None:
    plan = qwen_plan()
    arrays = _tensors(arrays_of(plan))
    x = arrays.pop("x")
    torch.library.opcheck(
        torch.ops.qkvfuse.fused_qkv.default,
        (plan.spec.to_json(), x),
        arrays,
        test_utils=("test_schema", "test_faketensor", "test_aot_dispatch_static"),
    )


@pytest.mark.parametrize("is_output_qkv", [False, True])
def test_the_operators_of_ascend_are_torch_operators(is_output_qkv: bool) -> None:
    half = torch.float16
    arguments = (
        torch.randn(2, 128).to(half),
        torch.ones(32, dtype=half),
        torch.ones(32, dtype=half),
        torch.ones(2, 32, dtype=half),
        torch.zeros(2, 32, dtype=half),
        torch.tensor([3, 5]),
        torch.zeros(2, 64, dtype=half),
        torch.zeros(2, 1, 4, 32, dtype=torch.int8),
        torch.zeros(2, 1, 4, 32, dtype=torch.int8),
        [1, 2, 4, 32],
        [2, 1, 1],
    )
    keywords = {
        "k_scale": torch.ones(1, 32),
        "v_scale": torch.full((1, 32), 0.1),
        "is_output_qkv": is_output_qkv,
    }
    torch.library.opcheck(
        torch.ops.qkvfuse.npu_qkv_rms_norm_rope_cache.default,
        arguments,
        keywords,
        test_utils=("test_schema", "test_faketensor"),
    )
    q, _, v = torch.ops.qkvfuse.npu_qkv_rms_norm_rope_cache(*arguments, **keywords)
    if is_output_qkv:
        assert torch.equal(q, arguments[6]) and torch.equal(v, arguments[0][:, 96:])
    else:
        assert q.numel() == 0


@pytest.mark.parametrize("shape", [(2, 64), (2, 3, 64)])
def test_drq_as_a_torch_operator(shape: tuple[int, ...]) -> None:
    half = torch.float16
    angles = (*shape[:-1], 1, 16) if len(shape) == 3 else (*shape[:-1], 16)
    arguments = (
        torch.randint(-9, 9, shape, dtype=torch.int32),
        torch.ones(angles, dtype=half),
        torch.zeros(angles, dtype=half),
        torch.zeros(2, 8, 1, 16, dtype=torch.int8),
        torch.zeros(2, 8, 1, 16, dtype=torch.int8),
        torch.tensor([3, 1], dtype=torch.int32),
        torch.ones(16),
        torch.ones(16),
        [32, 16, 16],
    )
    keywords = {"weight_scale": torch.ones(64), "kv_output": True}
    torch.library.opcheck(
        torch.ops.qkvfuse.npu_dequant_rope_quant_kvcache.default,
        arguments,
        keywords,
        test_utils=("test_schema", "test_faketensor"),
    )
    q, k, v = torch.ops.qkvfuse.npu_dequant_rope_quant_kvcache(*arguments, **keywords)
    assert q.shape == (*shape[:-1], 2, 16) and v.dtype == half
    assert torch.equal(v.flatten(), arguments[0][..., 48:].flatten().to(half))
    assert torch.equal(k.flatten(), arguments[0][..., 32:48].flatten().to(half))


def test_reading_back_is_a_torch_operator() -> None:
    plan = qwen_plan()
    arrays = _tensors(arrays_of(plan))
    plan.run(**arrays)
    out = torch.zeros(3, 2, 64)
    torch.ops.qkvfuse.read_cache(
        plan.spec.k_cache.to_json(),
        arrays["k_cache"],
        2,
        64,
        arrays["slots"],
        out,
        scale=arrays["k_scale"],
    )
    codes = arrays["k_cache"].reshape(64, 2, 64)[arrays["slots"]].float()
    assert torch.equal(out, codes * arrays["k_scale"].reshape(1, 2, 1))


def _fields(ranks: int, norm: str) -> dict[str, Any]:
    cache = qkvfuse.Cache("int8", "paged_nhd", blocks=4, block_size=16, granularity="head")
    heads = (8 // ranks, 4 // ranks, 4 // ranks)
    kind = {
        part: qkvfuse.Norm(norm, total_heads=total if norm == "full_width" and ranks > 1 else 0)
        for part, total in (("q_norm", 8), ("k_norm", 4))
    }
    return {
        "x_dtype": "bfloat16",
        "heads": heads,
        "head_dim": 64,
        "is_separate": True,
        "k_cache": cache,
        "v_cache": cache,
        **kind,
    }


def _rank(rank: int, ranks: int, norm: str, folder: str) -> None:
    """One process: its own heads of the whole call, which every rank makes from the same seed."""
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/store", rank=rank, world_size=ranks
    )
    whole = _tensors(arrays_of(qkvfuse.Plan(**_fields(1, norm)), 5))
    plan = qkvfuse.Plan(**_fields(ranks, norm))
    mine: dict[str, Any] = {}
    for name, operand in plan.operands(5).items():
        if name in ("q_sums", "k_sums"):
            continue
        axis = next(
            (
                a
                for a, (own, all_) in enumerate(zip(operand.shape, whole[name].shape, strict=True))
                if own != all_
            ),
            None,
        )
        chunks = [whole[name]] if axis is None else whole[name].chunk(ranks, axis)
        mine[name] = chunks[rank % len(chunks)].contiguous()
    spec = plan.spec.to_json()
    if norm == "full_width":
        sums = {
            "q_head_sums": torch.zeros(5, 8 // ranks),
            "k_head_sums": torch.zeros(5, 4 // ranks),
        }
        torch.ops.qkvfuse.fused_qkv(spec, measures=True, q=mine["q"], k=mine["k"], **sums)
        for name, own in sums.items():
            gathered = [torch.zeros_like(own) for _ in range(ranks)]
            torch.distributed.all_gather(gathered, own)
            mine[name.replace("head_", "")] = torch.cat(gathered, dim=1)
    torch.ops.qkvfuse.fused_qkv(spec, **mine)
    torch.save({name: mine[name] for name in OUTPUTS}, f"{folder}/{rank}.pt")
    torch.distributed.destroy_process_group()


@pytest.mark.parametrize("norm", ["per_head", "full_width"])
def test_two_ranks_together_give_the_bits_of_one_process(norm: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(_rank, args=(2, norm, folder), nprocs=2)
        parts = [torch.load(os.path.join(folder, f"{rank}.pt")) for rank in range(2)]
    plan = qkvfuse.Plan(**_fields(1, norm))
    arrays = arrays_of(plan, 5)
    plan.run(**arrays)
    axes = {"q_out": 1, "k_cache": 2, "v_cache": 2}
    for name, axis in axes.items():
        together = torch.cat([part[name] for part in parts], dim=axis)
        together = together.view(torch.int16 if together.element_size() == 2 else torch.uint8)
        assert np.array_equal(bits(together.numpy()), bits(arrays[name])), name


def test_errors_are_the_doors() -> None:
    plan = qwen_plan()
    arrays = _tensors(arrays_of(plan))
    with pytest.raises(ValueError, match=r"q_out: shape is \[2, 4, 64\], must be \[3, 4, 64\]"):
        torch.ops.qkvfuse.fused_qkv(plan.spec.to_json(), **{**arrays, "q_out": arrays["q_out"][:2]})
