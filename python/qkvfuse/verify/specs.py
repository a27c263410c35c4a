"""Random Specs that the library accepts: every member takes every value it can."""

from __future__ import annotations

import dataclasses
import math

from .._spec import Cache, Dense, Norm, Rope, Slots, Spec
from .._words import (
    DType,
    Gamma,
    Granularity,
    NormKind,
    NormOrder,
    Pairing,
    ScaleRule,
    Sections,
    SlotMode,
    Table,
)
from ..reference.codes import LARGEST
from .draw import Draw

FLOATS = (DType.FLOAT32, DType.FLOAT16, DType.BFLOAT16)
INDICES = (DType.INT64, DType.INT32)

# Multiples of 16, which fused kernels take, numbers around them, the smallest and odd halves.
_HEAD_DIMS = (2, 4, 6, 10, 14, 16, 18, 30, 32, 34, 48, 62, 64, 66, 80, 96, 112, 126, 128, 130, 160)


def random_spec(draw: Draw) -> Spec:
    """A Spec; its caches have room for at least 48 tokens, and rows for 6 in a block of "bsnd"."""
    x_dtype = draw.one_of((*FLOATS, DType.BFLOAT16, DType.FLOAT16, DType.INT32))
    head_dim = draw.one_of(_HEAD_DIMS)
    v_head_dim = draw.one_of(_HEAD_DIMS) if draw.chance(0.2) else 0
    kv_heads = draw.between(1, 3)
    heads = (draw.between(1, 6), kv_heads, kv_heads)
    has_caches = draw.chance(0.75)
    outputs = {
        "q_out": _eight_bit_dense(draw, x_dtype) if draw.chance(0.4) else _dense(draw, x_dtype),
        "q_before_quant": _dense(draw, x_dtype) if draw.chance(0.3) else None,
        "k_out": _dense(draw, x_dtype) if draw.chance(0.4) else None,
        "v_out": _dense(draw, x_dtype) if draw.chance(0.4) else None,
    }
    is_wanted = {
        "q": True,
        "k": has_caches or outputs["k_out"] is not None,
        "v": has_caches or outputs["v_out"] is not None,
    }
    norms = {
        part: _norm(draw, x_dtype, count, part != "v") if is_wanted[part] else Norm()
        for part, count in zip("qkv", heads, strict=True)
    }
    rope = _rope(draw, x_dtype, head_dim)
    has_norm = {part: norm.kind is not NormKind.NONE for part, norm in norms.items()}
    may_be_late = rope.pairing is not Pairing.NONE and (has_norm["q"] or has_norm["k"])
    k_cache = v_cache = None
    slots = Slots()
    if has_caches:
        slots = _slots(draw)
        blocks, block_size = _blocks(draw, slots)
        dims = (head_dim, v_head_dim or head_dim)
        k_cache, v_cache = (_cache(draw, blocks, block_size, dim) for dim in dims)
        if v_head_dim == 0 and draw.chance(0.4):
            v_cache = k_cache
    return Spec(
        x_dtype=x_dtype,
        heads=heads,
        head_dim=head_dim,
        v_head_dim=v_head_dim,
        is_separate=draw.chance(0.3),
        has_token_scale=x_dtype is DType.INT32 and draw.chance(0.5),
        bias=_bias(draw, x_dtype) if draw.chance(0.3) else None,
        q_norm=norms["q"],
        k_norm=norms["k"],
        v_norm=norms["v"],
        norm_order=draw.one_of(list(NormOrder)) if may_be_late else NormOrder.BEFORE_ROPE,
        epsilon=draw.one_of((1e-6, 1e-5, 1e-12, 0.0, 0.5)) if any(has_norm.values()) else 1e-6,
        rope=rope,
        k_cache=k_cache,
        v_cache=v_cache,
        slots=slots,
        **outputs,
    )


def _own_or_float32(draw: Draw, x_dtype: DType) -> DType | None:
    """A type of gammas and tables: float32, or x's, which None means; any float of an int32 x."""
    if x_dtype is DType.INT32:
        return draw.one_of(FLOATS)
    return draw.one_of((None, x_dtype, DType.FLOAT32))


def _bias(draw: Draw, x_dtype: DType) -> DType:
    if x_dtype is DType.INT32:
        return draw.one_of((*FLOATS, DType.INT32))
    return draw.one_of((x_dtype, DType.FLOAT32))


def _norm(draw: Draw, x_dtype: DType, heads: int, may_be_gathered: bool) -> Norm:
    if draw.chance(0.35):
        return Norm()
    kind = draw.one_of((NormKind.PER_HEAD, NormKind.PER_HEAD, NormKind.FULL_WIDTH))
    gamma = draw.one_of(list(Gamma))
    is_gathered = kind is NormKind.FULL_WIDTH and may_be_gathered and draw.chance(0.3)
    has_gamma = gamma is not Gamma.NONE
    return Norm(
        kind=kind,
        gamma=gamma,
        gamma_dtype=_own_or_float32(draw, x_dtype) if has_gamma else None,
        total_heads=heads + draw.between(0, 4) if is_gathered else 0,
    )


def _rope(draw: Draw, x_dtype: DType, head_dim: int) -> Rope:
    if draw.chance(0.15):
        return Rope(Pairing.NONE)
    rotary_dim = 2 * draw.between(1, head_dim // 2) if draw.chance(0.3) else 0
    table = draw.one_of(list(Table))
    is_by_position = table is not Table.ROW_PER_TOKEN
    pairs = (rotary_dim or head_dim) // 2
    sections, section_pairs = Sections.NONE, (0, 0, 0)
    if is_by_position and draw.chance(0.4):
        sections = draw.one_of((Sections.CONCATENATED, Sections.INTERLEAVED))
        section_pairs = _section_pairs(draw, sections, pairs)
    return Rope(
        pairing=draw.one_of((Pairing.HALVES, Pairing.INTERLEAVED)),
        rotary_dim=rotary_dim,
        rotates_last=rotary_dim not in (0, head_dim) and draw.chance(0.5),
        table=table,
        dtype=_own_or_float32(draw, x_dtype),
        half_width=table is not Table.JOINED and draw.chance(0.4),
        max_positions=draw.between(1, 40) if is_by_position else 0,
        position_dtype=draw.one_of(INDICES) if is_by_position else DType.INT64,
        sections=sections,
        section_pairs=section_pairs,
    )


def _section_pairs(draw: Draw, sections: Sections, pairs: int) -> tuple[int, int, int]:
    """Three numbers with the sum `pairs`."""
    if sections is Sections.CONCATENATED:
        first, second = sorted((draw.between(0, pairs), draw.between(0, pairs)))
        return first, second - first, pairs - second
    # The second section has at most the pairs 1, 4, 7, .. and the third 2, 5, 8, ..
    second, third = draw.between(0, (pairs + 1) // 3), draw.between(0, pairs // 3)
    return pairs - second - third, second, third


def _dense(draw: Draw, x_dtype: DType) -> Dense:
    if x_dtype is DType.INT32:
        return Dense(draw.one_of(FLOATS))
    return Dense(draw.one_of((None, x_dtype, *FLOATS)))


def _eight_bit_dense(draw: Draw, x_dtype: DType) -> Dense:
    dtype = draw.one_of(list(LARGEST))
    rule, granularity, has_offset = _scales(draw, dtype)
    return Dense(dtype, has_offset, rule, granularity)


def _scales(draw: Draw, dtype: DType) -> tuple[ScaleRule, Granularity, bool]:
    """Rule and granularity of an 8-bit type, and whether it has an offset."""
    rule = draw.one_of(list(ScaleRule))
    if rule is ScaleRule.DYNAMIC:
        return rule, Granularity.CHANNEL, False
    return rule, draw.one_of(list(Granularity)), dtype is DType.INT8 and draw.chance(0.5)


def _slots(draw: Draw) -> Slots:
    mode = draw.one_of((SlotMode.SLOT_PER_TOKEN, *SlotMode))
    is_paged = mode is SlotMode.PAGE_TABLE
    return Slots(
        mode=mode,
        dtype=draw.one_of(INDICES),
        pages=draw.between(12, 16) if is_paged else 0,
        zeroes_unused_rows=is_paged and draw.chance(0.5),
    )


def _blocks(draw: Draw, slots: Slots) -> tuple[int, int]:
    """Blocks and rows of a block, enough for the tokens of a case."""
    if slots.mode is SlotMode.START_PER_SEQUENCE:
        return draw.between(4, 6), draw.one_of((12, 13, 16, 24))
    block_size = draw.one_of((1, 2, 3, 4, 5, 8, 12, 16, 17))
    return -(-48 // block_size) + draw.between(0, 4), block_size


def _cache(draw: Draw, blocks: int, block_size: int, head_dim: int) -> Cache:
    dtype = draw.one_of((*FLOATS, *LARGEST))
    cache = Cache(dtype, "block row head channel", blocks, block_size)
    if dtype in LARGEST:
        rule, granularity, has_offset = _scales(draw, dtype)
        cache = dataclasses.replace(
            cache, has_offset=has_offset, scale_rule=rule, granularity=granularity
        )
        if rule is ScaleRule.DYNAMIC:
            cache = dataclasses.replace(cache, scale_layout=_scale_layout(draw, block_size))
    layout, chunk = _layout(draw, block_size, head_dim)
    return dataclasses.replace(cache, layout=layout, chunk=chunk)


def _scale_layout(draw: Draw, block_size: int) -> str:
    axes = ["block", "head"] + (["row"] if block_size > 1 or draw.chance(0.5) else [])
    return draw.one_of(("scales_nh", "scales_hn", " ".join(draw.shuffled(axes))))


def _layout(draw: Draw, block_size: int, head_dim: int) -> tuple[str, int]:
    """A layout of an engine, or its own axes in any order; and its chunk."""
    channel_chunk = draw.one_of(_divisors(head_dim))
    row_chunk = draw.one_of(_divisors(block_size))
    common_chunk = draw.one_of(_divisors(math.gcd(block_size, head_dim)))
    known = {
        "paged_nhd": 0,
        "paged_hnd": 0,
        "bsnd": 0,
        "bnsd": 0,
        "transposed": 0,
        "pa_nz": channel_chunk,
        "x_split_k": channel_chunk,
        "shuffled_v": row_chunk,
    }
    if block_size == 1:
        known["token_pool"] = 0
    if draw.chance(0.7):
        name = draw.one_of(list(known))
        return name, known[name]
    own = (
        ("block row head channel", 0),
        ("block row_chunk row head channel", row_chunk),
        ("block row head channel_chunk channel", channel_chunk),
        ("block row head*channel_chunk channel", channel_chunk),
        ("block row_chunk row head channel_chunk channel", common_chunk),
    )
    axes, chunk = draw.one_of(own)
    return " ".join(draw.shuffled(axes.split())), chunk


def _divisors(number: int) -> list[int]:
    return [divisor for divisor in range(1, number + 1) if number % divisor == 0]
