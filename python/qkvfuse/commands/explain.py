"""`python -m qkvfuse explain`: what a plan does, why, and which arrays it takes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import qkvfuse

from . import UsageError, refusals, specs


@dataclass(frozen=True)
class Options:
    """What `explain` is asked for.

    Attributes:
        config: a model's config.json; None: `spec` says what is planned.
        dtype: x's type, in place of the config's.
        cache, layout, blocks, block_size: the caches of the model, as `specs.with_caches` has them.
        spec: JSON or a file with it.
        words: "name=value" for single fields of the Spec.
        tokens: of a call.
    """

    config: Path | None = None
    dtype: str | None = None
    cache: str = "16bit"
    layout: str = "paged_nhd"
    blocks: int = 1024
    block_size: int = 16
    spec: str | None = None
    words: tuple[str, ...] = ()
    tokens: int = 1


def explain(options: Options) -> str:
    """The description of the plan and the table of its arrays.

    Raises:
        UsageError: neither a config nor a Spec is given, or what is given is refused.
    """
    heading = ""
    if options.config is not None:
        if options.spec is not None:
            raise UsageError("--spec: is given beside --config, must be one of them")
        model = model_of(options.config, options.dtype)
        spec = specs.with_caches(
            model.spec, options.cache, options.layout, options.blocks, options.block_size
        )
        attributes = specs.parse(specs.json_of(spec), "config")
        heading = _heading(model)
    elif options.spec is not None:
        attributes = specs.attributes_of(options.spec)
    elif options.words:
        attributes = {}
    else:
        raise UsageError("a Spec: is missing, must be given by --config, --spec or --set")
    spec = specs.spec_of(specs.with_words(attributes, options.words))
    with refusals():
        plan = qkvfuse.Plan(spec)
        description = plan.describe(options.tokens).rstrip()
        operands = plan.operands(options.tokens)
    return f"{heading}{description}\n\n{table_of(operands)}"


def model_of(config: Path, dtype: str | None) -> qkvfuse.Model:
    """The model of a config.json."""
    if not config.is_file():
        raise UsageError(f"{config}: there is no such file")
    with refusals():
        return qkvfuse.spec_from_config(config, dtype=dtype)


def table_of(operands: dict[str, qkvfuse.Operand]) -> str:
    """A line for each array: name, type, shape and whether it is written."""
    rows = [("array", "type", "shape", "")]
    for name, operand in operands.items():
        shape = "[" + ", ".join(str(size) for size in operand.shape) + "]"
        rows.append((name, str(operand.dtype), shape, "written" if operand.is_output else "read"))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)
    return "\n".join(lines)


def _heading(model: qkvfuse.Model) -> str:
    lines = [f"model: {model.model_type}, {model.layers} layers"]
    for index, table in enumerate(model.rope_tables):
        layers = model.rope_of_layer.count(index)
        lines.append(
            f"  rotary table {index}: {table.max_positions} rows of {table.rotary_dim}, "
            f"theta {table.theta:g}, {layers} layers"
        )
    return "\n".join(lines) + "\n"
