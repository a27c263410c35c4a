"""The two implementations of the prologue against each other, on made-up weights."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("gguf")

from gemma3.cache_kinds import EIGHT_BIT, KINDS, CacheKind
from gemma3.engines import LayerRows, scales_of
from gemma3.model import attention
from gemma3.prologue import NumpyPrologue, PrologueAndCache
from gemma3.weights import Config, Floats, Layer, Weights

CONFIG = Config(
    layers=6,
    hidden=8,
    heads=4,
    kv_heads=2,
    head_dim=32,
    window=16,
    epsilon=1e-6,
    global_rope_base=1e6,
    local_rope_base=1e4,
)
CAPACITY = 53  # not a multiple of a page


def made_up_weights() -> Weights:
    """Weights of which only the norms of q and k are looked at."""
    random = np.random.default_rng(0)
    none = np.zeros(0, np.float32)

    def gamma() -> Floats:
        return random.normal(1, 0.3, CONFIG.head_dim).astype(np.float32)

    layers = tuple(
        Layer(none, none, gamma(), gamma(), none, none, none, none, none, none)
        for _ in range(CONFIG.layers)
    )
    return Weights(none, layers, none)


WEIGHTS = made_up_weights()


def run(cache: PrologueAndCache) -> list[tuple[Floats, Floats, Floats]]:
    """q, k and v of every layer after two calls for each of two sequences."""
    random = np.random.default_rng(1)
    shape = (CONFIG.layers, 2, CAPACITY, CONFIG.packed_width)
    rows = random.standard_t(3, shape).astype(np.float32)
    results = []
    for layer in range(CONFIG.layers):
        for sequence in range(2):
            q = [
                cache.append(layer, rows[layer, sequence, part], positions, sequence)
                for part, positions in (
                    (slice(0, 40), np.arange(40)),
                    (slice(40, CAPACITY), np.arange(40, CAPACITY)),
                )
            ]
            results.append((np.concatenate(q), *cache.read(layer, sequence)))
    return results


def layer_rows() -> LayerRows:
    """k and v of every layer, of both sequences, in a float32 cache."""
    results = run(NumpyPrologue(CONFIG, WEIGHTS, CAPACITY, 2))
    pairs = zip(results[::2], results[1::2], strict=True)
    return [
        (np.concatenate([one[1], two[1]]), np.concatenate([one[2], two[2]])) for one, two in pairs
    ]


@pytest.mark.parametrize("kind", KINDS.values(), ids=lambda kind: str(kind.name))
def test_qkvfuse_gives_what_numpy_gives(kind: CacheKind) -> None:
    pytest.importorskip("qkvfuse")
    from gemma3.prologue_qkvfuse import QkvfusePrologue

    scales = scales_of(kind, layer_rows(), "minmax")
    expected = run(NumpyPrologue(CONFIG, WEIGHTS, CAPACITY, 2, kind, scales))
    got = run(QkvfusePrologue(CONFIG, WEIGHTS, CAPACITY, 2, kind, scales))
    for ours, theirs in zip(got, expected, strict=True):
        np.testing.assert_allclose(ours[0], theirs[0], rtol=1e-5, atol=2e-6)
        for part, want in zip(ours[1:], theirs[1:], strict=True):
            # A last bit of fp32 may round to the next code: at most one step, and seldom.
            apart = np.abs(part - want) > 1e-5 * np.abs(want) + 2e-6
            assert apart.mean() < 1e-3
            step = {"float32": 0, "bfloat16": 2**-7, "float8_e4m3fn": 2**-3, "float8_e5m2": 2**-2}
            limit = step.get(kind.dtype, 0) * np.abs(want) + np.abs(want).max() / 100
            assert (np.abs(part - want) <= limit).all()


@pytest.mark.parametrize("kind", EIGHT_BIT, ids=lambda kind: str(kind.name))
def test_eight_bits_keep_the_rows(kind: CacheKind) -> None:
    rows = layer_rows()
    scales = scales_of(kind, rows, "minmax")
    got = run(NumpyPrologue(CONFIG, WEIGHTS, CAPACITY, 2, kind, scales))
    for index, (_, k, v) in enumerate(got[::2]):
        for part, want in ((k, rows[index][0]), (v, rows[index][1])):
            error = np.square(part - want[:CAPACITY]).mean() / np.square(want).mean()
            assert error < 0.01


def test_a_rotation_keeps_lengths_and_depends_on_distance_alone() -> None:
    row = np.random.default_rng(2).normal(size=CONFIG.packed_width).astype(np.float32)
    rows = np.broadcast_to(row, (CAPACITY, CONFIG.packed_width))
    cache = NumpyPrologue(CONFIG, WEIGHTS, CAPACITY)
    q = cache.append(0, rows, np.arange(CAPACITY))
    k, _ = cache.read(0)
    norms = np.linalg.norm(k, axis=2)
    np.testing.assert_allclose(norms, np.broadcast_to(norms[:1], norms.shape), rtol=1e-5)
    scores = q[:, 0] @ k[:, 0].T
    for distance in (0, 1, 7):
        along = np.diagonal(scores, -distance)
        np.testing.assert_allclose(along, along[0], rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("window", [None, 5, 300])
def test_attention_is_the_plain_formula(window: int | None) -> None:
    random = np.random.default_rng(3)
    rows, tokens, heads, kv_heads, head_dim = 330, 300, 4, 2, 8
    q = random.normal(size=(tokens, heads, head_dim)).astype(np.float32)
    k, v = random.normal(size=(2, rows, kv_heads, head_dim)).astype(np.float32)
    got = attention(q, k, v, 0.3, window).reshape(q.shape)
    for token in (0, 1, 255, 256, 299):
        own = rows - tokens + token
        first = 0 if window is None else max(0, own - window + 1)
        for head in range(heads):
            kv = head // (heads // kv_heads)
            weights = np.exp(0.3 * k[first : own + 1, kv] @ q[token, head])
            want = weights @ v[first : own + 1, kv] / weights.sum()
            np.testing.assert_allclose(got[token, head], want, rtol=1e-4, atol=1e-5)
