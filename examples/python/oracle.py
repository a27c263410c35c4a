"""Checks a kernel of your own against qkvfuse, the way one takes a library as an oracle.

`my_kernel` stands for yours: the prologue of Ascend's npu_qkv_rms_norm_rope_cache, RMSNorm and RoPE
of q and k, k and v quantised into an int8 PA_NZ cache, written down with NumPy in float32. It sums
in another order than qkvfuse, so that 16-bit outputs may differ in their last digit, and codes by
one; what differs by more is a bug. The oracle itself is ten lines, and exact: qkvfuse gives the
same bits on every machine, and `qkvfuse.reference` gives them too.
"""

from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

import qkvfuse
import qkvfuse.reference

TOKENS, HEADS, HEAD_DIM, BLOCKS, BLOCK_SIZE, CHUNK = 48, (8, 2, 2), 128, 4, 16, 32
BF16 = np.dtype(ml_dtypes.bfloat16)
Array = npt.NDArray[Any]


def my_kernel(
    qkv: Array,
    q_gamma: Array,
    k_gamma: Array,
    cos: Array,
    sin: Array,
    index: Array,
    q_out: Array,
    k_cache: Array,
    v_cache: Array,
    k_scale: Array,
    v_scale: Array,
) -> None:
    """The kernel under test: fills q_out [T, Nq*D] and the caches [blocks, Nk*D/32, rows, 32]."""
    f32 = np.float32
    q, k, v = np.split(qkv.astype(f32).reshape(TOKENS, -1, HEAD_DIM), np.cumsum(HEADS)[:2], axis=1)

    def norm_and_rope(x: Array, gamma: Array) -> Array:
        x = x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + f32(1e-6)) * gamma.astype(f32)
        turned = np.concatenate([-x[..., HEAD_DIM // 2 :], x[..., : HEAD_DIM // 2]], axis=-1)
        rotated: Array = x * cos.astype(f32)[:, None] + turned * sin.astype(f32)[:, None]
        return rotated

    q_out[...] = norm_and_rope(q, q_gamma).astype(BF16).reshape(q_out.shape)
    for values, scale, cache in (
        (norm_and_rope(k, k_gamma), k_scale, k_cache),
        (v, v_scale, v_cache),
    ):
        codes = np.clip(np.rint(values / scale), -128, 127).astype(np.int8)
        cache[index // BLOCK_SIZE, :, index % BLOCK_SIZE] = codes.reshape(TOKENS, -1, CHUNK)


def inputs() -> dict[str, Any]:
    """A call: random bfloat16 rows, one slot of the cache for each token."""
    rng = np.random.default_rng(7)
    q_heads, k_heads, v_heads = HEADS

    def normal(*shape: int) -> Array:
        return rng.standard_normal(shape, np.float32).astype(BF16)

    angles = np.tile(rng.uniform(0, 6.28, (TOKENS, HEAD_DIM // 2)), 2)
    return {
        "qkv": normal(TOKENS, sum(HEADS) * HEAD_DIM),
        "q_gamma": normal(HEAD_DIM),
        "k_gamma": normal(HEAD_DIM),
        "cos": np.cos(angles).astype(BF16),
        "sin": np.sin(angles).astype(BF16),
        "index": rng.permutation(BLOCKS * BLOCK_SIZE)[:TOKENS],
        "k_scale": rng.uniform(0.01, 0.03, (k_heads, HEAD_DIM)).astype(np.float32),
        "v_scale": rng.uniform(0.01, 0.03, (v_heads, HEAD_DIM)).astype(np.float32),
    }


def outputs() -> dict[str, Any]:
    """q_out and the two caches, full of zeros."""
    cache = (BLOCKS, HEADS[1] * HEAD_DIM // CHUNK, BLOCK_SIZE, CHUNK)
    caches = {name: np.zeros(cache, np.int8) for name in ("k_cache", "v_cache")}
    return {"q_out": np.zeros((TOKENS, HEADS[0] * HEAD_DIM), BF16), **caches}


def main() -> None:
    call, mine, exact, again = inputs(), outputs(), outputs(), outputs()
    my_kernel(**call, **mine)

    # The oracle.
    call.update(qkv_size=[1, TOKENS, sum(HEADS), HEAD_DIM], head_nums=list(HEADS))
    qkvfuse.npu_qkv_rms_norm_rope_cache(**call, **exact)
    qkvfuse.reference.npu_qkv_rms_norm_rope_cache(**call, **again)
    for name, array in exact.items():
        assert array.tobytes() == again[name].tobytes(), "library and reference differ"
        got, want = mine[name].astype(np.float32), array.astype(np.float32)
        allowed = 1 if array.dtype == np.int8 else np.abs(want) * 2.0**-7 + 1e-6
        off = np.abs(got - want)
        print(f"{name}: {(off > 0).sum()} of {off.size} elements differ, by up to {off.max():g}")
        assert (off <= allowed).all(), f"{name} is wrong"
    print("my_kernel is right: 16-bit outputs to their last digit, codes to one")


if __name__ == "__main__":
    main()
