"""What a Spec says about parts and arrays: which arrays a call needs, their shapes and types."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

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
from .codes import LARGEST
from .places import cache_shape

PARTS = ("q", "k", "v")
_SINKS = {
    "q": ("q_out", "q_before_quant"),
    "k": ("k_out", "k_cache"),
    "v": ("v_out", "v_cache"),
}


@dataclass(frozen=True)
class Operand:
    """An array of a call.

    Attributes:
        shape: in its plain form, all tokens on one axis.
        dtype: of the elements.
        is_output: whether a call writes it.
        token_axis: the axis of `shape` that may be [batch, sequence] instead; None: there is none.
        joined_or_apart: what the axes after that one may be instead: heads that are apart in
            `shape` joined, or the other way round; None: nothing.
        is_list: only the number of elements counts, not how the axes cut them.
    """

    shape: tuple[int, ...]
    dtype: DType
    is_output: bool = False
    token_axis: int | None = None
    joined_or_apart: tuple[int, ...] | None = None
    is_list: bool = False

    @property
    def tails(self) -> list[tuple[int, ...]]:
        """What may follow the axis of tokens."""
        if self.token_axis is None:
            return []
        after = self.shape[self.token_axis + 1 :]
        return [after] if self.joined_or_apart is None else [after, self.joined_or_apart]

    def shapes(self, batch: int, sequence: int) -> list[tuple[int, ...]]:
        """The shapes that an array may have for `batch` sequences of `sequence` tokens."""
        if self.token_axis is None:
            return [self.shape]
        before = self.shape[: self.token_axis]
        tokens = ((batch * sequence,), (batch, sequence))
        return [(*before, *axes, *tail) for axes in tokens for tail in self.tails]


@dataclass(frozen=True)
class Part:
    """The heads of q, k or v, as the Spec describes them.

    Attributes:
        name: "q", "k" or "v".
        heads, head_dim: their number and channels.
        first_channel: where they begin in a packed row.
        norm: of the part.
        is_rotated: q and k, where the Spec has a rotation.
        is_wanted: whether any output or cache is made of them; what is not wanted is not read.
    """

    name: str
    heads: int
    head_dim: int
    first_channel: int
    norm: Norm
    is_rotated: bool
    is_wanted: bool


def rope_of(spec: Spec) -> Rope:
    """The rotation of a Spec."""
    assert isinstance(spec.rope, Rope)
    return spec.rope


def slots_of(spec: Spec) -> Slots:
    """The addressing of a Spec."""
    assert isinstance(spec.slots, Slots)
    return spec.slots


def dense_of(spec: Spec, name: str) -> Dense | None:
    """The dense output `name` of a Spec, if it has it."""
    dense: Dense | None = getattr(spec, name)
    return dense


def cache_of(spec: Spec, part: str) -> Cache | None:
    """The cache of part "k" or "v", if the Spec has it; None of "q"."""
    cache: Cache | None = getattr(spec, f"{part}_cache", None)
    return cache


def rotary_dim_of(spec: Spec) -> int:
    """Channels that rotate."""
    return rope_of(spec).rotary_dim or spec.head_dim


def parts_of(spec: Spec) -> dict[str, Part]:
    """The three parts of a Spec by their names."""
    sizes = (spec.head_dim, spec.head_dim, spec.v_head_dim or spec.head_dim)
    parts: dict[str, Part] = {}
    first_channel = 0
    for name, heads, head_dim in zip(PARTS, spec.heads, sizes, strict=True):
        norm = getattr(spec, f"{name}_norm")
        is_rotated = name != "v" and rope_of(spec).pairing is not Pairing.NONE
        is_wanted = any(getattr(spec, sink) is not None for sink in _SINKS[name])
        parts[name] = Part(name, heads, head_dim, first_channel, norm, is_rotated, is_wanted)
        first_channel += heads * head_dim
    return parts


def channels_of(spec: Spec) -> int:
    """Channels of a packed row."""
    last = parts_of(spec)["v"]
    return last.first_channel + last.heads * last.head_dim


def operands(
    spec: Spec, tokens: int | tuple[int, int], sequences: int = 1, *, measures: bool = False
) -> dict[str, Operand]:
    """The arrays that a call of a Spec needs, by the names of `Plan.run`'s arguments.

    Args:
        tokens: of a call, or (batch, sequence).
        sequences: rows of slots, "page_table" and "start_per_sequence"; of (batch, sequence) tokens
            and "start_per_sequence" it is the batch.
        measures: those of `measure` instead of those of `run`.
    """
    if not isinstance(tokens, int):
        if slots_of(spec).mode is SlotMode.START_PER_SEQUENCE:
            sequences = tokens[0]
        tokens = math.prod(tokens)
    if measures:
        return dict(_measured(spec, tokens))
    parts = [part for part in parts_of(spec).values() if part.is_wanted]
    table = dict(_sources(spec, tokens, parts))
    table.update(_norms(spec, tokens))
    table.update(_tables(spec, tokens))
    table.update(_dense_outputs(spec, tokens))
    table.update(_caches(spec, tokens, sequences))
    return table


_Named = Iterator[tuple[str, Operand]]


def _measured(spec: Spec, tokens: int) -> _Named:
    wanted = [part for part in parts_of(spec).values() if part.is_wanted]
    parts = [part for part in wanted if part.norm.total_heads > 0]
    yield from _sources(spec, tokens, parts)
    if spec.norm_order is NormOrder.AFTER_ROPE:
        yield from _tables(spec, tokens)
    for part in parts:
        shape = (tokens, part.heads)
        yield f"{part.name}_head_sums", Operand(shape, DType.FLOAT32, True, token_axis=0)


def _sources(spec: Spec, tokens: int, parts: list[Part]) -> _Named:
    channels = channels_of(spec)
    if not spec.is_separate:
        has_one_size = spec.v_head_dim in (0, spec.head_dim)
        apart = (sum(spec.heads), spec.head_dim) if has_one_size else None
        yield "x", Operand((tokens, channels), spec.x_dtype, token_axis=0, joined_or_apart=apart)
    else:
        for part in parts:
            yield part.name, _heads_apart(part, tokens, spec.x_dtype)
    if spec.x_dtype is DType.INT32:
        yield "weight_scale", Operand((channels,), DType.FLOAT32, is_list=True)
    if spec.has_token_scale:
        yield "token_scale", Operand((tokens,), DType.FLOAT32, token_axis=0)
    if spec.bias is not None:
        yield "bias", Operand((channels,), spec.bias, is_list=True)


def _heads_apart(part: Part, tokens: int, dtype: DType, is_output: bool = False) -> Operand:
    shape = (tokens, part.heads, part.head_dim)
    joined = (part.heads * part.head_dim,)
    return Operand(shape, dtype, is_output, token_axis=0, joined_or_apart=joined)


def _norms(spec: Spec, tokens: int) -> _Named:
    for part in parts_of(spec).values():
        norm = part.norm
        if norm.kind is NormKind.NONE or not part.is_wanted:
            continue
        if norm.gamma is not Gamma.NONE:
            heads = (part.heads,) if norm.kind is NormKind.FULL_WIDTH else ()
            dtype = norm.gamma_dtype or spec.x_dtype
            yield f"{part.name}_gamma", Operand((*heads, part.head_dim), dtype, is_list=True)
        if norm.total_heads > 0:
            shape = (tokens, norm.total_heads)
            yield f"{part.name}_sums", Operand(shape, DType.FLOAT32, token_axis=0)


def _tables(spec: Spec, tokens: int) -> _Named:
    rope = rope_of(spec)
    if rope.pairing is Pairing.NONE:
        return
    width = rotary_dim_of(spec) // (2 if rope.half_width else 1)
    is_by_token = rope.table is Table.ROW_PER_TOKEN
    rows = tokens if is_by_token else rope.max_positions
    table = Operand(
        (rows, width), rope.dtype or spec.x_dtype, token_axis=0 if is_by_token else None
    )
    yield "cos", table
    if rope.table is not Table.JOINED:
        yield "sin", table
    if not is_by_token:
        before = () if rope.sections is Sections.NONE else (3,)
        yield "positions", Operand((*before, tokens), rope.position_dtype, token_axis=len(before))


def _dense_outputs(spec: Spec, tokens: int) -> _Named:
    parts = parts_of(spec)
    for name in ("q_out", "q_before_quant", "k_out", "v_out"):
        dense = dense_of(spec, name)
        if dense is None:
            continue
        part = parts[name[0]]
        dtype = dense.dtype or spec.x_dtype
        yield name, _heads_apart(part, tokens, dtype, is_output=True)
        if name == "q_out":
            yield from _scales(part, dense, dtype)
            if dense.scale_rule is ScaleRule.DYNAMIC:
                shape = (tokens, part.heads)
                yield "q_scale_out", Operand(shape, DType.FLOAT32, True, token_axis=0)


def _scales(part: Part, sink: Dense | Cache, dtype: DType) -> _Named:
    if dtype not in LARGEST or sink.scale_rule is ScaleRule.DYNAMIC:
        return
    shapes: dict[Granularity, tuple[int, ...]] = {
        Granularity.CHANNEL: (part.heads, part.head_dim),
        Granularity.HEAD: (part.heads,),
        Granularity.TENSOR: (1,),
    }
    operand = Operand(shapes[Granularity(sink.granularity)], DType.FLOAT32, is_list=True)
    yield f"{part.name}_scale", operand
    if sink.has_offset:
        yield f"{part.name}_offset", operand


def _caches(spec: Spec, tokens: int, sequences: int) -> _Named:
    parts = parts_of(spec)
    for part in (parts["k"], parts["v"]):
        cache = cache_of(spec, part.name)
        if cache is None:
            continue
        shape = cache_shape(cache, cache.layout, part.heads, part.head_dim)
        yield f"{part.name}_cache", Operand(shape, cache.dtype, True)
        yield from _scales(part, cache, cache.dtype)
        if cache.scale_rule is ScaleRule.DYNAMIC:
            shape = cache_shape(cache, cache.scale_layout, part.heads, 1)
            yield f"{part.name}_scale_cache", Operand(shape, DType.FLOAT32, True)
    if spec.k_cache is None and spec.v_cache is None:
        return
    slots = slots_of(spec)
    dtype = slots.dtype
    if slots.mode is SlotMode.SLOT_PER_TOKEN:
        yield "slots", Operand((tokens,), dtype, token_axis=0)
    elif slots.mode is SlotMode.START_PER_SEQUENCE:
        yield "slots", Operand((sequences,), dtype)
    else:
        yield "slots", Operand((sequences, slots.pages), dtype)
        yield "lengths", Operand((sequences,), dtype)
        yield "row_offsets", Operand((sequences + 1,), dtype)
