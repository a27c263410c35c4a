"""A decode loop of a Qwen3-style model: int8 paged caches beside bfloat16 ones, a ragged batch.

Real shapes of Qwen3-8B's attention (32 query and 8 key and value heads of 128 channels), random
weights, two layers. Three sequences of different lengths are prefilled in one call, then decoded
step by step; a page table says which blocks each of them has. The int8 caches have a scale for each
head, taken from the keys and values of the prefill. NumPy's attention reads the pages back with
read_cache. The attention outputs of both kinds of cache are compared: at most 2 % apart (rms).
"""

from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

import qkvfuse

CONFIG = {
    "model_type": "qwen3",
    "num_hidden_layers": 2,
    "hidden_size": 4096,
    "head_dim": 128,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1000000,
    "max_position_embeddings": 512,
    "attention_bias": False,
    "torch_dtype": "bfloat16",
}
PROMPTS, STEPS, BLOCKS, BLOCK_SIZE, PAGES = (37, 5, 18), 6, 24, 16, 4
HIDDEN = 256  # of the residual stream: smaller than the model's, so that this takes seconds
ALLOWED = 0.02
BF16 = np.dtype(ml_dtypes.bfloat16)
Array = npt.NDArray[Any]


class Layer:
    """One layer with caches of one type; its scales come with its first call."""

    def __init__(self, model: qkvfuse.Model, rng: np.random.Generator, dtype: str) -> None:
        kind: dict[str, Any] = {"granularity": "head"} if dtype == "int8" else {}
        self.is_int8 = dtype == "int8"
        k_cache = qkvfuse.Cache(dtype, "x_split_k", BLOCKS, BLOCK_SIZE, **kind)
        v_cache = qkvfuse.Cache(dtype, "paged_hnd", BLOCKS, BLOCK_SIZE, **kind)
        slots = qkvfuse.Slots("page_table", pages=PAGES)
        self.plan = qkvfuse.Plan(model.spec, k_cache=k_cache, v_cache=v_cache, slots=slots)
        self.probe = qkvfuse.Plan(model.spec, k_out="float32", v_out="float32")
        self.q_heads, self.heads, _ = model.spec.heads
        self.dim = model.spec.head_dim
        width = (self.q_heads + 2 * self.heads) * self.dim
        self.qkv = rng.standard_normal((HIDDEN, width), np.float32) / np.sqrt(HIDDEN)
        self.out = rng.standard_normal((self.q_heads * self.dim, HIDDEN), np.float32) / 64
        gamma = np.ones(self.dim, BF16)
        self.weights: dict[str, Any] = {
            "q_gamma": gamma,
            "k_gamma": gamma,
            "cos": qkvfuse.rope_table(model.rope_tables[0]),
        }
        self.outputs = {name: array for name, array in self.plan.zeros().items() if "cache" in name}
        self.scales: dict[str, Any] | None = None

    def calibrate(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """Scales of the largest key and value of each head: the layer without caches tells them."""
        arrays = self.probe.zeros(len(inputs["x"]))
        self.probe.run(**inputs, **self.weights, **arrays)
        largest = {part: np.abs(arrays[f"{part}_out"]).max(axis=(0, 2)) for part in "kv"}
        return {f"{part}_scale": value / np.float32(127) for part, value in largest.items()}

    def __call__(
        self, hidden: Array, positions: Array, pages: Array, lengths: Array, row_offsets: Array
    ) -> Array:
        inputs: dict[str, Any] = {"x": (hidden @ self.qkv).astype(BF16), "positions": positions}
        if self.scales is None:
            self.scales = self.calibrate(inputs) if self.is_int8 else {}
        q_out = np.zeros((len(hidden), self.q_heads, self.dim), BF16)
        where: dict[str, Any] = {"slots": pages, "lengths": lengths, "row_offsets": row_offsets}
        self.plan.run(**inputs, **where, **self.weights, **self.scales, **self.outputs, q_out=q_out)
        k, v = (self.read(part, pages, lengths) for part in "kv")
        return attention(q_out.astype(np.float32), k, v, lengths, row_offsets)

    def read(self, part: str, pages: Array, lengths: Array) -> Array:
        """All rows of all sequences, one after another, [rows, heads, head_dim] float32."""
        view = qkvfuse.CacheView(
            getattr(self.plan.spec, f"{part}_cache"),
            self.outputs[f"{part}_cache"],
            self.heads,
            self.dim,
            scale=(self.scales or {}).get(f"{part}_scale"),
        )
        return np.asarray(qkvfuse.read_cache(view, pages, lengths=lengths))


def attention(q: Array, k: Array, v: Array, lengths: Array, row_offsets: Array) -> Array:
    """Causal attention of each sequence's new tokens over all of its rows."""
    ends, out = np.cumsum(lengths), np.empty_like(q)
    for end, length, first, last in zip(ends, lengths, row_offsets, row_offsets[1:]):
        own_k, own_v = (np.repeat(x[end - length : end], 4, axis=1) for x in (k, v))
        scores = np.einsum("qhd,thd->hqt", q[first:last], own_k) / np.sqrt(np.float32(q.shape[-1]))
        row = np.arange(length - (last - first), length)[:, None]
        scores = np.where(np.arange(length) <= row, scores, -np.inf)
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        weights /= weights.sum(axis=-1, keepdims=True)
        out[first:last] = np.einsum("hqt,thd->qhd", weights, own_v)
    return out


def main() -> None:
    model = qkvfuse.spec_from_config(CONFIG)
    stacks = {
        dtype: [Layer(model, np.random.default_rng(seed), dtype) for seed in range(2)]
        for dtype in ("bfloat16", "int8")
    }
    rng = np.random.default_rng(11)
    pages = rng.permutation(BLOCKS)[: len(PROMPTS) * PAGES].reshape(len(PROMPTS), PAGES)
    lengths, worst = np.zeros(len(PROMPTS), np.int64), 0.0
    for step in range(STEPS + 1):
        added = np.array(PROMPTS) if step == 0 else np.ones(len(PROMPTS), np.int64)
        lengths, row_offsets = lengths + added, np.concatenate([[0], np.cumsum(added)])
        positions = np.concatenate([np.arange(n - a, n) for n, a in zip(lengths, added)])
        tokens = rng.standard_normal((row_offsets[-1], HIDDEN), np.float32)
        outputs: dict[str, list[Array]] = {}
        for dtype, layers in stacks.items():
            hidden: Array = tokens
            outputs[dtype] = []
            for layer in layers:
                attended = layer(hidden, positions, pages, lengths, row_offsets)
                outputs[dtype].append(attended)
                hidden = hidden + attended.reshape(len(hidden), -1) @ layer.out
        errors = [
            np.sqrt(((a - b) ** 2).mean() / (b**2).mean())
            for a, b in zip(outputs["int8"], outputs["bfloat16"])
        ]
        worst = max(worst, *errors)
        kind = "prefill" if step == 0 else f"decode {step}"
        print(
            f"{kind:9} {len(tokens):3} tokens, lengths {lengths}, "
            f"int8 from bfloat16: {', '.join(f'{error:.2%}' for error in errors)}"
        )
    memory = {
        dtype: sum(array.nbytes for layer in layers for array in layer.outputs.values())
        for dtype, layers in stacks.items()
    }
    print(f"caches: bfloat16 {memory['bfloat16']} bytes, int8 {memory['int8']} bytes")
    assert worst < ALLOWED, f"attention outputs are {worst:.2%} apart"
    print(f"largest error {worst:.2%}, allowed {ALLOWED:.0%}")


if __name__ == "__main__":
    main()
