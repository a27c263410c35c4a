"""The forward pass of Gemma 3, float32.

Between the projection to q, k and v and the attention stands a `PrologueAndCache` (prologue.py): it
takes the packed rows, writes k and v into its cache, and returns q, normalised and rotated. The
attention reads k and v back from it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .prologue import PrologueAndCache, rms_norm
from .weights import Config, Floats, GgufFile, Layer, Weights, find_gguf

Ints = NDArray[np.int64]
_TOKENS_PER_CHUNK = 256  # of attention, whose scores of one chunk are [heads, 256, rows]


def geglu(gate_up: Floats) -> Floats:
    """gelu(gate) * up with the tanh form of gelu; gate and up are the halves of a row."""
    gate, up = np.split(gate_up, 2, axis=-1)
    inner: Floats = np.float32(0.7978845608) * gate * (1 + np.float32(0.044715) * gate * gate)
    gelu: Floats = np.float32(0.5) * gate * (1 + np.tanh(inner))
    return gelu * up


def attention(q: Floats, k: Floats, v: Floats, scale: float, window: int | None) -> Floats:
    """Causal attention of the last tokens of a sequence, with grouped kv heads.

    Args:
        q: [tokens, heads, head_dim]; token t is row rows - tokens + t of the sequence.
        k, v: [rows, kv_heads, head_dim].
        scale: of the scores.
        window: rows that a token sees, its own included; None: all earlier ones.

    Returns:
        [tokens, heads * head_dim].
    """
    tokens, heads, head_dim = q.shape
    rows, kv_heads, _ = k.shape
    keys, values = k.transpose(1, 2, 0), v.transpose(1, 0, 2)  # [kv, D, rows], [kv, rows, D]
    out = np.empty((tokens, heads, head_dim), np.float32)
    for start in range(0, tokens, _TOKENS_PER_CHUNK):
        part = q[start : start + _TOKENS_PER_CHUNK] * np.float32(scale)
        own = np.arange(rows - tokens + start, rows - tokens + start + len(part))
        first = 0 if window is None else max(0, int(own[0]) - window + 1)
        last = int(own[-1]) + 1
        seen = np.arange(first, last)
        hidden = seen > own[:, None]
        if window is not None:
            hidden |= seen <= own[:, None] - window
        # The heads of a group are consecutive: [kv, group, chunk, D].
        grouped = part.transpose(1, 0, 2).reshape(kv_heads, -1, len(part), head_dim)
        scores = grouped @ keys[:, None, :, first:last]
        scores[..., hidden] = -np.inf
        scores -= scores.max(axis=-1, keepdims=True)
        np.exp(scores, out=scores)
        weighted = scores @ values[:, None, first:last]
        weighted /= scores.sum(axis=-1, keepdims=True)
        out[start : start + len(part)] = weighted.reshape(heads, len(part), head_dim).swapaxes(0, 1)
    return out.reshape(tokens, heads * head_dim)


@dataclass(frozen=True)
class Gemma3:
    """The model."""

    config: Config
    weights: Weights

    @classmethod
    def load(cls, file: GgufFile | None = None) -> Gemma3:
        """The model of a GGUF file, by default of the installed package."""
        file = file or GgufFile(find_gguf())
        return cls(file.config, file.weights())

    def forward(self, tokens: Ints, start: int, cache: PrologueAndCache) -> Floats:
        """Runs tokens start, start + 1, ... of a sequence whose earlier tokens the cache has.

        Args:
            tokens: [tokens] ids.
            start: position of the first.
            cache: takes the tokens' k and v.

        Returns:
            [tokens, hidden], normalised: what `logits` takes.
        """
        positions = np.arange(start, start + len(tokens), dtype=np.int64)
        x = self.weights.embedding[tokens] * np.float32(np.sqrt(self.config.hidden))
        for index, layer in enumerate(self.weights.layers):
            x = x + self._attention_block(x, index, layer, positions, cache)
            x = x + self._ffn_block(x, layer)
        return rms_norm(x, self.weights.output_norm, self.config.epsilon)

    def logits(self, hidden: Floats) -> Floats:
        """[tokens, vocabulary] of the rows that `forward` returned."""
        return hidden @ self.weights.embedding.T

    def _attention_block(
        self, x: Floats, index: int, layer: Layer, positions: Ints, cache: PrologueAndCache
    ) -> Floats:
        config = self.config
        qkv_rows = rms_norm(x, layer.attn_norm, config.epsilon) @ layer.qkv.T
        q = cache.append(index, qkv_rows, positions)
        k, v = cache.read(index)
        window = None if config.is_global(index) else config.window
        out = attention(q, k, v, config.query_scale, window) @ layer.attn_output.T
        return rms_norm(out, layer.post_attention_norm, config.epsilon)

    def _ffn_block(self, x: Floats, layer: Layer) -> Floats:
        epsilon = self.config.epsilon
        inner = geglu(rms_norm(x, layer.ffn_norm, epsilon) @ layer.gate_up.T)
        return rms_norm(inner @ layer.ffn_down.T, layer.post_ffw_norm, epsilon)
