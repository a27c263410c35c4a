"""The words of a Spec: enumerations that compare equal to their strings.

Wherever a function takes one of these, it takes the plain string too; wherever it takes a `DType`,
it takes what NumPy, ml_dtypes, PyTorch and JAX call the type.
"""

from __future__ import annotations

from enum import Enum
from typing import Any, TypeVar

_E = TypeVar("_E", bound="Word")


class Word(str, Enum):
    """A string enumeration whose members are their strings."""

    def __str__(self) -> str:
        return str(self.value)

    def __repr__(self) -> str:
        return repr(str(self.value))

    @classmethod
    def of(cls: type[_E], value: Any, name: str) -> _E:
        """The member that `value` is or spells.

        Raises:
            ValueError: `value` is none of the allowed words; the sentence names the argument
            `name`.
        """
        try:
            return cls(value)
        except ValueError:
            words = [str(member.value) for member in cls]
            allowed = ", ".join(words[:-1]) + " or " + words[-1]
            raise ValueError(f"{name}: is {value!r}, must be {allowed}") from None


class DType(Word):
    """Element types. The values are NumPy's and ml_dtypes' names."""

    FLOAT32 = "float32"
    FLOAT16 = "float16"
    BFLOAT16 = "bfloat16"
    INT8 = "int8"
    INT32 = "int32"
    INT64 = "int64"
    FLOAT8_E4M3FN = "float8_e4m3fn"
    FLOAT8_E5M2 = "float8_e5m2"

    @classmethod
    def _missing_(cls, value: object) -> DType | None:
        # The short names of sentences and case lines; NumPy's and ml_dtypes' dtypes and scalar
        # types; torch.bfloat16, whose text is "torch.bfloat16".
        text = getattr(value, "name", None) or getattr(value, "__name__", None) or str(value)
        text = str(text).removeprefix("torch.")
        text = _SHORT_NAMES.get(text, text)
        return cls.__members__.get(text.upper())

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return {"32": 4, "16": 2, "64": 8}.get(self.value[-2:], 1)


_SHORT_NAMES = {
    "fp32": "float32",
    "fp16": "float16",
    "bf16": "bfloat16",
    "fp8_e4m3": "float8_e4m3fn",
    "fp8_e5m2": "float8_e5m2",
}


class NormKind(Word):
    """What an RMSNorm takes the mean of."""

    NONE = "none"
    PER_HEAD = "per_head"
    FULL_WIDTH = "full_width"  # all heads of the part together


class Gamma(Word):
    """The weight of an RMSNorm."""

    PLAIN = "plain"
    ONE_PLUS = "one_plus"  # 1 + gamma, as Gemma has it
    NONE = "none"


class NormOrder(Word):
    """Whether q and k are normalised before they are rotated, or after."""

    BEFORE_ROPE = "before_rope"
    AFTER_ROPE = "after_rope"


class Pairing(Word):
    """Which channels rotate together."""

    NONE = "none"
    HALVES = "halves"  # channel j with j + rotary_dim/2 (NeoX)
    INTERLEAVED = "interleaved"  # channel 2j with 2j + 1 (GPT-J)


class Table(Word):
    """What a row of cos and sin belongs to."""

    ROW_PER_TOKEN = "row_per_token"
    TWO_TABLES = "two_tables"  # cos and sin have a row for every position
    JOINED = "joined"  # cos alone: rotary_dim/2 of cos, then of sin, for every position


class Sections(Word):
    """How the pairs of a rotation are shared among three positions."""

    NONE = "none"
    CONCATENATED = "concatenated"  # M-RoPE
    INTERLEAVED = "interleaved"


class ScaleRule(Word):
    """How a value y becomes a code of an 8-bit type."""

    DIVIDE = "divide"  # y / scale
    MULTIPLY = "multiply"  # y * scale
    DYNAMIC = "dynamic"  # y / scale with a scale of its own for each token and head


class Granularity(Word):
    """What shares a scale and an offset."""

    CHANNEL = "channel"  # [heads, head_dim]
    HEAD = "head"  # [heads]
    TENSOR = "tensor"  # [1]


class SlotMode(Word):
    """How tokens find their rows of the cache."""

    SLOT_PER_TOKEN = "slot_per_token"
    START_PER_SEQUENCE = "start_per_sequence"
    PAGE_TABLE = "page_table"


class ScalingKind(Word):
    """How rotary frequencies are scaled for long contexts."""

    NONE = "none"
    LINEAR = "linear"
    NTK = "ntk"
    DYNAMIC_NTK = "dynamic_ntk"
    YARN = "yarn"
    LLAMA3 = "llama3"
    LONG_ROPE = "long_rope"
