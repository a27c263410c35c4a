"""The two operators of Ascend, with the names, signatures and outputs of torch_npu.

Formulas, refusals and deviations: docs/operators/qkv_rms_norm_rope_cache.md and
docs/operators/dequant_rope_quant_kvcache.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from . import _core
from ._arrays import ArrayLike, zeros


def npu_qkv_rms_norm_rope_cache(
    qkv: ArrayLike,
    q_gamma: ArrayLike,
    k_gamma: ArrayLike,
    cos: ArrayLike,
    sin: ArrayLike,
    index: ArrayLike,
    q_out: ArrayLike,
    k_cache: ArrayLike,
    v_cache: ArrayLike,
    qkv_size: Sequence[int],
    head_nums: Sequence[int],
    *,
    k_scale: ArrayLike | None = None,
    v_scale: ArrayLike | None = None,
    k_offset: ArrayLike | None = None,
    v_offset: ArrayLike | None = None,
    epsilon: float = 1e-6,
    cache_mode: str | None = "PA_NZ",
    is_output_qkv: bool = False,
    strict: bool = True,
    threads: int = 0,
) -> tuple[Any, Any, Any]:
    """Packed qkv -> RMSNorm and RoPE on q and k -> dense q, and k and v into the KV cache.

    With T = B*S tokens, N = Nq+Nk+Nv heads of D channels, and P one of float16 and bfloat16:

    Args:
        qkv: [T, N*D] P.
        q_gamma, k_gamma: [D] P.
        cos, sin: [T, D] P.
        index: [T] int64, the slot of each token; negative: its caches are not written.
        q_out: [T, Nq*D] P, written in place.
        k_cache, v_cache: P or int8, written in place. "PA_NZ": [blocks, Nk*D/D0, block_size, D0],
            D0 32 of int8 and 16 of P; "PA" and "Norm": [blocks, block_size, Nk, D].
        qkv_size: [B, S, N, D].
        head_nums: [Nq, Nk, Nv].
        k_scale, v_scale: [Nk, D] float32, of an int8 cache: code = round(y / scale + offset).
        k_offset, v_offset: [Nk, D] float32, of an int8 cache.
        epsilon: of the norms.
        cache_mode: "PA_NZ", "PA" (paged) or "Norm" (contiguous).
        is_output_qkv: also return q, k and v as they are before quantisation.
        strict: refuse repeated slots, slots below -1 and scales of 0.
        threads: 0: as many as the work is worth.

    Returns:
        q [T, Nq*D], k [T, Nk*D] and v [T, Nv*D] of P, before quantisation; three Nones unless
        is_output_qkv.

    Raises:
        TypeError: a missing argument, or a dtype that is not allowed.
        ValueError: anything else that is not allowed. No output has changed.

    Source: aclnnQkvRmsNormRopeCache of CANN, torch_npu's function of this name.
    """
    return _core.qkv_rms_norm_rope_cache(
        {
            "qkv": qkv,
            "q_gamma": q_gamma,
            "k_gamma": k_gamma,
            "cos": cos,
            "sin": sin,
            "index": index,
            "q_out": q_out,
            "k_cache": k_cache,
            "v_cache": v_cache,
            "qkv_size": qkv_size,
            "head_nums": head_nums,
            "k_scale": k_scale,
            "v_scale": v_scale,
            "k_offset": k_offset,
            "v_offset": v_offset,
            "epsilon": epsilon,
            "cache_mode": cache_mode,
            "is_output_qkv": is_output_qkv,
        },
        lambda shape, dtype: zeros(shape, dtype, like=qkv),
        strict,
        threads,
    )


def npu_dequant_rope_quant_kvcache(
    x: ArrayLike,
    cos: ArrayLike,
    sin: ArrayLike,
    k_cache: ArrayLike,
    v_cache: ArrayLike,
    indices: ArrayLike,
    scale_k: ArrayLike,
    scale_v: ArrayLike,
    size_splits: Sequence[int],
    *,
    offset_k: ArrayLike | None = None,
    offset_v: ArrayLike | None = None,
    weight_scale: ArrayLike | None = None,
    activation_scale: ArrayLike | None = None,
    bias: ArrayLike | None = None,
    quant_mode: str | int | None = "static",
    input_layout: str | None = "BSND",
    kv_output: bool = False,
    cache_mode: str | None = "contiguous",
    strict: bool = True,
    threads: int = 0,
) -> tuple[Any, Any, Any, Any, Any]:
    """Packed x, dequantised when it is int32 -> RoPE on q and k -> dense q, int8 KV cache.

    With H = (Nq+2*Nkv)*D channels, T = B*S tokens, and P one of float16 and bfloat16:

    Args:
        x: [B, S, H], or [B, H] with S = 1; int32 or P.
        cos, sin: [B, S, 1, D], or [B, D]; P.
        k_cache, v_cache: [C1, C2, Nkv, D] int8, written in place.
        indices: int32; "contiguous": [B], the first row of each sequence in its cache; "page": [T],
            the slot of each token, negative: its caches are not written.
        scale_k, scale_v: Nkv*D elements float32: code = round(y / scale + offset).
        size_splits: [Nq*D, Nkv*D, Nkv*D].
        offset_k, offset_v: Nkv*D elements float32, each optional by itself.
        weight_scale: at least H elements float32, needed by an int32 x.
        activation_scale: at least T elements float32.
        bias: at least H elements float32, float16, bfloat16 or int32.
        quant_mode: "static", or 0, which means the same.
        input_layout: "BSND".
        kv_output: also return k and v as they are before quantisation.
        cache_mode: "contiguous" or "page".
        strict: refuse repeated slots, slots below -1 and scales of 0.
        threads: 0: as many as the work is worth.

    Returns:
        (q, k, v, k_cache, v_cache): q [B, S, Nq, D] or [B, Nq, D] of P; k and v likewise with Nkv
        heads, None unless kv_output; the caches that were given.

    Raises:
        TypeError: a missing argument, or a dtype that is not allowed.
        ValueError: anything else that is not allowed. No output has changed.

    Source: aclnnDequantRopeQuantKvcache of CANN, torch_npu's function of this name.
    """
    number = getattr(quant_mode, "__index__", None)  # of Python's and NumPy's integers
    if number is not None and not isinstance(quant_mode, bool):
        if number() != 0:
            raise ValueError(f'quant_mode: is {quant_mode}, must be 0 or "static"')
        quant_mode = "static"
    return _core.dequant_rope_quant_kvcache(
        {
            "x": x,
            "cos": cos,
            "sin": sin,
            "k_cache": k_cache,
            "v_cache": v_cache,
            "indices": indices,
            "scale_k": scale_k,
            "scale_v": scale_v,
            "size_splits": size_splits,
            "offset_k": offset_k,
            "offset_v": offset_v,
            "weight_scale": weight_scale,
            "activation_scale": activation_scale,
            "bias": bias,
            "quant_mode": quant_mode,
            "input_layout": input_layout,
            "kv_output": kv_output,
            "cache_mode": cache_mode,
        },
        lambda shape, dtype: zeros(shape, dtype, like=x),
        strict,
        threads,
    )
