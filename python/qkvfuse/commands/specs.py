"""Specs as JSON: fields of `qkvfuse.Spec`, nested, from a text, a file or `name=value` words."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from .._spec import Cache, Dense, Norm, Rope, Slots, Spec
from .._words import DType, Granularity, ScaleRule
from . import UsageError, refusals

Attributes = dict[str, Any]

_PARTS: dict[str, type[Any]] = {
    **dict.fromkeys(("q_norm", "k_norm", "v_norm"), Norm),
    **dict.fromkeys(("q_out", "q_before_quant", "k_out", "v_out"), Dense),
    **dict.fromkeys(("k_cache", "v_cache"), Cache),
    "rope": Rope,
    "slots": Slots,
}


def attributes_of(source: str) -> Attributes:
    """The JSON object in a text that begins with "{", or else in the file that it names."""
    text, name = source, "--spec"
    if not source.lstrip().startswith("{"):
        path = Path(source)
        if not path.is_file():
            raise UsageError(f"--spec: is {source!r}, must be a JSON object or a file with one")
        text, name = path.read_text(encoding="utf-8"), source
    return parse(text, name)


def parse(text: str, name: str) -> Attributes:
    """The JSON object in a text; `name` is what sentences call the text.

    Raises:
        UsageError: it is no JSON, or no object.
    """
    try:
        value = json.loads(text)
    except ValueError as error:
        raise UsageError(f"{name}: is no JSON: {error}") from error
    if not isinstance(value, dict):
        raise UsageError(f"{name}: is {text.strip()[:40]}, must be a JSON object")
    return value


def with_words(attributes: Attributes, words: Iterable[str]) -> Attributes:
    """The attributes with "name=value" words put in: "k_cache.layout=paged_nhd", "heads=32,8,8".

    A value is JSON, or numbers with commas between them, or else a string.
    """
    made: Attributes = json.loads(json.dumps(attributes))
    for word in words:
        name, equals, value = word.partition("=")
        if not equals:
            raise UsageError(f"--set: is {word!r}, must be name=value")
        *outer, last = name.split(".")
        owner = made
        for part in outer:
            inner = owner.get(part)
            if inner is not None and not isinstance(inner, dict) and part in _PARTS:
                # q_norm="per_head" is short for its first field.
                inner = {dataclasses.fields(_PARTS[part])[0].name: inner}
            owner[part] = owner = inner if isinstance(inner, dict) else {}
        owner[last] = _value(value)
    return made


def _value(text: str) -> Any:
    for candidate in (text, f"[{text}]"):
        try:
            return json.loads(candidate)
        except ValueError:
            continue
    return text


def spec_of(attributes: Attributes) -> Spec:
    """The Spec that has these fields.

    Raises:
        UsageError: a field is unknown, missing, or has a value that is not allowed.
    """
    _require_fields(Spec, attributes, "")
    for name, kind in _PARTS.items():
        if isinstance(attributes.get(name), dict):
            _require_fields(kind, attributes[name], f"{name}.")
    with refusals():
        return Spec(**attributes)


def _require_fields(kind: type[Any], attributes: Attributes, prefix: str) -> None:
    fields = {field.name: field for field in dataclasses.fields(kind)}
    for name in attributes:
        if name not in fields:
            raise UsageError(
                f"{prefix}{name}: is no field of {kind.__name__}, must be {', '.join(fields)}"
            )
    for name, field in fields.items():
        if field.default is dataclasses.MISSING and name not in attributes:
            raise UsageError(f"{prefix}{name}: is missing, {kind.__name__} needs it")


def json_of(spec: Spec) -> str:
    """The Spec as JSON, what `spec_of` takes."""
    return json.dumps(dataclasses.asdict(spec))


def cache_of(text: str, x_dtype: DType, layout: str, blocks: int, block_size: int) -> Cache:
    """The `Cache` that "int8+head" or "fp8_e4m3+dynamic" says; "16bit" is x's type.

    Args:
        text: a type, then any of +offset, +multiply, +dynamic, +head and +tensor.

    Raises:
        UsageError: a word is unknown, or the layout is.
    """
    kind, *words = text.split("+")
    members: Attributes = {}
    for word in words:
        if word == "offset":
            members["has_offset"] = True
        elif word in (ScaleRule.MULTIPLY, ScaleRule.DYNAMIC):
            members["scale_rule"] = word
        elif word in (Granularity.HEAD, Granularity.TENSOR, Granularity.CHANNEL):
            members["granularity"] = word
        else:
            raise UsageError(
                f"--cache: has {word!r}, must be offset, multiply, dynamic, head, tensor or channel"
            )
    with refusals():
        dtype = x_dtype if kind == "16bit" else DType.of(kind, "--cache")
        return Cache(dtype, layout, blocks, block_size, **members)


def with_caches(spec: Spec, cache: str, layout: str, blocks: int, block_size: int) -> Spec:
    """The Spec with two such caches; `layout` is one name, or K's and V's with a comma between."""
    layouts = layout.split(",")
    if len(layouts) > 2:
        raise UsageError(f"--layout: is {layout!r}, must be one layout, or those of K and V")
    k_cache, v_cache = (
        cache_of(cache, spec.x_dtype, name.strip(), blocks, block_size)
        for name in (layouts[0], layouts[-1])
    )
    return dataclasses.replace(spec, k_cache=k_cache, v_cache=v_cache)
