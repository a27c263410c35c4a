"""What happens to a head between source and store: dequantise, RMSNorm, RoPE.

Every function computes in the type of its operands: float32, in which each operation of
docs/numerics.md is rounded once in the written order, or float64, in which the same formulas give a
value to measure errors against. Heads are [tokens, heads, channels] throughout.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from .._spec import Rope
from .._words import Pairing, Sections, Table
from .arithmetic import Array, multiply_add, widen

_LANES = 16  # accumulators of a sum of squares, whatever the head_dim


def dequantise(
    heads: Array,
    weight_scale: Array | None,
    token_scale: Array | None,
    bias: Array | None,
    real: np.dtype[Any],
) -> Array:
    """The values of a part's source (docs/numerics.md, section 2).

    Args:
        heads: [tokens, heads, channels] as the projection left them.
        weight_scale, bias: [heads, channels], or None.
        token_scale: [tokens], or None.
        real: float32 or float64, the type to compute in.
    """
    if bias is not None and bias.dtype == np.int32:
        # Unsigned integers wrap by definition; signed ones are their two's complement.
        heads = (heads.view(np.uint32) + bias.view(np.uint32)).view(np.int32)
        bias = None
    values = widen(heads, real)
    if weight_scale is not None:
        values = values * widen(weight_scale, real)
    if token_scale is not None:
        values = values * widen(token_scale, real)[:, None, None]
    if bias is not None:
        values = values + widen(bias, real)
    return values


def sums_of_squares(values: Array) -> Array:
    """The sum of squares of each head, [tokens, heads], in the order of docs/numerics.md."""
    tokens, heads, channels = values.shape
    lanes = np.zeros((tokens, heads, _LANES), values.dtype)
    for first in range(0, channels, _LANES):
        some = values[..., first : first + _LANES]
        width = some.shape[-1]
        lanes[..., :width] = multiply_add(some, some, lanes[..., :width])
    while lanes.shape[-1] > 1:
        half = lanes.shape[-1] // 2
        lanes = lanes[..., :half] + lanes[..., half:]
    return lanes[..., 0]


def normalise(values: Array, sums: Array, count: int, epsilon: float) -> Array:
    """`values` times the reciprocal root mean square, without the weight.

    Args:
        sums: sums of squares that are added up in order: [tokens, heads, 1] of a norm per head,
            [tokens, 1, all heads] of a norm over all of them.
        count: the channels that they are the sum of.
        epsilon: used as a float32.
    """
    real = values.dtype.type
    total = sums[..., :1]
    for head in range(1, sums.shape[-1]):
        total = total + sums[..., head : head + 1]
    mean = total / real(count)
    return np.asarray(values * (real(1) / np.sqrt(mean + real(np.float32(epsilon)))))


@dataclass(frozen=True)
class Angles:
    """cos and sin for the first and the second channel of every pair, [tokens, 1, pairs]."""

    cos_lo: Array
    cos_hi: Array
    sin_lo: Array
    sin_hi: Array


def pairs_of(pairing: Pairing, rotary_dim: int) -> tuple[Array, Array]:
    """The channels lo and hi of every pair, counted from the first one that rotates."""
    pair = np.arange(rotary_dim // 2)
    if pairing is Pairing.HALVES:
        return pair, pair + rotary_dim // 2
    return 2 * pair, 2 * pair + 1


def section_of_pairs(sections: Sections, section_pairs: tuple[int, int, int]) -> Array:
    """Which of a token's three positions every pair takes its angle from, [pairs]."""
    pair = np.arange(sum(section_pairs))
    first, second, third = section_pairs
    if sections is Sections.CONCATENATED:
        return np.asarray((pair >= first).astype(int) + (pair >= first + second))
    is_second = (pair % 3 == 1) & (pair < 3 * second)
    is_third = (pair % 3 == 2) & (pair < 3 * third)
    return np.asarray(is_second.astype(int) + 2 * is_third)


def angles_of(
    rope: Rope, rotary_dim: int, cos: Array, sin: Array | None, positions: Array | None
) -> Angles:
    """The entries of the tables that the tokens of a call take (docs/numerics.md, section 4).

    Args:
        cos, sin: rows of tokens or of positions, in the type to compute in; sin is None of a joined
            table, whose rows have both.
        positions: [tokens], with sections [3, tokens]; None where the rows are those of the tokens.
    """
    lo, hi = pairs_of(Pairing.of(rope.pairing, "pairing"), rotary_dim)
    pair = np.arange(rotary_dim // 2)
    if rope.table is Table.JOINED:
        cos, sin = cos[:, : rotary_dim // 2], cos[:, rotary_dim // 2 :]
    assert sin is not None
    if rope.half_width or rope.table is Table.JOINED:
        lo = hi = pair
    row: Array
    if positions is None:
        row = np.arange(len(cos))[:, None]
    elif rope.sections is Sections.NONE:
        row = positions[:, None]
    else:
        sections = Sections.of(rope.sections, "sections")
        row = positions[section_of_pairs(sections, rope.section_pairs)].T
    table = (cos[row, lo], cos[row, hi], sin[row, lo], sin[row, hi])
    return Angles(*(entry[:, None, :] for entry in table))


def rotate(
    values: Array,
    weight: Array | None,
    angles: Angles,
    pairing: Pairing,
    rotary_dim: int,
    rotates_last: bool,
) -> Array:
    """`values` rotated, times the weight of a norm before the rotation.

    Args:
        values: normalised, not yet weighted.
        weight: [1 or heads, channels]; None: there is none.
    """
    lo, hi = pairs_of(pairing, rotary_dim)
    if rotates_last:
        lo, hi = lo + values.shape[-1] - rotary_dim, hi + values.shape[-1] - rotary_dim
    cl, ch, sl, sh = angles.cos_lo, angles.cos_hi, angles.sin_lo, angles.sin_hi
    rotated = values if weight is None else values * weight
    if weight is not None:
        cl, ch = weight[:, lo] * cl, weight[:, hi] * ch
        sl, sh = weight[:, hi] * sl, weight[:, lo] * sh
    first, second = values[..., lo], values[..., hi]
    rotated = rotated.copy()
    rotated[..., lo] = multiply_add(first, cl, -(second * sl))
    rotated[..., hi] = multiply_add(second, ch, first * sh)
    return rotated
