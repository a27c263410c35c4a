"""Rotary tables and the Specs of published models: docs/rope_tables.md, docs/models.md."""

from __future__ import annotations

import dataclasses
import json
import os
from dataclasses import dataclass
from typing import Any

from . import _core
from ._arrays import zeros
from ._spec import DTypeLike, Rope, RopeTable, Spec
from ._words import DType, Table


def rope_frequencies(table: RopeTable) -> list[float]:
    """Radians per position of the rotary_dim/2 pairs; `max_positions` is not looked at."""
    return _core.rope_frequencies(table)


def rope_attention_factor(table: RopeTable) -> float:
    """What multiplies cos and sin: 1 but for "yarn" and "long_rope"."""
    return _core.rope_attention_factor(table)


def rope_table(table: RopeTable, rope: Rope | str | None = None, *, dtype: DTypeLike = None) -> Any:
    """cos and sin by position, computed in double and rounded once.

    Args:
        table: frequencies and number of positions.
        rope: the form: a Rope, whose max_positions and rotary_dim become the table's, or "joined"
            (as None) or "two_tables".
        dtype: float32, float16 or bfloat16; None: `rope.dtype`, or float32.

    Returns:
        "joined": one array [max_positions, rotary_dim], rotary_dim/2 of cos, then of sin;
        "two_tables": (cos, sin), each [max_positions, rotary_dim], or rotary_dim/2 with half_width.

    Raises:
        ValueError: a parameter is not allowed, or would not be used.
    """
    if not isinstance(table, RopeTable):
        raise TypeError(f"table: is {table!r}, must be a RopeTable")
    rope = rope if isinstance(rope, Rope) else Rope(table=rope or Table.JOINED)
    rope = dataclasses.replace(rope, max_positions=table.max_positions, rotary_dim=table.rotary_dim)
    chosen = DType.of(dtype or rope.dtype or DType.FLOAT32, "dtype")
    is_joined = rope.table == Table.JOINED
    width = table.rotary_dim // 2 if rope.half_width and not is_joined else table.rotary_dim
    shape = (max(table.max_positions, 0), max(width, 0))
    cos = zeros(shape, chosen)
    sin = None if is_joined else zeros(shape, chosen)
    _core.fill_rope_table(table, dataclasses.replace(rope, dtype=chosen), cos, sin)
    return cos if sin is None else (cos, sin)


@dataclass(frozen=True)
class Model:
    """What a published model's config.json says.

    Attributes:
        model_type: of the decoder: "gemma3_text" also where the config says "gemma3".
        spec: of every layer: packed rows, float32 tables by position. Caches, slots and dense
            outputs of k and v are yours to add: `Plan(model.spec, k_cache=..., v_cache=...)`.
        rope_tables: what to fill the tables with: `rope_table(model.rope_tables[0],
            model.spec.rope)`.
        rope_of_layer: the table of each layer, an index of rope_tables.
    """

    model_type: str
    spec: Spec
    rope_tables: tuple[RopeTable, ...]
    rope_of_layer: tuple[int, ...]

    @property
    def layers(self) -> int:
        """Number of layers."""
        return len(self.rope_of_layer)


def spec_from_config(
    config: str | os.PathLike[str] | dict[str, Any], *, dtype: DTypeLike = None
) -> Model:
    """The Spec of a published model, from its config.json as Hugging Face transformers writes it.

    Args:
        config: a path, or what the file holds as a dictionary.
        dtype: x_dtype: float32, float16 or bfloat16; None: the config's.

    Raises:
        ValueError: the model is not known, or a field may change q, k or v and is not known, or has
            a value that is not known, for the model. docs/models.md lists the models.
    """
    is_path = not isinstance(config, dict)
    text = os.fspath(config) if is_path else json.dumps(config)  # type: ignore[arg-type]
    name = None if dtype is None else str(DType.of(dtype, "dtype"))
    model_type, spec, tables, layers = _core.spec_from_config(text, is_path, name)
    return Model(model_type, spec, tuple(tables), tuple(layers))
