"""The arrays of a call, taken in: checked, and in the one shape that the arithmetic wants.

A row of tokens may be written [tokens] or [batch, sequence], the heads of a token apart or joined.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from .._spec import Spec
from .._words import SlotMode
from .arithmetic import Array, numpy_dtype
from .operands import Part, operands, slots_of


class Call:
    """The arrays of one call in the shapes that the arithmetic wants.

    Attributes:
        spec: the Spec.
        batch, sequence, tokens: `batch` sequences of `sequence` tokens, `tokens` in all.
        sequences: what slots has a row for, of "page_table" and "start_per_sequence".
    """

    def __init__(
        self,
        spec: Spec,
        tokens: int | tuple[int, int] | None,
        arrays: Mapping[str, Array | None],
        *,
        measures: bool = False,
    ) -> None:
        self.spec = spec
        self._arrays = {name: array for name, array in arrays.items() if array is not None}
        if tokens is None:
            tokens = self._tokens_of_source(measures)
        self.batch, self.sequence = (1, tokens) if isinstance(tokens, int) else tokens
        self.tokens = self.batch * self.sequence
        mode = slots_of(spec).mode
        self.sequences = self.batch
        if mode is SlotMode.PAGE_TABLE and "slots" in self._arrays:
            self.sequences = len(self._arrays["slots"])
        self._operands = operands(spec, self.tokens, self.sequences, measures=measures)

    def array(self, name: str) -> Array:
        """The caller's own array, its type and shape checked.

        Raises:
            ValueError: it is absent, or of another type or shape.
        """
        operand = self._operands[name]
        if name not in self._arrays:
            raise ValueError(f"{name}: is absent, this Spec needs it")
        array = self._arrays[name]
        if array.dtype != numpy_dtype(operand.dtype):
            raise ValueError(f"{name}: type is {array.dtype}, must be {operand.dtype}")
        allowed = operand.shapes(self.batch, self.sequence)
        is_right = array.shape in allowed
        if operand.is_list:
            # A list of channels may be longer than they are: weight scales of a padded matrix.
            size = math.prod(operand.shape)
            may_be_longer = name in ("weight_scale", "bias")
            is_right = array.size >= size if may_be_longer else array.size == size
        if not is_right:
            raise ValueError(f"{name}: shape is {array.shape}, must be one of {allowed}")
        return array

    def has(self, name: str) -> bool:
        """Whether the Spec has this array."""
        return name in self._operands

    def plain(self, name: str) -> Array:
        """An input in the shape of its `Operand`."""
        operand = self._operands[name]
        flat = self.array(name).reshape(-1)
        return flat[: math.prod(operand.shape)].reshape(operand.shape)

    def optional(self, name: str) -> Array | None:
        """`plain`, or None where the Spec does not have this array."""
        return self.plain(name) if self.has(name) else None

    def heads_of(self, part: Part) -> Array:
        """The heads of a part as they are in memory, [tokens, heads, head_dim]."""
        if self.spec.is_separate:
            return self.plain(part.name)
        return self.channels_of(part, self.plain("x"))

    def channels_of(self, part: Part, rows: Array) -> Array:
        """A part's share of rows of all channels: [..., channels] to [..., heads, head_dim]."""
        width = part.heads * part.head_dim
        own = rows[..., part.first_channel : part.first_channel + width]
        return own.reshape(*rows.shape[:-1], part.heads, part.head_dim)

    def _tokens_of_source(self, measures: bool) -> int | tuple[int, int]:
        name, operand = next(iter(operands(self.spec, 1, measures=measures).items()))
        if name not in self._arrays:
            raise ValueError(f"{name}: is absent, this Spec needs it")
        shape, tails = self._arrays[name].shape, operand.tails
        # A single q head: [T, 1, D] has its heads apart, it is not T sequences of 1 token.
        for tail in tails:
            lead = shape[: len(shape) - len(tail)]
            if shape[len(lead) :] == tail and len(lead) in (1, 2):
                return lead[0] if len(lead) == 1 else (lead[0], lead[1])
        raise ValueError(f"{name}: shape is {shape}, must end with one of {tails}")
