"""The work of a Spec as whole-array NumPy operations: what one writes without a fused operator."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import numpy.typing as npt

from .._layouts import axes_of
from .._spec import Cache, Spec
from .._words import DType, Gamma, NormKind, Pairing, ScaleRule, Sections, SlotMode, Table
from ..reference.arithmetic import numpy_dtype
from ..reference.codes import LARGEST
from ..reference.operands import Part, cache_of, parts_of, rope_of, slots_of

Array = npt.NDArray[Any]


class Composition:
    """Passes over all tokens, each a NumPy operation with an array of its own for the result.

    Takes what the Specs of `qkvfuse.spec_from_config` have: packed float x, norms before the
    rotation, one joined table by position without sections, a slot for each token, and of the
    outputs q_out of x's type and the two caches.

    Args:
        arrays: those of `Plan.run`; the outputs among them are written in place by `run`.

    Raises:
        ValueError: the Spec is another one.
    """

    def __init__(self, spec: Spec, arrays: dict[str, Array]) -> None:
        rope = rope_of(spec)
        is_known = (
            not spec.is_separate
            and spec.x_dtype is not DType.INT32
            and spec.v_head_dim in (0, spec.head_dim)
            and rope.table is Table.JOINED
            and rope.sections is Sections.NONE
            and slots_of(spec).mode is SlotMode.SLOT_PER_TOKEN
            and spec.k_cache is not None
        )
        if not is_known:
            raise ValueError("spec: has no composition of NumPy operations")
        self._spec = spec
        self._arrays = arrays
        self._tokens = len(arrays["x"])

    def run(self) -> None:
        """One call."""
        spec, arrays = self._spec, self._arrays
        x = arrays["x"].astype(np.float32)
        if "bias" in arrays:
            x = x + arrays["bias"].astype(np.float32)
        cos, sin = np.split(arrays["cos"][arrays["positions"]][:, None], 2, axis=-1)
        for part in parts_of(spec).values():
            width = part.heads * part.head_dim
            heads = x[:, part.first_channel : part.first_channel + width]
            values = self._normalised(part, heads.reshape(-1, part.heads, part.head_dim))
            if part.is_rotated:
                values = self._rotated(values, cos, sin)
            cache = cache_of(spec, part.name)
            if cache is None:
                q_out = arrays["q_out"]
                q_out[...] = values.astype(q_out.dtype).reshape(q_out.shape)
            else:
                self._write(part.name, cache, values)

    def _normalised(self, part: Part, values: Array) -> Array:
        norm = part.norm
        if norm.kind is NormKind.NONE:
            return values
        axes = (-1,) if norm.kind is NormKind.PER_HEAD else (-2, -1)
        mean = np.mean(np.square(values), axis=axes, keepdims=True)
        values = values / np.sqrt(mean + np.float32(self._spec.epsilon))
        if norm.gamma is Gamma.NONE:
            return values
        gamma = self._arrays[f"{part.name}_gamma"].astype(np.float32)
        return values * (gamma + 1 if norm.gamma is Gamma.ONE_PLUS else gamma)

    def _rotated(self, values: Array, cos: Array, sin: Array) -> Array:
        rope = rope_of(self._spec)
        rotary_dim = 2 * cos.shape[-1]
        own = values[..., -rotary_dim:] if rope.rotates_last else values[..., :rotary_dim]
        if rope.pairing is Pairing.INTERLEAVED:
            first, second = own[..., 0::2], own[..., 1::2]
        else:
            first, second = np.split(own, 2, axis=-1)
        pair = (first * cos - second * sin, second * cos + first * sin)
        if rope.pairing is Pairing.INTERLEAVED:
            rotated = np.stack(pair, axis=-1).reshape(own.shape)
        else:
            rotated = np.concatenate(pair, axis=-1)
        if rotary_dim == values.shape[-1]:
            return rotated
        rest = values[..., :-rotary_dim] if rope.rotates_last else values[..., rotary_dim:]
        return np.concatenate((rest, rotated) if rope.rotates_last else (rotated, rest), axis=-1)

    def _write(self, name: str, cache: Cache, values: Array) -> None:
        arrays = self._arrays
        if cache.dtype not in LARGEST:
            stored = values.astype(numpy_dtype(cache.dtype))
        elif cache.scale_rule is ScaleRule.DYNAMIC:
            largest = LARGEST[cache.dtype]
            scale = np.abs(values).max(axis=-1, keepdims=True) / np.float32(largest)
            self._scatter(arrays[f"{name}_scale_cache"], cache, cache.scale_layout, scale)
            stored = _codes(cache, values / np.where(scale == 0, np.float32(1), scale))
        else:
            scale = arrays[f"{name}_scale"]
            scale = scale.reshape(len(scale), -1)
            is_divided = cache.scale_rule is ScaleRule.DIVIDE
            stored = values / scale if is_divided else values * scale
            if cache.has_offset:
                stored = stored + arrays[f"{name}_offset"].reshape(scale.shape)
            stored = _codes(cache, stored)
        self._scatter(arrays[f"{name}_cache"], cache, cache.layout, stored)

    def _scatter(self, target: Array, cache: Cache, layout: str, values: Array) -> None:
        """target[block and row of each token] = values, [tokens, heads, channels]."""
        axes = axes_of(layout, "layout")
        slots, chunk = self._arrays["slots"], cache.chunk or 1
        block, row = np.divmod(slots, cache.block_size)
        index = {"block": block, "row": row}
        if "row_chunk" in axes:
            index = {"block": block, "row_chunk": row // chunk, "row": row % chunk}
        of_tokens = [axis for axis, name in enumerate(axes) if name in index]
        rest = [axis for axis, name in enumerate(axes) if name not in index]
        if any("channel_chunk" in name for name in axes):
            values = values.reshape(*values.shape[:2], -1, chunk)
        else:
            values = values[:, :, None]
        order = {"head": 1, "channel_chunk": 2, "channel": 3}
        parts = [part for axis in rest for part in axes[axis].split("*")]
        missing = [part for part in order if part not in parts]
        values = values.transpose(0, *(order[part] for part in (*parts, *missing)))
        view = target.transpose(*of_tokens, *rest)
        shape = (len(slots), *view.shape[len(of_tokens) :])
        view[tuple(index[axes[axis]] for axis in of_tokens)] = values.reshape(shape)


def _codes(cache: Cache, values: Array) -> Array:
    largest = LARGEST[cache.dtype]
    if cache.dtype is DType.INT8:
        return np.clip(np.rint(values), -128, 127).astype(np.int8)
    return np.clip(values, -largest, largest).astype(numpy_dtype(cache.dtype))


def without_outputs(arrays: dict[str, Any], operands: dict[str, Any]) -> dict[str, Any]:
    """The same inputs with outputs of their own, full of zeros."""
    return {
        name: np.zeros_like(array) if operands[name].is_output else array
        for name, array in arrays.items()
    }


def shortened(spec: Spec, positions: int) -> Spec:
    """The Spec with a table of that many positions."""
    rope = dataclasses.replace(rope_of(spec), max_positions=positions)
    return dataclasses.replace(spec, rope=rope)
