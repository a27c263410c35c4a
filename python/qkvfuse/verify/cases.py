"""Random cases: a Spec, tokens, and arrays of every kind of data in every kind of memory."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .._spec import Cache, Dense, Slots, Spec
from .._words import DType, ScaleRule, SlotMode
from ..reference import Operand, operands
from ..reference.arithmetic import narrow, numpy_dtype
from ..reference.operands import Part, parts_of, slots_of
from .draw import Draw
from .memory import Array, Bytes, View, broadcast, packed, strided
from .specs import random_spec

_MOST_TOKENS = 40

# Lists that have no strides, and such that have one stride where their tokens are on one axis.
_PACKED = ("lengths", "row_offsets", "q_sums", "k_sums", "q_head_sums", "k_head_sums")
_ONE_STRIDE = ("slots", "positions")


@dataclass
class Case:
    """One call.

    Attributes:
        spec: of the call; it repeats slots and divides by 0 at times, which lenient plans take.
        tokens: of the call, or (batch, sequence).
        operands: the arrays of `run`.
        measured: those of `measure`, where it has any outputs; else none.
        views: the arrays, by name.
        buffers: what they lie in. Outputs, and gaps, are full of poison.
    """

    spec: Spec
    tokens: int | tuple[int, int]
    operands: dict[str, Operand] = field(default_factory=dict)
    measured: dict[str, Operand] = field(default_factory=dict)
    views: dict[str, View] = field(default_factory=dict)
    buffers: dict[str, Bytes] = field(default_factory=dict)

    def copy_of_buffers(self) -> dict[str, Bytes]:
        """The memory of a call of its own."""
        return {name: memory.copy() for name, memory in self.buffers.items()}

    def arrays(self, names: Iterable[str], buffers: dict[str, Bytes]) -> dict[str, Array]:
        """The arrays of a call in such memory, by `operands` or by `measured`."""
        return {name: self.views[name].of(buffers) for name in names}

    def __str__(self) -> str:
        return f"tokens {self.tokens}, {_without_defaults(self.spec)}"


def random_case(rng: np.random.Generator) -> Case:
    """A case that the library accepts with `strict=False`."""
    draw = Draw(rng)
    spec = random_spec(draw)
    tokens, places = _tokens_and_places(draw, spec)
    case = Case(spec, tokens)
    case.operands = operands(spec, tokens, len(places.get("slots", ())) or 1)
    if spec.q_norm.total_heads or spec.k_norm.total_heads:  # type: ignore[union-attr]
        case.measured = operands(spec, tokens, measures=True)
    data = _Data(draw, spec)
    for name, operand in {**case.operands, **case.measured}.items():
        view = case.views[name] = _memory(draw, case, name, operand)
        if not operand.is_output:
            array = view.of(case.buffers)
            values = places[name] if name in places else data.of(name, operand)
            array[...] = values.astype(array.dtype, copy=False).reshape(array.shape)
    if draw.chance(0.15):
        _share_caches(draw, case)
    if draw.chance(0.15):
        _write_in_place(draw, case)
    return case


def _tokens_and_places(draw: Draw, spec: Spec) -> tuple[int | tuple[int, int], dict[str, Array]]:
    """How many tokens, and the slots, lengths and row_offsets of their caches."""
    slots = slots_of(spec)
    cache = spec.k_cache
    if cache is not None and slots.mode is SlotMode.PAGE_TABLE:
        places = _page_table(draw, slots, cache)
        return int(places["row_offsets"][-1]), places
    batch, sequence = draw.between(1, 4), draw.between(1, 10)
    tokens: int | tuple[int, int] = (batch, sequence)
    if draw.chance(0.6):
        batch, sequence = 1, 0 if draw.chance(0.02) else draw.between(1, 12)
        if cache is None or slots.mode is SlotMode.SLOT_PER_TOKEN:
            sequence = draw.one_of((sequence, draw.between(1, _MOST_TOKENS)))
        tokens = sequence
    if cache is None:
        return tokens, {}
    if slots.mode is SlotMode.START_PER_SEQUENCE:
        starts = draw.rng.integers(0, cache.block_size - sequence + 1, batch)
        return tokens, {"slots": starts}
    count, every = batch * sequence, cache.blocks * cache.block_size
    named = draw.rng.permutation(every)[:count]
    if draw.chance(0.2):  # names slots more than once
        named = draw.rng.integers(0, draw.between(1, every), count)
    if draw.chance(0.5):
        named[draw.rng.random(count) < 0.2] = draw.one_of((-1, -1, -7))
    return tokens, {"slots": named}


def _page_table(draw: Draw, slots: Slots, cache: Cache) -> dict[str, Array]:
    """A ragged batch; pages of whole prefixes are shared at times."""
    size = cache.block_size
    sequences = draw.between(1, 4)
    # What a sequence has no rows for is not looked at.
    pages = np.full((sequences, slots.pages), draw.one_of((-1, 1 << 30)))
    free = draw.shuffled(range(cache.blocks))
    lengths, added = [], []
    for sequence in range(sequences):
        length = draw.between(0, min(16, len(free) * size, slots.pages * size))
        for page in range(-(-length // size)):
            pages[sequence, page] = free.pop()
        lengths.append(length)
        added.append(draw.between(0, length))
    past = [length - count for length, count in zip(lengths, added, strict=True)]
    if min(past) >= size and draw.chance(0.5):
        pages[:, 0] = pages[0, 0]
    return {
        "slots": pages,
        "lengths": np.array(lengths),
        "row_offsets": np.cumsum([0, *added]),
    }


def _memory(draw: Draw, case: Case, name: str, operand: Operand) -> View:
    """Memory for an array, in one of the shapes that it may have."""
    batch, sequence = (1, case.tokens) if isinstance(case.tokens, int) else case.tokens
    shapes = operand.shapes(batch, sequence)
    if isinstance(case.tokens, int) and operand.token_axis is not None:
        shapes = shapes[: len(operand.tails)]
    if operand.is_list:
        shapes = [operand.shape, (math.prod(operand.shape),)]
    shape = draw.one_of(shapes)
    dtype = numpy_dtype(operand.dtype)
    if (
        draw.chance(0.5)
        or name in _PACKED
        or (name in _ONE_STRIDE and shape != operand.shape)
        or math.prod(shape) == 0
    ):
        return packed(case.buffers, name, shape, dtype)
    if operand.is_output or draw.chance(0.75) or name in _ONE_STRIDE:
        return strided(draw, case.buffers, name, shape, dtype)
    return broadcast(draw, case.buffers, name, shape, dtype)


def _share_caches(draw: Draw, case: Case) -> None:
    """Puts K and V into one buffer, in turn along some axis, where they are equal arrays."""
    k, v = case.views.get("k_cache"), case.views.get("v_cache")
    if k is None or v is None or (k.shape, k.dtype) != (v.shape, v.dtype):
        return
    axis = draw.between(0, len(k.shape))
    shape = (*k.shape[:axis], 2, *k.shape[axis:])
    both = packed(case.buffers, "k_cache", shape, k.dtype)
    del case.buffers["v_cache"]
    for index, name in enumerate(("k_cache", "v_cache")):
        own = np.moveaxis(both.of(case.buffers), axis, 0)[index]
        case.views[name] = both.part(case.buffers, own)


def _write_in_place(draw: Draw, case: Case) -> None:
    """Puts dense outputs exactly on their parts of the source, where the types are equal."""
    for part in parts_of(case.spec).values():
        name = f"{part.name}_out"
        source = case.views.get(part.name if case.spec.is_separate else "x")
        if name not in case.views or source is None or 0 in source.strides:
            continue
        if case.views[name].dtype != source.dtype or 0 in source.shape:
            continue
        own = source.of(case.buffers)
        if not case.spec.is_separate:
            own = _part_of_x(case, part, own)
        del case.buffers[name]
        case.views[name] = source.part(case.buffers, own)


def _part_of_x(case: Case, part: Part, x: Array) -> Array:
    first, width = part.first_channel, part.heads * part.head_dim
    if x.shape[-1] == case.operands["x"].shape[-1]:
        return x[..., first : first + width]
    first_head = first // part.head_dim
    return x[..., first_head : first_head + part.heads, :]


class _Data:
    """What inputs hold: heavy-tailed numbers, and in some cases any bits at all."""

    def __init__(self, draw: Draw, spec: Spec) -> None:
        self._draw = draw
        self._spec = spec
        # Bits at random are NaN, infinities, subnormals and numbers of every size.
        self._share_of_any_bits = draw.one_of((0.0, 0.0, 0.0, 0.003, 0.003, 1.0))
        self._size_of_x = draw.one_of((1.0, 1.0, 1.0, 30.0, 1e-3, 1e-6))

    def of(self, name: str, operand: Operand) -> Array:
        """Elements of an input."""
        draw, shape = self._draw, operand.shape
        if name == "positions":
            most = self._spec.rope.max_positions  # type: ignore[union-attr]
            return draw.rng.integers(0, most, shape)
        if operand.dtype is DType.INT32:
            reach = draw.one_of((100, 20000, 1 << 25, 1 << 31))
            return draw.rng.integers(-reach, reach, shape)
        if name in ("cos", "sin"):
            return self._floats(np.cos(draw.rng.uniform(0, 2 * np.pi, shape)), operand.dtype)
        values = draw.rng.standard_normal(shape) * np.exp(draw.rng.standard_normal(shape))
        if name.endswith("_gamma"):
            values = 1 + 0.2 * values
        elif name.endswith("_sums"):
            values = np.abs(values) * 100
        elif name == "weight_scale":
            values = np.exp(values) * 1e-3
        elif name.endswith("_offset"):
            values = values * 20
        elif name.endswith("_scale"):
            values = self._scales(name, shape)
        else:
            values = values * self._size_of_x
        return self._floats(values, operand.dtype)

    def _scales(self, name: str, shape: tuple[int, ...]) -> Array:
        """Scales that map most values to codes that do not saturate; some negative, some 0."""
        draw = self._draw
        values = np.exp(draw.rng.standard_normal(shape)) / 50
        sink: Dense | Cache | None = getattr(self._spec, _SINK_OF_SCALE.get(name, ""), None)
        if sink is not None and sink.scale_rule is ScaleRule.MULTIPLY:
            values = 1 / values
        if draw.chance(0.3):
            values = values * draw.rng.choice([-1.0, 1.0], shape)
        if draw.chance(0.1):
            values = values * (draw.rng.random(shape) > 0.1)
        return values

    def _floats(self, values: Array, dtype: DType) -> Array:
        with np.errstate(over="ignore"):  # long tails reach infinity
            rounded = values.astype(np.float32)
        codes = narrow(rounded, dtype).copy()
        is_any = self._draw.rng.random(codes.shape) < self._share_of_any_bits
        codes[is_any] = self._draw.rng.integers(
            0, 1 << (8 * codes.itemsize), int(is_any.sum()), dtype=codes.dtype
        )
        return codes.view(numpy_dtype(dtype))


_SINK_OF_SCALE = {"q_scale": "q_out", "k_scale": "k_cache", "v_scale": "v_cache"}


def _without_defaults(value: Any) -> str:
    """The repr of a Spec or one of its parts, only with what differs from a default."""
    if not dataclasses.is_dataclass(value):
        return repr(value)
    members = []
    for member in dataclasses.fields(value):
        own = getattr(value, member.name)
        if own != member.default:
            members.append(f"{member.name}={_without_defaults(own)}")
    return f"{type(value).__name__}({', '.join(members)})"
