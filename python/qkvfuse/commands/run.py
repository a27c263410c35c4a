"""`python -m qkvfuse run`: one call, from a file of arrays to a file of outputs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import qkvfuse
import qkvfuse.reference

from .._words import DType
from ..reference.arithmetic import numpy_dtype
from ..reference.call import Call
from . import UsageError, files, refusals, specs
from .files import Array

_OPERATORS = ("npu_qkv_rms_norm_rope_cache", "npu_dequant_rope_quant_kvcache")


@dataclass(frozen=True)
class Options:
    """What `run` is asked for.

    Attributes:
        file: .npz or .safetensors with the arrays.
        output: where the outputs go; None: beside the file, FILE.out.npz of FILE.npz.
        spec: JSON or a file with it, in place of the attributes of the file.
        words: "name=value" for single attributes.
        tokens: "T" or "B,S"; None: what the shape of x says.
        threads: 0: as many as the work is worth.
        is_strict: refuse repeated slots, slots below -1 and scales of 0.
        is_reference: compute with `qkvfuse.reference`.
    """

    file: Path
    output: Path | None = None
    spec: str | None = None
    words: tuple[str, ...] = ()
    tokens: str | None = None
    threads: int = 0
    is_strict: bool = True
    is_reference: bool = False


def run(options: Options) -> None:
    """Runs the call, writes its outputs and prints a line for each of them.

    Raises:
        UsageError: the file, the attributes or the arrays are refused; nothing is written.
    """
    arrays, own = files.read(options.file)
    attributes = specs.parse(own, f"{options.file}: {files.ATTRIBUTES}") if own else {}
    if options.spec is not None:
        attributes = specs.attributes_of(options.spec)
    attributes = specs.with_words(attributes, options.words)
    if not attributes:
        raise UsageError(
            f"{options.file}: has no {files.ATTRIBUTES!r} that says what to compute, "
            "must have it, or give --spec or --set"
        )
    if "operator" in attributes:
        outputs = _run_operator(attributes, arrays, options)
        described = json.dumps(attributes)
    else:
        spec = specs.spec_of(attributes)
        outputs = _run_plan(spec, arrays, options)
        described = specs.json_of(spec)
    suffix = options.file.suffix
    output = options.output or options.file.with_suffix(f".out{suffix}")
    files.write(output, outputs, described)
    for name, array in outputs.items():
        print(f"{name:14} {array.dtype.name:14} {_shape(array):22} sha256 {_checksum(array)}")
    print(f"written: {output}")


def _run_plan(spec: qkvfuse.Spec, arrays: dict[str, Array], options: Options) -> dict[str, Array]:
    with refusals():
        plan = qkvfuse.Plan(spec, strict=options.is_strict)
        call = Call(spec, _tokens(options.tokens), arrays)
        tokens = (call.batch, call.sequence)
        operands = plan.operands(tokens, sequences=call.sequences)
        for name, operand in operands.items():
            if name in arrays:
                arrays[name] = _typed(name, arrays[name], operand.dtype)
            elif operand.is_output:
                arrays[name] = np.zeros(operand.shape, numpy_dtype(operand.dtype))
        if options.is_reference:
            qkvfuse.reference.run(spec, tokens=tokens, **arrays)
        else:
            plan.run(tokens=tokens, threads=options.threads, **arrays)
    return {name: arrays[name] for name, operand in operands.items() if operand.is_output}


def _run_operator(
    attributes: dict[str, Any], arrays: dict[str, Array], options: Options
) -> dict[str, Array]:
    """One of Ascend's operators: arrays and attributes by the names of its parameters."""
    operator = attributes["operator"]
    if operator not in _OPERATORS:
        raise UsageError(f"operator: is {operator!r}, must be {' or '.join(_OPERATORS)}")
    if options.tokens is not None:
        raise UsageError(f"--tokens: is given, {operator} takes them from its own arguments")
    arguments = {name: value for name, value in attributes.items() if name != "operator"}
    # Of what these operators take, bfloat16 is all that NumPy does not know.
    arguments.update((name, _typed(name, array, DType.BFLOAT16)) for name, array in arrays.items())
    is_packed = operator == _OPERATORS[0]
    written = ("q_out", "k_cache", "v_cache") if is_packed else ("k_cache", "v_cache")
    with refusals():
        if is_packed and "q_out" not in arguments:
            arguments["q_out"] = _new_q_out(arguments)
        function: Callable[..., tuple[Any, ...]]
        if options.is_reference:
            function = getattr(qkvfuse.reference, operator)
        else:
            function = getattr(qkvfuse, operator)
            arguments.update(strict=options.is_strict, threads=options.threads)
        returned = dict(zip(("q", "k", "v"), function(**arguments), strict=False))
    outputs = {name: array for name, array in returned.items() if array is not None}
    outputs.update((name, arguments[name]) for name in written)
    return outputs


def _new_q_out(arguments: dict[str, Any]) -> Array:
    for name, count in (("qkv_size", 4), ("head_nums", 3)):
        value = arguments.get(name)
        if not isinstance(value, list) or [type(number) for number in value] != [int] * count:
            raise UsageError(f"{name}: is {value}, must be {count} numbers")
    if "qkv" not in arguments:
        raise UsageError("qkv: is missing, must be given")
    shape = (len(arguments["qkv"]), arguments["head_nums"][0] * arguments["qkv_size"][3])
    return np.zeros(shape, arguments["qkv"].dtype)


def _typed(name: str, array: Array, dtype: DType) -> Array:
    """The array; one of NumPy's void dtype, as a .npz brings bfloat16 back, as that dtype."""
    if not files.is_void(array):
        return array
    known = numpy_dtype(dtype)
    if known.isbuiltin != 2 or known.itemsize != array.dtype.itemsize:
        size = array.dtype.itemsize
        raise UsageError(f"{name}: has elements of {size} bytes and no type, must be {dtype}")
    return array.view(known)


def _tokens(text: str | None) -> int | tuple[int, int] | None:
    if text is None:
        return None
    counts = text.split(",")
    if len(counts) > 2 or not all(count.strip().isdecimal() for count in counts):
        raise UsageError(f"--tokens: is {text!r}, must be a number, or batch,sequence")
    return int(counts[0]) if len(counts) == 1 else (int(counts[0]), int(counts[1]))


def _shape(array: Array) -> str:
    return "[" + ", ".join(str(size) for size in array.shape) + "]"


def _checksum(array: Array) -> str:
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()[:16]
