"""Comparing what two implementations have written, byte by byte."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .._spec import Spec
from .._words import DType
from ..reference import measure, run
from ..reference.arithmetic import FORMATS, bits_of, widen
from ..reference.operands import parts_of
from ..reference.operators import is_copied
from .cases import Case
from .memory import Array, Bytes

# (spec, tokens, arrays, is_measured): writes the outputs among the arrays in place, as `run` does,
# or as `measure` where is_measured says so.
RunLibrary = Callable[[Spec, "int | tuple[int, int]", dict[str, Array], bool], None]


def check(case: Case, run_library: RunLibrary) -> tuple[int, list[str]]:
    """Runs a case with the reference and the library, and compares all memory of both.

    The sign and the payload of a NaN that was computed are free; a 16-bit one is quiet.

    Returns:
        The number of elements of the outputs, and a sentence for each array that differs.
    """
    elements, differences = 0, []
    for operands in (case.operands, case.measured):
        if not operands:
            continue
        is_measured = operands is case.measured
        expected, actual = case.copy_of_buffers(), case.copy_of_buffers()
        arrays = case.arrays(operands, expected)
        (measure if is_measured else run)(case.spec, tokens=case.tokens, **arrays)
        run_library(case.spec, case.tokens, case.arrays(operands, actual), is_measured)
        for name, operand in operands.items():
            if operand.is_output:
                elements += arrays[name].size
                differences += _differences(case, name, operand.dtype, expected, actual)
        differences += _other_differences(expected, actual)
    return elements, differences


def _differences(
    case: Case, name: str, dtype: DType, expected: dict[str, Bytes], actual: dict[str, Bytes]
) -> list[str]:
    """A sentence where an output differs; after it, NaN that may differ are equal in `actual`."""
    want, got = (case.views[name].of(buffers) for buffers in (expected, actual))
    want_bits, got_bits = bits_of(want), bits_of(got)
    differs = want_bits != got_bits
    if not differs.any():
        return []
    if not _must_keep_nan(case, name, dtype):
        is_nan = np.isnan(widen(want, np.dtype(np.float32)))
        is_free = differs & is_nan & _is_quiet_nan(got, dtype)
        got_bits[is_free] = want_bits[is_free]
        differs &= ~is_free
    if not differs.any():
        return []
    first = tuple(int(axis) for axis in np.argwhere(differs)[0])
    sentence = (
        f"{name}{list(first)} is {got[first]} ({got_bits[first]:#x}), "
        f"must be {want[first]} ({want_bits[first]:#x}); {differs.sum()} of {differs.size} differ"
    )
    got_bits[...] = want_bits
    return [sentence]


def _must_keep_nan(case: Case, name: str, dtype: DType) -> bool:
    """Whether a NaN of an output has given bits: one that is a code, or copied from the source."""
    if dtype is not DType.FLOAT32 and dtype not in (DType.FLOAT16, DType.BFLOAT16):
        return True
    if name.endswith(("_sums", "_scale_out", "_scale_cache")):
        return False
    return dtype is case.spec.x_dtype and is_copied(case.spec, parts_of(case.spec)[name[0]])


def _is_quiet_nan(values: Array, dtype: DType) -> Any:
    is_nan = np.isnan(widen(values, np.dtype(np.float32)))
    if dtype is DType.FLOAT32:
        return is_nan
    return is_nan & ((bits_of(values) >> (FORMATS[dtype].mantissa_bits - 1)) & 1 == 1)


def _other_differences(expected: dict[str, Bytes], actual: dict[str, Bytes]) -> list[str]:
    """A sentence for each buffer with bytes that differ and belong to no output."""
    return [
        f"memory of {name}: byte {int(np.argmax(expected[name] != actual[name]))} was changed, "
        "it is none of an output's"
        for name in expected
        if not np.array_equal(expected[name], actual[name])
    ]
