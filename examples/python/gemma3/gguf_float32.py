"""Writes a GGUF file again with all weights as float32.

An independent runtime that multiplies by such weights does not round activations to 8 bits, so that
its logits can be compared closely.
"""

from __future__ import annotations

from pathlib import Path

from gguf import GGUFReader, GGUFValueType, GGUFWriter
from gguf.quants import dequantize
from tqdm import tqdm

_WRITTEN_ANYWAY = ("general.architecture", "general.file_type")
_ALL_FLOAT32 = 0  # a general.file_type


def write_float32(source: Path, target: Path) -> None:
    """Copies metadata and dequantised weights of one GGUF file to another, 1.1 GB for 270M."""
    reader = GGUFReader(source)
    architecture = reader.get_field("general.architecture")
    if architecture is None:
        raise ValueError(f"{source.name}: has no general.architecture, must be a model")
    writer = GGUFWriter(target, architecture.contents())
    for field in reader.fields.values():
        if field.name in _WRITTEN_ANYWAY or field.name.startswith("GGUF."):
            continue
        kind = field.types[0]
        element = field.types[-1] if kind == GGUFValueType.ARRAY else None
        writer.add_key_value(field.name, field.contents(), kind, element)
    writer.add_file_type(_ALL_FLOAT32)
    for tensor in tqdm(reader.tensors, desc="writing float32 weights", leave=False):
        writer.add_tensor(tensor.name, dequantize(tensor.data, tensor.tensor_type))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
