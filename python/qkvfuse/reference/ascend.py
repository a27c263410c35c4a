"""The two operators of Ascend under their own names and arguments, translated to Specs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .._spec import Cache, Norm, Rope, Slots, Spec
from .._words import DType, SlotMode
from .arithmetic import Array
from .operators import run


def npu_qkv_rms_norm_rope_cache(
    qkv: Array,
    q_gamma: Array,
    k_gamma: Array,
    cos: Array,
    sin: Array,
    index: Array,
    q_out: Array,
    k_cache: Array,
    v_cache: Array,
    qkv_size: Sequence[int],
    head_nums: Sequence[int],
    *,
    k_scale: Array | None = None,
    v_scale: Array | None = None,
    k_offset: Array | None = None,
    v_offset: Array | None = None,
    epsilon: float = 1e-6,
    cache_mode: str = "PA_NZ",
    is_output_qkv: bool = False,
) -> tuple[Array | None, Array | None, Array | None]:
    """RMSNorm and RoPE of q and k; q goes to `q_out`, k and v to the caches, in place.

    Args:
        qkv: [B*S, N*D], float16 or bfloat16, as gammas [D], cos and sin [B*S, D], and q_out
            [B*S, Nq*D].
        index: [B*S] int64, a slot for each token; negative: its caches are not written.
        k_cache, v_cache: int8 or qkv's type; "PA_NZ": [blocks, heads*D/d0, block_size, d0] with d0
            32 for int8 and 16 for 16 bits; "PA", "Norm": [blocks, block_size, heads, D].
        qkv_size: [B, S, N, D].
        head_nums: [Nq, Nk, Nv].
        k_scale, v_scale, k_offset, v_offset: float32 [heads, D], of int8 caches.
        is_output_qkv: whether q, k and v before quantisation are returned.

    Returns:
        q, k and v before quantisation, [B*S, heads*D] each, or three times None.

    Raises:
        ValueError: an argument has another type, shape or word.

    Source: docs/operators/qkv_rms_norm_rope_cache.md.
    """
    batch, sequence, heads, head_dim = qkv_size
    q_heads, k_heads, v_heads = head_nums
    if heads != sum(head_nums):
        raise ValueError(f"qkv_size: its value 2 is {heads}, must be {sum(head_nums)}")
    if cache_mode not in ("PA_NZ", "PA", "Norm"):
        raise ValueError(f"cache_mode: is {cache_mode!r}, must be 'PA_NZ', 'PA' or 'Norm'")
    is_nz = cache_mode == "PA_NZ"

    def cache_spec(array: Array, has_offset: bool) -> Cache:
        return Cache(
            dtype=array.dtype,
            layout="pa_nz" if is_nz else "paged_nhd",
            blocks=array.shape[0],
            block_size=array.shape[2 if is_nz else 1],
            has_offset=has_offset,
        )

    spec = Spec(
        x_dtype=qkv.dtype,
        heads=(q_heads, k_heads, v_heads),
        head_dim=head_dim,
        q_norm=Norm("per_head"),
        k_norm=Norm("per_head"),
        epsilon=epsilon,
        q_before_quant=qkv.dtype if is_output_qkv else None,
        k_out=qkv.dtype if is_output_qkv else None,
        v_out=qkv.dtype if is_output_qkv else None,
        k_cache=cache_spec(k_cache, k_offset is not None),
        v_cache=cache_spec(v_cache, v_offset is not None),
        slots=Slots(dtype=index.dtype),
    )
    q = k = v = None
    if is_output_qkv:
        q, k, v = (np.empty((batch * sequence, count * head_dim), qkv.dtype) for count in head_nums)
    run(
        spec,
        tokens=(batch, sequence),
        x=qkv,
        q_gamma=q_gamma,
        k_gamma=k_gamma,
        cos=cos,
        sin=sin,
        slots=index,
        q_out=q_out,
        q_before_quant=q,
        k_out=k,
        v_out=v,
        k_cache=k_cache,
        v_cache=v_cache,
        k_scale=k_scale,
        v_scale=v_scale,
        k_offset=k_offset,
        v_offset=v_offset,
    )
    return q, k, v


def npu_dequant_rope_quant_kvcache(
    x: Array,
    cos: Array,
    sin: Array,
    k_cache: Array,
    v_cache: Array,
    indices: Array,
    scale_k: Array,
    scale_v: Array,
    size_splits: Sequence[int],
    *,
    offset_k: Array | None = None,
    offset_v: Array | None = None,
    weight_scale: Array | None = None,
    activation_scale: Array | None = None,
    bias: Array | None = None,
    quant_mode: str | int = "static",
    input_layout: str = "BSND",
    kv_output: bool = False,
    cache_mode: str = "contiguous",
) -> tuple[Array, Array | None, Array | None, Array, Array]:
    """Dequantises x, rotates q and k, and writes k and v as int8 to the caches, in place.

    Args:
        x: [B, S, H] or [B, H] with H = (Nq + 2*Nkv)*D: int32, or the type of cos.
        cos, sin: [B, S, 1, D], of 2-D x [B, D]; float16 or bfloat16.
        k_cache, v_cache: [C1, C2, Nkv, D] int8.
        indices: "contiguous": [B], the first row of each sequence; "page": [B*S], a row of the
            caches seen as [C1*C2, Nkv, D] for each token, negative: it is not written.
        scale_k, scale_v, offset_k, offset_v: float32 of Nkv*D elements.
        size_splits: [Nq*D, Nkv*D, Nkv*D].
        weight_scale, activation_scale, bias: of an int32 x: float32 of H, and of B*S elements at
            least; float32, float16, bfloat16 or int32 of H at least. Any other x ignores them.
        kv_output: whether k and v are returned as well.

    Returns:
        q, k, v, k_cache and v_cache: q, k and v in the type of cos, [B, S, heads, D] or
        [B, heads, D]; k and v are None unless `kv_output`.

    Raises:
        ValueError: an argument has another type, shape or word.

    Source: docs/operators/dequant_rope_quant_kvcache.md.
    """
    words = (
        ("quant_mode", "static" if quant_mode == 0 else str(quant_mode), ("static",)),
        ("input_layout", input_layout, ("bsnd",)),
        ("cache_mode", cache_mode, ("contiguous", "page")),
    )
    for name, word, allowed in words:
        if word.lower() not in allowed:
            raise ValueError(f"{name}: is {word!r}, must be one of {allowed}")
    is_paged = cache_mode.lower() == "page"
    is_int32 = x.dtype == np.int32
    head_dim = k_cache.shape[3]
    q_heads, k_heads, v_heads = (size // head_dim for size in size_splits)
    lead = x.shape[:-1]  # [B, S] or [B]
    batch, sequence = lead if x.ndim == 3 else (lead[0], 1)
    tokens = batch * sequence

    def cache_spec(array: Array, offset: Array | None) -> Cache:
        return Cache(
            dtype=DType.INT8,
            layout="paged_nhd",
            blocks=array.shape[0],
            block_size=array.shape[1],
            has_offset=offset is not None,
        )

    spec = Spec(
        x_dtype=x.dtype,
        heads=(q_heads, k_heads, v_heads),
        head_dim=head_dim,
        has_token_scale=is_int32 and activation_scale is not None,
        bias=bias.dtype if is_int32 and bias is not None else None,
        rope=Rope(dtype=cos.dtype),
        q_out=cos.dtype,
        k_out=cos.dtype if kv_output else None,
        v_out=cos.dtype if kv_output else None,
        k_cache=cache_spec(k_cache, offset_k),
        v_cache=cache_spec(v_cache, offset_v),
        slots=Slots(
            SlotMode.SLOT_PER_TOKEN if is_paged else SlotMode.START_PER_SEQUENCE, indices.dtype
        ),
    )
    q, k, v = (
        np.empty((*lead, count, head_dim), cos.dtype) for count in (q_heads, k_heads, v_heads)
    )
    if activation_scale is not None:
        activation_scale = activation_scale.reshape(-1)[:tokens]
    rows = (tokens, head_dim)
    run(
        spec,
        tokens=(batch, sequence),
        x=x.reshape(tokens, -1),
        cos=cos.reshape(rows),
        sin=sin.reshape(rows),
        slots=indices,
        q_out=q.reshape(tokens, -1),
        k_out=k.reshape(tokens, -1),
        v_out=v.reshape(tokens, -1),
        k_cache=k_cache,
        v_cache=v_cache,
        k_scale=scale_k,
        v_scale=scale_v,
        k_offset=offset_k,
        v_offset=offset_v,
        weight_scale=weight_scale,
        token_scale=activation_scale,
        bias=bias,
    )
    return q, k if kv_output else None, v if kv_output else None, k_cache, v_cache
