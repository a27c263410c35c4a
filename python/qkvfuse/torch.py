"""qkvfuse as PyTorch operators, `torch.ops.qkvfuse.*`, for torch.compile and torch.distributed.

Importing this module registers them (torch >= 2.4, CPU tensors):

    fused_qkv(spec, x, ..., q_out, k_cache, v_cache)        the general operator; `spec` is the text
                                                            of a Spec, `spec.to_json()`
    read_cache(cache, data, heads, head_dim, slots, out)    rows of a cache as floats
    npu_qkv_rms_norm_rope_cache(...)                        as torch_npu has them
    npu_dequant_rope_quant_kvcache(...)

Each says which of its arguments it writes, and has a fake implementation, so that
`torch.compile(fullgraph=True)` traces through it. An operator may not return its own arguments, so
caches come back in place only; and not None, so that outputs which are not asked for come back
empty. Under tensor parallelism each rank passes its own heads. Nothing here is differentiable.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any, Optional

import torch
from torch import Tensor

from . import _pages, _upstream
from ._plan import Plan
from ._spec import Cache, Spec

# The names that torch_npu has for a dtype of the outputs are those of the inputs, so no operator
# here takes a dtype. Annotations are Optional and Sequence, from which torch.library infers the
# schema.

_OUTPUTS = (
    "q_out",
    "q_before_quant",
    "k_out",
    "v_out",
    "q_scale_out",
    "q_head_sums",
    "k_head_sums",
    "k_cache",
    "v_cache",
    "k_scale_cache",
    "v_scale_cache",
)


@functools.lru_cache(maxsize=1024)
def _plan_of(spec: str, measures: bool, strict: bool) -> Plan:
    plan = Plan(Spec.from_json(spec), strict=strict)
    return plan.measure() if measures else plan


@functools.lru_cache(maxsize=1024)
def _cache_of(cache: str) -> Cache:
    return Cache.from_json(cache)


def _fused_qkv(
    spec: str,
    x: Optional[Tensor] = None,
    q: Optional[Tensor] = None,
    k: Optional[Tensor] = None,
    v: Optional[Tensor] = None,
    q_gamma: Optional[Tensor] = None,
    k_gamma: Optional[Tensor] = None,
    v_gamma: Optional[Tensor] = None,
    cos: Optional[Tensor] = None,
    sin: Optional[Tensor] = None,
    positions: Optional[Tensor] = None,
    slots: Optional[Tensor] = None,
    lengths: Optional[Tensor] = None,
    row_offsets: Optional[Tensor] = None,
    q_scale: Optional[Tensor] = None,
    k_scale: Optional[Tensor] = None,
    v_scale: Optional[Tensor] = None,
    q_offset: Optional[Tensor] = None,
    k_offset: Optional[Tensor] = None,
    v_offset: Optional[Tensor] = None,
    weight_scale: Optional[Tensor] = None,
    token_scale: Optional[Tensor] = None,
    bias: Optional[Tensor] = None,
    q_sums: Optional[Tensor] = None,
    k_sums: Optional[Tensor] = None,
    q_out: Optional[Tensor] = None,
    q_before_quant: Optional[Tensor] = None,
    k_out: Optional[Tensor] = None,
    v_out: Optional[Tensor] = None,
    q_scale_out: Optional[Tensor] = None,
    q_head_sums: Optional[Tensor] = None,
    k_head_sums: Optional[Tensor] = None,
    k_cache: Optional[Tensor] = None,
    v_cache: Optional[Tensor] = None,
    k_scale_cache: Optional[Tensor] = None,
    v_scale_cache: Optional[Tensor] = None,
    measures: bool = False,
    strict: bool = True,
    threads: int = 0,
) -> None:
    """`Plan.run` of the Spec whose text is `spec`; `measures`: of the plan that `measure` makes.

    Raises:
        TypeError, ValueError: as `Plan` and `Plan.run` do.
    """
    given: dict[str, Any] = {
        name: value for name, value in locals().items() if isinstance(value, Tensor)
    }
    _plan_of(spec, measures, strict).run(threads=threads, **given)


def _read_cache(
    cache: str,
    data: Tensor,
    heads: int,
    head_dim: int,
    slots: Tensor,
    out: Tensor,
    lengths: Optional[Tensor] = None,
    row_offsets: Optional[Tensor] = None,
    scale: Optional[Tensor] = None,
    offset: Optional[Tensor] = None,
    scale_cache: Optional[Tensor] = None,
    threads: int = 0,
) -> None:
    """`qkvfuse.read_cache` of the Cache with this text, into `out` [rows, heads, head_dim]."""
    view = _pages.CacheView(
        _cache_of(cache), data, heads, head_dim, scale=scale, offset=offset, scale_cache=scale_cache
    )
    _pages.read_cache(
        view, slots, lengths=lengths, row_offsets=row_offsets, out=out, threads=threads
    )


def _npu_qkv_rms_norm_rope_cache(
    qkv: Tensor,
    q_gamma: Tensor,
    k_gamma: Tensor,
    cos: Tensor,
    sin: Tensor,
    index: Tensor,
    q_out: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    qkv_size: Sequence[int],
    head_nums: Sequence[int],
    *,
    k_scale: Optional[Tensor] = None,
    v_scale: Optional[Tensor] = None,
    k_offset: Optional[Tensor] = None,
    v_offset: Optional[Tensor] = None,
    epsilon: float = 1e-6,
    cache_mode: str = "PA_NZ",
    is_output_qkv: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:
    """`qkvfuse.npu_qkv_rms_norm_rope_cache`; three empty tensors unless `is_output_qkv`."""
    outputs = _upstream.npu_qkv_rms_norm_rope_cache(
        qkv,
        q_gamma,
        k_gamma,
        cos,
        sin,
        index,
        q_out,
        k_cache,
        v_cache,
        list(qkv_size),
        list(head_nums),
        k_scale=k_scale,
        v_scale=v_scale,
        k_offset=k_offset,
        v_offset=v_offset,
        epsilon=epsilon,
        cache_mode=cache_mode,
        is_output_qkv=is_output_qkv,
    )
    q, k, v = (qkv.new_empty(0) if output is None else output for output in outputs)
    return q, k, v


def _npu_dequant_rope_quant_kvcache(
    x: Tensor,
    cos: Tensor,
    sin: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    indices: Tensor,
    scale_k: Tensor,
    scale_v: Tensor,
    size_splits: Sequence[int],
    *,
    offset_k: Optional[Tensor] = None,
    offset_v: Optional[Tensor] = None,
    weight_scale: Optional[Tensor] = None,
    activation_scale: Optional[Tensor] = None,
    bias: Optional[Tensor] = None,
    quant_mode: int = 0,
    input_layout: str = "BSND",
    kv_output: bool = False,
    cache_mode: str = "contiguous",
) -> tuple[Tensor, Tensor, Tensor]:
    """`qkvfuse.npu_dequant_rope_quant_kvcache` -> (q, k, v), k and v empty unless `kv_output`."""
    outputs = _upstream.npu_dequant_rope_quant_kvcache(
        x,
        cos,
        sin,
        k_cache,
        v_cache,
        indices,
        scale_k,
        scale_v,
        list(size_splits),
        offset_k=offset_k,
        offset_v=offset_v,
        weight_scale=weight_scale,
        activation_scale=activation_scale,
        bias=bias,
        quant_mode=quant_mode,
        input_layout=input_layout,
        kv_output=kv_output,
        cache_mode=cache_mode,
    )[:3]
    q, k, v = (cos.new_empty(0) if output is None else output for output in outputs)
    return q, k, v


def _fake_npu_qkv(*arguments: Any, **keywords: Any) -> tuple[Tensor, Tensor, Tensor]:
    given = _QNR.bind(*arguments, **keywords).arguments
    qkv: Tensor = given["qkv"]
    if not given.get("is_output_qkv", False):
        return qkv.new_empty(0), qkv.new_empty(0), qkv.new_empty(0)
    head_dim = given["qkv_size"][3]
    q, k, v = (qkv.new_empty(qkv.shape[0], heads * head_dim) for heads in given["head_nums"])
    return q, k, v


def _fake_npu_dequant(*arguments: Any, **keywords: Any) -> tuple[Tensor, Tensor, Tensor]:
    given = _DRQ.bind(*arguments, **keywords).arguments
    cos: Tensor = given["cos"]
    tokens = given["x"].shape[:-1]
    head_dim = given["k_cache"].shape[3]
    q, k, v = (
        cos.new_empty(*tokens, width // head_dim, head_dim) for width in given["size_splits"]
    )
    has_all = given.get("kv_output", False)
    return (q, k, v) if has_all else (q, cos.new_empty(0), cos.new_empty(0))


_QNR = inspect.signature(_npu_qkv_rms_norm_rope_cache)
_DRQ = inspect.signature(_npu_dequant_rope_quant_kvcache)


def _nothing(*_: object, **__: object) -> None:
    """The fake implementation of an operator that only writes its arguments."""


# Defined by schema: torch.library.custom_op costs a millisecond for each call of so many arguments.
_LIBRARY: Any = torch.library.Library("qkvfuse", "DEF")  # type: ignore[no-untyped-call]


def _define(
    name: str,
    function: Callable[..., Any],
    fake: Callable[..., Any],
    mutates_args: tuple[str, ...],
) -> Any:
    schema = torch.library.infer_schema(function, mutates_args=mutates_args)
    _LIBRARY.define(name + schema, tags=(torch.Tag.pt2_compliant_tag,))
    _LIBRARY.impl(name, function, "CPU")
    torch.library.register_fake(f"qkvfuse::{name}", fake, lib=_LIBRARY)
    return getattr(torch.ops.qkvfuse, name)


fused_qkv = _define("fused_qkv", _fused_qkv, _nothing, _OUTPUTS)
read_cache = _define("read_cache", _read_cache, _nothing, ("out",))
npu_qkv_rms_norm_rope_cache = _define(
    "npu_qkv_rms_norm_rope_cache",
    _npu_qkv_rms_norm_rope_cache,
    _fake_npu_qkv,
    ("q_out", "k_cache", "v_cache"),
)
npu_dequant_rope_quant_kvcache = _define(
    "npu_dequant_rope_quant_kvcache",
    _npu_dequant_rope_quant_kvcache,
    _fake_npu_dequant,
    ("k_cache", "v_cache"),
)
