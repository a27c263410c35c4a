"""What a `Plan` is made from: the general operator as plain data.

The fields are those of the C++ `FusedQkvSpec` (include/qkvfuse/fused_qkv.hpp), with two
differences: strides are not written down, since they come with the arrays, and a cache says which
array it is (`Cache.layout`). What is computed, rounding by rounding: docs/numerics.md.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from operator import index
from typing import Any, TypeVar

from ._layouts import axes_of
from ._words import (
    DType,
    Gamma,
    Granularity,
    NormKind,
    NormOrder,
    Pairing,
    ScaleRule,
    ScalingKind,
    Sections,
    SlotMode,
    Table,
    Word,
)

_T = TypeVar("_T")
_P = TypeVar("_P", bound="Part")
DTypeLike = Any  # a DType, its name, a NumPy, ml_dtypes or PyTorch dtype


def _set(obj: object, **values: object) -> None:
    for name, value in values.items():
        object.__setattr__(obj, name, value)


def _word(obj: object, **kinds: type[Word]) -> None:
    for name, kind in kinds.items():
        _set(obj, **{name: kind.of(getattr(obj, name), name)})


def _dtype(obj: object, *names: str) -> None:
    for name in names:
        value = getattr(obj, name)
        if value is not None:
            _set(obj, **{name: DType.of(value, name)})


class Part:
    """What the parts of a Spec have in common: they are written as JSON and read back."""

    def to_json(self) -> str:
        """The fields as a JSON object; equal parts have equal texts."""
        return json.dumps(asdict(self))  # type: ignore[call-overload]

    @classmethod
    def from_json(cls: type[_P], text: str) -> _P:
        """The part that `to_json` wrote.

        Raises:
            ValueError: the text is no JSON object, or a field has a value that is not allowed.
            TypeError: a field is not known.
        """
        made = json.loads(text)
        if not isinstance(made, dict):
            raise ValueError(f"text: is {text!r}, must be a JSON object")
        return cls(**made)


def _integers(values: Iterable[int], name: str) -> tuple[int, ...]:
    try:
        if any(isinstance(value, bool) for value in values):
            raise TypeError
        return tuple(index(value) for value in values)
    except TypeError:
        raise TypeError(f"{name}: is {values!r}, must be integers") from None


@dataclass(frozen=True)
class Norm(Part):
    """RMSNorm of the heads of one part.

    Attributes:
        kind: "none", "per_head", or "full_width": one mean over all heads of the part.
        gamma: the weight: "plain" gamma, "one_plus" (1 + gamma, Gemma), or "none".
        gamma_dtype: float32 or x's type; None: x's, which is then not int32.
        total_heads: "full_width" over tensor-parallel ranks: heads of all ranks, whose gathered
            sums of squares `Plan.run` takes as q_sums and k_sums. 0: the heads of the call are all.
    """

    kind: NormKind | str = NormKind.NONE
    gamma: Gamma | str = Gamma.PLAIN
    gamma_dtype: DTypeLike | None = None
    total_heads: int = 0

    def __post_init__(self) -> None:
        _word(self, kind=NormKind, gamma=Gamma)
        _dtype(self, "gamma_dtype")


@dataclass(frozen=True)
class Rope(Part):
    """The rotation of q and k.

    Attributes:
        pairing: "halves" (channel j with j + rotary_dim/2), "interleaved" (2j with 2j + 1), "none".
        rotary_dim: channels that rotate, even; 0: all of head_dim.
        rotates_last: the last rotary_dim channels of a head instead of the first.
        table: "row_per_token": cos and sin are [tokens, rotary_dim]; "two_tables": [max_positions,
            rotary_dim]; "joined": cos alone, [max_positions, rotary_dim], half cos and half sin.
        dtype: of cos and sin, float32 or x's type; None: x's, which is then not int32.
        half_width: rows of rotary_dim/2 entries, each for both channels of a pair. Not "joined".
        max_positions: rows of a table by position.
        position_dtype: int64 or int32.
        sections: "concatenated" or "interleaved": three positions per token, [3, tokens].
        section_pairs: pairs of each section, together rotary_dim/2.
    """

    pairing: Pairing | str = Pairing.HALVES
    rotary_dim: int = 0
    rotates_last: bool = False
    table: Table | str = Table.ROW_PER_TOKEN
    dtype: DTypeLike | None = None
    half_width: bool = False
    max_positions: int = 0
    position_dtype: DTypeLike = DType.INT64
    sections: Sections | str = Sections.NONE
    section_pairs: tuple[int, int, int] = (0, 0, 0)

    def __post_init__(self) -> None:
        _word(self, pairing=Pairing, table=Table, sections=Sections)
        _dtype(self, "dtype", "position_dtype")
        pairs = _integers(self.section_pairs, "section_pairs")
        if len(pairs) != 3:
            raise ValueError(f"section_pairs: has {len(pairs)} values, must have 3")
        _set(self, section_pairs=pairs)


@dataclass(frozen=True)
class Dense(Part):
    """A dense output, [tokens, heads, head_dim].

    Attributes:
        dtype: float32, float16, bfloat16 or, of q_out, int8, float8_e4m3fn, float8_e5m2; None: x's.
        has_offset: int8 only: q_offset is added before rounding.
        scale_rule: of 8-bit types: "divide" (y / scale), "multiply" (y * scale), "dynamic": a scale
            for each token and head, written to q_scale_out.
        granularity: what shares a scale: "channel" [heads, head_dim], "head" [heads], "tensor" [1].
    """

    dtype: DTypeLike | None = None
    has_offset: bool = False
    scale_rule: ScaleRule | str = ScaleRule.DIVIDE
    granularity: Granularity | str = Granularity.CHANNEL

    def __post_init__(self) -> None:
        _word(self, scale_rule=ScaleRule, granularity=Granularity)
        _dtype(self, "dtype")


@dataclass(frozen=True)
class Cache(Part):
    """One of the two caches, an array of blocks * block_size slots.

    Attributes:
        dtype: float32, float16, bfloat16, int8, float8_e4m3fn or float8_e5m2.
        layout: which array it is: a name of `qkvfuse.LAYOUTS` or the names of its axes.
        blocks: pages, or sequences of a static cache.
        block_size: rows of a block.
        chunk: channels (rows, of "row_chunk") that lie together in a layout with chunks; 0: what
            the layout's engine has: 32 of 8 bits or 16 of more for "pa_nz", else 16 bytes.
        has_offset: int8 only: k_offset or v_offset is added before rounding.
        scale_rule: of 8-bit types: "divide" (y / scale), "multiply" (y * scale), "dynamic": a scale
            for each token and head, written to k_scale_cache or v_scale_cache.
        granularity: what shares a scale: "channel" [heads, head_dim], "head" [heads], "tensor" [1].
        scale_layout: "dynamic" only: which array the scale cache is.
    """

    dtype: DTypeLike
    layout: str
    blocks: int
    block_size: int = 1
    chunk: int = 0
    has_offset: bool = False
    scale_rule: ScaleRule | str = ScaleRule.DIVIDE
    granularity: Granularity | str = Granularity.CHANNEL
    scale_layout: str = "scales_nh"

    def __post_init__(self) -> None:
        _word(self, scale_rule=ScaleRule, granularity=Granularity)
        _set(self, dtype=DType.of(self.dtype, "dtype"))
        axes = axes_of(self.layout, "layout")
        axes_of(self.scale_layout, "scale_layout")
        has_chunks = any("_chunk" in axis for axis in axes)
        if has_chunks and self.chunk == 0:
            bytes_of_chunk = 32 if self.layout == "pa_nz" else 16
            _set(self, chunk=max(1, bytes_of_chunk // self.dtype.itemsize))
        elif not has_chunks and self.chunk != 0:
            raise ValueError(
                f"chunk: is {self.chunk}, must be left out: {self.layout!r} has no chunks"
            )


@dataclass(frozen=True)
class Slots(Part):
    """How tokens find their rows of the caches.

    Attributes:
        mode: "slot_per_token": slots[t] is the slot of token t, negative: its caches are not
            written; "start_per_sequence": sequence b goes to the rows slots[b], slots[b] + 1, ...
            of block b; "page_table": sequence b has the blocks slots[b, 0], slots[b, 1], ...,
            lengths[b] tokens after this call, and the call's tokens row_offsets[b] .. row_offsets[b
            + 1].
        dtype: int64 or int32, of slots (lengths and row_offsets, too).
        pages: "page_table": columns of slots.
        zeroes_unused_rows: "page_table": the rows of a sequence's last page that it does not use
            yet are set to 0.
    """

    mode: SlotMode | str = SlotMode.SLOT_PER_TOKEN
    dtype: DTypeLike = DType.INT64
    pages: int = 0
    zeroes_unused_rows: bool = False

    def __post_init__(self) -> None:
        _word(self, mode=SlotMode)
        _dtype(self, "dtype")


def _made(kind: type[_T], value: Any, name: str) -> _T | None:
    """`value`, or what its first field alone makes: Norm("per_head") of "per_head"."""
    if value is None or isinstance(value, kind):
        return value
    if isinstance(value, dict):
        try:
            return kind(**value)
        except ValueError as error:
            raise ValueError(f"{name}.{error}") from None
    first = fields(kind)[0].name  # type: ignore[arg-type]
    try:
        return kind(**{first: value})
    except ValueError as error:
        raise ValueError(str(error).replace(first, name, 1)) from None


@dataclass(frozen=True)
class Spec(Part):
    """The general operator: any source, norm, rotation, cache type, layout and addressing.

    A part that has only one thing to say may be given as that: `q_norm="per_head"`,
    `rope="interleaved"`, `k_out="bfloat16"`, `slots="page_table"`.

    Attributes:
        x_dtype: float32, float16, bfloat16 or int32 (dequantised with weight_scale).
        heads: numbers of q, k and v heads; as many of v as of k.
        head_dim: channels of a q or k head, even, 2 to 1024.
        v_head_dim: channels of a v head; 0: head_dim.
        is_separate: arrays q, k and v instead of the packed rows x.
        has_token_scale: int32 x: token_scale is given, one for each token.
        bias: dtype of the projection's bias, float32 or x's type (int32 x: float32, float16,
            bfloat16 or int32); None: there is none.
        q_norm, k_norm, v_norm: `Norm` of each part.
        norm_order: "before_rope" or "after_rope".
        epsilon: of the norms, used as a float32.
        rope: `Rope`.
        q_out: `Dense`, always written. q_before_quant, k_out, v_out: `Dense`, where given.
        k_cache, v_cache: `Cache`, both or none.
        slots: `Slots`.

    Source: docs/operators/fused_qkv.md.
    """

    x_dtype: DTypeLike
    heads: tuple[int, int, int]
    head_dim: int
    v_head_dim: int = 0
    is_separate: bool = False
    has_token_scale: bool = False
    bias: DTypeLike | None = None
    q_norm: Norm | str = Norm()
    k_norm: Norm | str = Norm()
    v_norm: Norm | str = Norm()
    norm_order: NormOrder | str = NormOrder.BEFORE_ROPE
    epsilon: float = 1e-6
    rope: Rope | str = Rope()
    q_out: Dense | DTypeLike = Dense()
    q_before_quant: Dense | DTypeLike | None = None
    k_out: Dense | DTypeLike | None = None
    v_out: Dense | DTypeLike | None = None
    k_cache: Cache | None = None
    v_cache: Cache | None = None
    slots: Slots | str = Slots()

    def __post_init__(self) -> None:
        _dtype(self, "x_dtype", "bias")
        _word(self, norm_order=NormOrder)
        heads = _integers(self.heads, "heads")
        if len(heads) != 3:
            raise ValueError(f"heads: has {len(heads)} values, must have 3, those of q, k and v")
        _set(self, heads=heads)
        kinds: dict[str, type] = {
            **dict.fromkeys(("q_norm", "k_norm", "v_norm"), Norm),
            **dict.fromkeys(("q_out", "q_before_quant", "k_out", "v_out"), Dense),
            **dict.fromkeys(("k_cache", "v_cache"), Cache),
            "rope": Rope,
            "slots": Slots,
        }
        for name, kind in kinds.items():
            value = getattr(self, name)
            if value is None and name not in (
                "q_before_quant",
                "k_out",
                "v_out",
                "k_cache",
                "v_cache",
            ):
                raise TypeError(f"{name}: is None, must be a {kind.__name__}")
            if kind is Cache and not isinstance(value, (Cache, dict, type(None))):
                raise TypeError(f"{name}: is {value!r}, must be a Cache")
            _set(self, **{name: _made(kind, value, name)})


@dataclass(frozen=True)
class RopeScaling(Part):
    """How the frequencies of a model are changed for contexts longer than its first training's.

    The names are those of Hugging Face transformers; a field that the kind does not use keeps its
    default, anything else is refused.

    Attributes:
        kind: "none", "linear", "ntk", "dynamic_ntk", "yarn", "llama3" or "long_rope".
        factor: at least 1.
        original_max_positions: positions of the first training.
        sequence_length: "dynamic_ntk", "long_rope": tokens of the longest sequence that is served.
        beta_fast, beta_slow, truncate, mscale, mscale_all_dim: "yarn".
        attention_factor: "yarn", "long_rope": multiplies cos and sin; None: the kind's formula.
        low_freq_factor, high_freq_factor: "llama3".
        short_factor, long_factor: "long_rope": rotary_dim/2 divisors of the frequencies each.

    Source: docs/rope_tables.md.
    """

    kind: ScalingKind | str = ScalingKind.NONE
    factor: float = 1.0
    original_max_positions: int = 0
    sequence_length: int = 0
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    truncate: bool = True
    mscale: float = 0.0
    mscale_all_dim: float = 0.0
    attention_factor: float | None = None
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    short_factor: tuple[float, ...] = ()
    long_factor: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        _word(self, kind=ScalingKind)
        _set(self, short_factor=tuple(self.short_factor), long_factor=tuple(self.long_factor))


@dataclass(frozen=True)
class RopeTable(Part):
    """What a table of cos and sin by position is computed from.

    Attributes:
        rotary_dim: even, 2 to 1024.
        max_positions: rows of the table.
        theta: the base, more than 1.
        scaling: `RopeScaling`.
    """

    rotary_dim: int
    max_positions: int
    theta: float = 10000.0
    scaling: RopeScaling = RopeScaling()

    def __post_init__(self) -> None:
        _set(self, scaling=_made(RopeScaling, self.scaling, "scaling") or RopeScaling())
