"""The operators: a Spec and arrays in, values or written arrays out.

`evaluate` gives the values of all heads before any store, `run` stores them, `measure` is the first
half of a full-width norm over several ranks.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from .._spec import Cache, Spec
from .._words import DType, Gamma, NormKind, NormOrder, Pairing, ScaleRule
from . import heads as head
from .arithmetic import Array, bits_of, narrow, numpy_dtype, widen
from .call import Call
from .codes import LARGEST, dynamic_scales, quantise
from .operands import (
    Part,
    cache_of,
    dense_of,
    parts_of,
    rope_of,
    rotary_dim_of,
    slots_of,
)
from .places import Rows, cache_index, rows_of_tokens, unused_rows

Tokens = int | tuple[int, int]


class Heads(NamedTuple):
    """Values of q, k and v, [tokens, heads, head_dim] each; None: no output or cache wants them."""

    q: Array | None
    k: Array | None
    v: Array | None


def evaluate(
    spec: Spec,
    *,
    precision: str = "float32",
    tokens: Tokens | None = None,
    **arrays: Array | None,
) -> Heads:
    """The values of all heads before they are stored: dequantised, normalised, rotated.

    Args:
        spec: what to compute; its outputs and caches only say which of q, k and v are wanted.
        precision: "float32", every rounding as docs/numerics.md has it, or "float64", the same
            formulas without its roundings, to measure errors against; epsilon is a float32 in both.
        tokens: of the call, or (batch, sequence); None: what x or q says.
        arrays: the inputs, by the names and in the shapes of `operands`. Others are ignored.

    Raises:
        ValueError: an array is absent, or of the wrong type or shape.
    """
    real = np.dtype(precision)
    if real not in (np.dtype(np.float32), np.dtype(np.float64)):
        raise ValueError(f"precision: is {precision!r}, must be 'float32' or 'float64'")
    with np.errstate(all="ignore"):
        return _evaluate(Call(spec, tokens, arrays), real)


def run(spec: Spec, *, tokens: Tokens | None = None, **arrays: Array | None) -> None:
    """Writes all outputs and caches of a Spec in place, with the bytes that the library writes.

    Of a slot that is named more than once the highest token index stays. The sign and the payload
    of a NaN that was computed, not copied, are free.

    Args:
        tokens: of the call, or (batch, sequence); None: what x or q says.
        arrays: inputs and outputs, by the names and in the shapes of `operands`, with any strides.

    Raises:
        ValueError: an array is absent, or of the wrong type or shape.
    """
    call = Call(spec, tokens, arrays)
    with np.errstate(all="ignore"):
        values = _evaluate(call, np.dtype(np.float32))
        for part, own in zip(parts_of(spec).values(), values, strict=True):
            if own is None:
                continue
            source = call.heads_of(part) if is_copied(spec, part) else None
            _write_dense(call, part, own, source)
            cache = cache_of(spec, part.name)
            if cache is not None:
                _write_cache(call, part, cache, own, source)


def measure(spec: Spec, *, tokens: Tokens | None = None, **arrays: Array | None) -> None:
    """Writes the sums of squares of heads, q_head_sums and k_head_sums.

    Only the parts whose norm is "full_width" with total_heads are measured. The sums of all ranks,
    joined in head order, are the q_sums and k_sums of `run`.

    Args:
        tokens: of the call, or (batch, sequence); None: what x, q or k says.
        arrays: inputs and outputs, by the names of `operands(spec, tokens, measures=True)`.

    Raises:
        ValueError: an array is absent, or of the wrong type or shape.
    """
    call = Call(spec, tokens, arrays, measures=True)
    real = np.dtype(np.float32)
    with np.errstate(all="ignore"):
        for part in parts_of(spec).values():
            if call.has(f"{part.name}_head_sums"):
                sums = head.sums_of_squares(_Values(call, part, real).before_norm())
                _store(call.array(f"{part.name}_head_sums"), bits_of(sums))


def _evaluate(call: Call, real: np.dtype[Any]) -> Heads:
    parts = parts_of(call.spec).values()
    return Heads(*(_Values(call, part, real).final() if part.is_wanted else None for part in parts))


class _Values:
    """The values of one part's heads, step by step. `_is_late`: the norm follows the rotation."""

    def __init__(self, call: Call, part: Part, real: np.dtype[Any]) -> None:
        self._call = call
        self._part = part
        self._real = real
        self._is_late = part.is_rotated and call.spec.norm_order is NormOrder.AFTER_ROPE

    def final(self) -> Array:
        """What is stored."""
        values = self.before_norm()
        weight = None
        if self._part.norm.kind is not NormKind.NONE:
            values, weight = self._normalised(values), self._weight()
        if self._is_late or not self._part.is_rotated:
            return values if weight is None else values * weight
        return self._rotated(values, weight)

    def before_norm(self) -> Array:
        """What a norm takes the mean of."""
        call, part = self._call, self._part
        scale, bias = call.optional("weight_scale"), call.optional("bias")
        values = head.dequantise(
            call.heads_of(part),
            None if scale is None else call.channels_of(part, scale),
            call.optional("token_scale"),
            None if bias is None else call.channels_of(part, bias),
            self._real,
        )
        return self._rotated(values, None) if self._is_late else values

    def _normalised(self, values: Array) -> Array:
        part, norm = self._part, self._part.norm
        gathered = self._call.optional(f"{part.name}_sums")
        count = part.head_dim
        if gathered is not None:
            sums = widen(gathered, self._real)[:, None, :]
            count *= norm.total_heads
        elif norm.kind is NormKind.FULL_WIDTH:
            sums = head.sums_of_squares(values)[:, None, :]
            count *= part.heads
        else:
            sums = head.sums_of_squares(values)[:, :, None]
        return head.normalise(values, sums, count, self._call.spec.epsilon)

    def _weight(self) -> Array | None:
        """The weight of the norm, [1 or heads, head_dim]."""
        gamma = self._call.optional(f"{self._part.name}_gamma")
        if gamma is None:
            return None
        weight = widen(gamma, self._real).reshape(-1, self._part.head_dim)
        return self._real.type(1) + weight if self._part.norm.gamma is Gamma.ONE_PLUS else weight

    def _rotated(self, values: Array, weight: Array | None) -> Array:
        call, rope = self._call, rope_of(self._call.spec)
        rotary_dim = rotary_dim_of(call.spec)
        sin = call.optional("sin")
        angles = head.angles_of(
            rope,
            rotary_dim,
            widen(call.plain("cos"), self._real),
            None if sin is None else widen(sin, self._real),
            call.optional("positions"),
        )
        pairing = Pairing.of(rope.pairing, "pairing")
        return head.rotate(values, weight, angles, pairing, rotary_dim, rope.rotates_last)


def is_copied(spec: Spec, part: Part) -> bool:
    """Whether nothing is computed of a part, so that stores of its own type keep every bit."""
    return (
        spec.x_dtype is not DType.INT32
        and spec.bias is None
        and part.norm.kind is NormKind.NONE
        and not part.is_rotated
    )


def _store(array: Array, bits: Array) -> None:
    """Writes the bits of all elements, in whatever shape and strides the array has."""
    bits_of(array)[...] = bits.reshape(array.shape)


def _bits(values: Array, source: Array | None, dtype: DType) -> Array:
    """What a store of a float type writes: roundings of the values, or copies of the source."""
    if source is not None and source.dtype == numpy_dtype(dtype):
        return bits_of(source)
    return narrow(values, dtype)


def _codes(
    call: Call, part: Part, values: Array, dtype: DType, rule: ScaleRule
) -> tuple[Array, Array | None]:
    """The codes of values for an 8-bit output, and the dynamic scales [tokens, heads], if any."""
    scale, offset = (call.optional(f"{part.name}_{name}") for name in ("scale", "offset"))
    if scale is not None:
        # [heads, head_dim], [heads] or [1], to broadcast to [tokens, heads, head_dim].
        offset = None if offset is None else offset.reshape(len(offset), -1)
        return quantise(values, dtype, rule, scale.reshape(len(scale), -1), offset), None
    scales = dynamic_scales(values, dtype)
    return quantise(values, dtype, rule, scales[..., None], None), scales


def _write_dense(call: Call, part: Part, values: Array, source: Array | None) -> None:
    for name in (f"{part.name}_out", f"{part.name}_before_quant"):
        if not call.has(name):
            continue
        dense = dense_of(call.spec, name)
        assert dense is not None
        dtype = dense.dtype or call.spec.x_dtype
        if dtype not in LARGEST:
            _store(call.array(name), _bits(values, source, dtype))
            continue
        codes, scales = _codes(call, part, values, dtype, ScaleRule(dense.scale_rule))
        _store(call.array(name), codes)
        if scales is not None:
            _store(call.array(f"{part.name}_scale_out"), bits_of(scales))


def _write_cache(call: Call, part: Part, cache: Cache, values: Array, source: Array | None) -> None:
    slots, block_size = slots_of(call.spec), cache.block_size
    pages, lengths, row_offsets = (
        call.optional(name) for name in ("slots", "lengths", "row_offsets")
    )
    assert pages is not None
    rows = rows_of_tokens(slots, block_size, call.sequence, pages, lengths, row_offsets)
    unused = None
    if slots.zeroes_unused_rows:
        assert lengths is not None and row_offsets is not None
        unused = unused_rows(block_size, pages, lengths, row_offsets)
    scales = None
    if cache.dtype in LARGEST:
        bits, scales = _codes(call, part, values, cache.dtype, ScaleRule(cache.scale_rule))
    else:
        bits = _bits(values, source, cache.dtype)
    array = call.array(f"{part.name}_cache")
    _store_rows(array, cache, cache.layout, bits, rows, unused)
    if scales is not None:
        array = call.array(f"{part.name}_scale_cache")
        _store_rows(array, cache, cache.scale_layout, bits_of(scales)[..., None], rows, unused)


def _store_rows(
    array: Array, cache: Cache, layout: str, bits: Array, rows: Rows, unused: Rows | None
) -> None:
    """Writes the rows of `bits`, [tokens, heads, channels], that have a place; zeroes `unused`."""
    target = bits_of(array)
    _, heads, channels = bits.shape
    target[cache_index(cache, layout, heads, channels, rows.block, rows.row)] = bits[rows.token]
    if unused is not None:
        target[cache_index(cache, layout, heads, channels, unused.block, unused.row)] = 0
