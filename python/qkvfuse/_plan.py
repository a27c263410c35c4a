"""Plan: the general operator, described once and run many times."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict

from . import _core
from ._arrays import ArrayLike, zeros
from ._spec import Spec
from ._words import DType

if TYPE_CHECKING:
    from typing_extensions import Unpack


class Arrays(TypedDict, total=False):
    """The arrays of a call, by name. Which ones a Spec takes: `Plan.operands`."""

    x: ArrayLike
    q: ArrayLike
    k: ArrayLike
    v: ArrayLike
    q_gamma: ArrayLike
    k_gamma: ArrayLike
    v_gamma: ArrayLike
    cos: ArrayLike
    sin: ArrayLike
    positions: ArrayLike
    slots: ArrayLike
    lengths: ArrayLike
    row_offsets: ArrayLike
    q_scale: ArrayLike
    k_scale: ArrayLike
    v_scale: ArrayLike
    q_offset: ArrayLike
    k_offset: ArrayLike
    v_offset: ArrayLike
    weight_scale: ArrayLike
    token_scale: ArrayLike
    bias: ArrayLike
    q_sums: ArrayLike
    k_sums: ArrayLike
    q_out: ArrayLike
    q_before_quant: ArrayLike
    k_out: ArrayLike
    v_out: ArrayLike
    q_scale_out: ArrayLike
    q_head_sums: ArrayLike
    k_head_sums: ArrayLike
    k_cache: ArrayLike
    v_cache: ArrayLike
    k_scale_cache: ArrayLike
    v_scale_cache: ArrayLike


class Operand(NamedTuple):
    """What a call takes under one name."""

    shape: tuple[int, ...]
    dtype: DType
    is_output: bool


class Traffic(NamedTuple):
    """Bytes that a call must move, each input read once and each output written once."""

    read_bytes: int
    write_bytes: int


class Plan:
    """The general operator for one `Spec`: checked once, bound to kernels once, run many times.

    Immutable, and safe to run from many threads at the same time; the GIL is released meanwhile.

    Args:
        spec: a `Spec`, for instance that of a `Model`; left out where the fields are given.
        strict: refuse repeated slots, slots below -1 and scales of 0; otherwise the highest token
            of a repeated slot wins and divisions follow IEEE.
        path: "auto", "general", or "fused": refuse what has no fused kernels. Both give the same
            bits.
        target: one of `available_targets()`; "": the best, or what QKVFUSE_TARGET says.
        **fields: fields of `Spec`, which replace those of `spec`.

    Raises:
        ValueError: the Spec contradicts itself, with one sentence.

    Example:
        >>> cache = qkvfuse.Cache("int8", "paged_nhd", blocks=64, block_size=16, granularity="head")
        >>> plan = qkvfuse.Plan(x_dtype="bfloat16", heads=(32, 8, 8), head_dim=128,
        ...                     q_norm="per_head", k_norm="per_head", k_cache=cache, v_cache=cache)
        >>> plan.run(x=x, q_gamma=q_gamma, k_gamma=k_gamma, cos=cos, sin=sin, slots=slots,
        ...          k_scale=k_scale, v_scale=v_scale, q_out=q, k_cache=k_cache, v_cache=v_cache)

    Source: docs/operators/fused_qkv.md; the arithmetic, rounding by rounding: docs/numerics.md.
    """

    def __init__(
        self,
        spec: Spec | None = None,
        *,
        strict: bool = True,
        path: str = "auto",
        target: str = "",
        **fields: Any,
    ) -> None:
        self._make(_spec_of(spec, fields), (strict, path, target), measures=False)

    def _make(self, spec: Spec, options: tuple[bool, str, str], measures: bool) -> None:
        self._spec = spec
        self._options = options
        self._measures = measures
        self._core = _core.Plan(spec, measures, *options)

    @property
    def spec(self) -> Spec:
        """What the plan was made from."""
        return self._spec

    def run(
        self,
        *,
        tokens: int | tuple[int, int] | None = None,
        threads: int = 0,
        **arrays: Unpack[Arrays],
    ) -> None:
        """Computes one call; outputs and caches are written in place.

        Args:
            tokens: a number, or (batch, sequence length); None: what the shape of x (or q) says,
                [tokens, channels] or [batch, sequence, channels].
            threads: 0: as many as the work is worth.
            **arrays: NumPy arrays, torch CPU tensors, or anything with DLPack or the buffer
                protocol; any strides. All that `operands` lists, and no other. Arrays of heads may
                be [tokens, heads, head_dim] or [tokens, heads * head_dim], and have [batch,
                sequence] in place of [tokens].

        Raises:
            TypeError: an array is missing, not needed, no array, or of another dtype.
            ValueError: a shape, a read-only output, a slot outside of the cache, memory that is
                shared by an output: one sentence that names the array, says what was found and what
                is allowed. No byte of any output has changed.
        """
        self._core.run(tokens, arrays, threads)

    def operands(
        self, tokens: int | tuple[int, int] = 1, *, sequences: int = 1
    ) -> dict[str, Operand]:
        """The arrays that `run` takes for this many tokens (and sequences of a page table)."""
        described = self._core.operands(tokens, sequences)
        return {
            name: Operand(tuple(shape), DType(dtype), is_output)
            for name, (shape, dtype, is_output) in described.items()
        }

    def zeros(
        self, tokens: int | tuple[int, int] = 1, *, like: ArrayLike | None = None
    ) -> dict[str, Any]:
        """New outputs and caches, as NumPy arrays, or as torch tensors where `like` is one."""
        return {
            name: zeros(operand.shape, operand.dtype, like)
            for name, operand in self.operands(tokens).items()
            if operand.is_output
        }

    def measure(self) -> Plan:
        """The first half of a full-width norm over tensor-parallel ranks.

        A plan that reads q and k and writes q_head_sums and k_head_sums, float32 [tokens, heads],
        the sums of squares of the heads. The ranks gather them in head order and pass them to this
        plan as q_sums and k_sums, [tokens, total_heads].
        """
        return _restored(self._spec, self._options, True)

    def describe(self, tokens: int = 1) -> str:
        """For people: SIMD target, kernels, layouts, bytes, work split, and why each was chosen."""
        return self._core.describe(tokens)

    def traffic(self, tokens: int) -> Traffic:
        """Bytes that a call of this many tokens must move."""
        return Traffic(*self._core.traffic(tokens))

    @property
    def target(self) -> str:
        """The SIMD target that the plan runs on."""
        return self._core.target

    @property
    def is_fused(self) -> bool:
        """Whether q, k and v all have fused kernels."""
        return self._core.is_fused

    def __repr__(self) -> str:
        strict, path, target = self._options
        plan = f"Plan({self._spec!r}, strict={strict}, path={path!r}, target={target!r})"
        return plan + (".measure()" if self._measures else "")

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (self._spec, self._options, self._measures)


def _restored(spec: Spec, options: tuple[bool, str, str], measures: bool) -> Plan:
    plan = Plan.__new__(Plan)
    plan._make(spec, options, measures)
    return plan


def _spec_of(spec: Spec | None, fields: dict[str, Any]) -> Spec:
    if spec is None:
        return Spec(**fields)
    if not isinstance(spec, Spec):
        raise TypeError(f"spec: is {spec!r}, must be a Spec")
    return dataclasses.replace(spec, **fields)
