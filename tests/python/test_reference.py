"""Places, caches and whole operators of the NumPy oracle, worked out by hand.

Addresses are those of the tables of the documents; numbers are small enough to follow.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from exact import BF16, F32, f32
from qkvfuse import reference
from qkvfuse._spec import Cache, Dense, Slots, Spec
from qkvfuse.reference import places


def address(cache: Cache, heads_: int, channels: int, slot: int, head: int, channel: int) -> int:
    """Elements from the first one of a packed cache array, by its index."""
    shape = places.cache_shape(cache, cache.layout, heads_, channels)
    block, row = divmod(slot, cache.block_size)
    index = places.cache_index(
        cache, cache.layout, heads_, channels, np.array([block]), np.array([row])
    )
    element = tuple(int(axis[0, head, channel]) for axis in index)
    return int(np.ravel_multi_index(element, shape))


def test_the_worked_address_of_the_documents() -> None:
    cache = Cache("int8", "pa_nz", 16, 128)
    assert cache.chunk == 32
    assert places.cache_shape(cache, "pa_nz", 8, 128) == (16, 32, 128, 32)
    assert address(cache, 8, 128, 300, 5, 70) == 353670


# The table of presets of docs/cache_layouts.md: strides of block, head, row chunk, row, channel
# chunk and channel, of H heads, D channels and B rows of a block, chunks of x.
STRIDES: dict[str, Callable[[int, int, int, int], tuple[int, ...]]] = {
    "paged_nhd": lambda H, D, B, x: (B * H * D, D, 0, H * D, 0, 1),
    "paged_hnd": lambda H, D, B, x: (H * B * D, B * D, 0, D, 0, 1),
    "bsnd": lambda H, D, B, x: (B * H * D, D, 0, H * D, 0, 1),
    "bnsd": lambda H, D, B, x: (H * B * D, B * D, 0, D, 0, 1),
    "pa_nz": lambda H, D, B, x: (H * D * B, D * B, 0, x, B * x, 1),
    "x_split_k": lambda H, D, B, x: (H * D * B, D * B, 0, x, B * x, 1),
    "transposed": lambda H, D, B, x: (H * D * B, D * B, 0, 1, 0, B),
    "shuffled_v": lambda H, D, B, x: (H * B * D, B * D, D * x, 1, 0, x),
    # The document's own layout "heads outside", [heads, blocks, block_size, head_dim] of 3 blocks.
    "head block row channel": lambda H, D, B, x: (B * D, 3 * B * D, 0, D, 0, 1),
}


@pytest.mark.parametrize("layout", STRIDES)
def test_addresses_of_every_layout(layout: str) -> None:
    H, D, B = 2, 12, 8
    x = 4 if layout in ("pa_nz", "x_split_k", "shuffled_v") else 0
    cache = Cache("bfloat16", layout, 3, B, x)
    of_block, of_head, of_row_chunk, of_row, of_chunk, of_channel = STRIDES[layout](H, D, B, x)
    seen = set()
    for slot in range(3 * B):
        for head in range(H):
            for channel in range(D):
                row, expected = slot % B, slot // B * of_block + head * of_head
                rows = (row // x, row % x) if of_row_chunk else (0, row)
                channels = (channel // x, channel % x) if of_chunk else (0, channel)
                expected += rows[0] * of_row_chunk + rows[1] * of_row
                expected += channels[0] * of_chunk + channels[1] * of_channel
                assert address(cache, H, D, slot, head, channel) == expected
                seen.add(expected)
    assert seen == set(range(3 * B * H * D))


def cached(slots: Slots, slot_array: Any, block_size: int, blocks: int, **arrays: Any) -> Any:
    """The first channel of K in every row of [blocks, block_size] after tokens 1, 2, 3, ..; -1: not
    written."""
    tokens = arrays.pop("tokens")
    cache = Cache("float32", "paged_nhd", blocks, block_size)
    spec = Spec("float32", (1, 1, 1), 2, rope="none", k_cache=cache, v_cache=cache, slots=slots)
    count = tokens if isinstance(tokens, int) else math.prod(tokens)
    x = np.repeat(np.arange(1, count + 1, dtype=F32)[:, None], 6, axis=1)
    k_cache, v_cache = (np.full((blocks, block_size, 1, 2), -1, F32) for _ in range(2))
    reference.run(
        spec,
        tokens=tokens,
        x=x,
        q_out=np.empty((count, 2), F32),
        k_cache=k_cache,
        v_cache=v_cache,
        slots=np.array(slot_array),
        **arrays,
    )
    assert np.array_equal(k_cache, v_cache) and np.array_equal(k_cache[..., 0], k_cache[..., 1])
    return k_cache[:, :, 0, 0].tolist()


def test_slots_repeat_and_are_skipped() -> None:
    # Tokens 1..5; slot 1 is named by tokens 2 and 4, of which the later stays.
    assert cached(Slots(), [3, 1, -1, 1, -9], 2, 2, tokens=5) == [[-1, 4], [-1, 1]]


def test_one_start_for_each_sequence() -> None:
    slots = Slots("start_per_sequence", "int32")
    rows = cached(slots, np.array([2, 0], np.int32), 4, 3, tokens=(2, 2))
    assert rows == [[-1, -1, 1, 2], [3, 4, -1, -1], [-1] * 4]


@pytest.mark.parametrize("zeroes", [False, True])
def test_the_page_table_of_the_documents(zeroes: bool) -> None:
    slots = Slots("page_table", pages=3, zeroes_unused_rows=zeroes)
    rows = cached(
        slots,
        [[7, 2, -1], [0, 5, 3]],
        4,
        8,
        tokens=6,
        lengths=np.array([6, 9]),
        row_offsets=np.array([0, 5, 6]),
    )
    rest = 0 if zeroes else -1
    expected = {7: [-1, 1, 2, 3], 2: [4, 5, rest, rest], 3: [6, rest, rest, rest]}
    assert rows == [expected.get(block, [-1] * 4) for block in range(8)]


def test_a_sequence_without_tokens_is_left_alone() -> None:
    slots = Slots("page_table", "int32", pages=1, zeroes_unused_rows=True)
    pages = np.array([[0], [1]], np.int32)
    lengths, row_offsets = np.array([2, 1], np.int32), np.array([0, 0, 1], np.int32)
    rows = cached(slots, pages, 3, 2, tokens=1, lengths=lengths, row_offsets=row_offsets)
    assert rows == [[-1, -1, -1], [1, 0, 0]]


def test_dynamic_caches_write_their_scales() -> None:
    cache = Cache("int8", "token_pool", 4, scale_rule="dynamic", scale_layout="head block")
    spec = Spec(
        "float32",
        (1, 2, 2),
        2,
        rope="none",
        k_cache=cache,
        v_cache=cache,
        q_out=Dense("int8", scale_rule="dynamic"),
    )
    x = f32(1, 2, 254, -127, 0, 0, 63.5, 63.5, 1, -1)[None]
    arrays: dict[str, Any] = {
        "q_out": np.zeros((1, 1, 2), np.int8),
        "q_scale_out": np.zeros((1, 1), F32),
    }
    for part in "kv":
        arrays[f"{part}_cache"] = np.full((4, 2, 2), 9, np.int8)
        arrays[f"{part}_scale_cache"] = np.full((2, 4), 9, F32)
    reference.run(spec, x=x, slots=np.array([1]), **arrays)
    assert arrays["k_cache"][1].tolist() == [[127, -64], [0, 0]]
    assert arrays["v_cache"][1].tolist() == [[127, 127], [127, -127]]
    assert arrays["k_scale_cache"].tolist() == [[9, 2, 9, 9], [9, 0, 9, 9]]
    assert arrays["v_scale_cache"][0, 1] == 0.5
    assert arrays["q_out"].ravel().tolist() == [64, 127]
    assert arrays["q_scale_out"][0, 0] == np.float32(2) / np.float32(127)


@pytest.mark.parametrize(
    ("rule", "offset", "expected"),
    [("divide", None, 2.5), ("divide", 1.0, 2.0), ("multiply", 1.0, 8.0), ("multiply", None, 10.0)],
)
def test_reading_a_code(rule: str, offset: float | None, expected: float) -> None:
    cache = Cache("int8", "paged_nhd", 1, 2, 0, offset is not None, rule, "tensor")
    array = np.full((1, 2, 1, 2), 5, np.int8)
    got = reference.read_cache(
        cache,
        array,
        heads=1,
        head_dim=2,
        slots=np.array([1, -1]),
        scale=f32(0.5),
        offset=None if offset is None else f32(offset),
        dtype="float32",
        out=np.full((2, 1, 2), 7, F32),
    )
    assert got.tolist() == [[[expected, expected]], [[0, 0]]]


def test_reading_pages_and_copying_bits() -> None:
    cache = Cache("bfloat16", "paged_nhd", 3, 2)
    array = np.arange(12, dtype=np.uint16).reshape(3, 2, 1, 2).view(BF16)  # subnormals
    array.view(np.uint16)[2, 0] = 0x7F81  # a signalling NaN
    pages, lengths = np.array([[2, 0], [1, -1]]), np.array([3, 1])
    table: dict[str, Any] = {"heads": 1, "head_dim": 2, "slots": pages, "lengths": lengths}
    got = reference.read_cache(cache, array, **table)
    nan = [0x7F81, 0x7F81]
    assert got.view(np.uint16)[:, 0].tolist() == [nan, [10, 11], [0, 1], [4, 5]]
    # Sequences one row apart: the row between them keeps its bytes.
    out = np.full((5, 1, 2), 7, F32)
    reference.read_cache(
        cache, array, **table, row_offsets=np.array([0, 4]), dtype="float32", out=out
    )
    assert out[3].tolist() == [[7, 7]] and np.isnan(out[0]).all()
    assert out[4, 0].tolist() == [4 * 2.0**-133, 5 * 2.0**-133]


def test_reading_dynamic_fp8() -> None:
    cache = Cache("float8_e4m3fn", "token_pool", 2, scale_rule="dynamic", scale_layout="block head")
    array = np.array([[[0x38, 0x7E]], [[0xFF, 0x01]]], np.uint8).view(ml_dtypes.float8_e4m3fn)
    got = reference.read_cache(
        cache,
        array,
        heads=1,
        head_dim=2,
        slots=np.array([0, 1]),
        dtype="float16",
        scale_cache=f32(2, 4).reshape(2, 1),
    )
    assert got.dtype == np.float16
    assert got[0, 0].tolist() == [2, 896]
    assert np.isnan(got[1, 0, 0]) and got[1, 0, 1] == 2.0**-7


def test_npu_qkv_rms_norm_rope_cache_by_hand() -> None:
    """Heads of constant size 2, which a norm makes 1; cos 1 and sin 0 leave them."""
    tokens, channels = 2, 32
    qkv = np.full((tokens, 3 * channels), 2, BF16)
    qkv[:, 2 * channels :] = np.arange(channels).astype(BF16)
    gamma = np.full(channels, 3, BF16)
    cos, sin = np.ones((tokens, channels), BF16), np.zeros((tokens, channels), BF16)
    q_out = np.zeros((tokens, channels), BF16)
    k_cache, v_cache = np.zeros((1, 1, 32, 32), np.int8), np.zeros((1, 2, 32, 16), BF16)
    before = reference.npu_qkv_rms_norm_rope_cache(
        qkv,
        gamma,
        gamma,
        cos,
        sin,
        np.array([5, -1]),
        q_out,
        k_cache,
        v_cache,
        [1, tokens, 3, channels],
        [1, 1, 1],
        k_scale=np.full((1, channels), 0.5, F32),
        k_offset=np.ones((1, channels), F32),
        epsilon=0.0,
        is_output_qkv=True,
    )
    assert (q_out == 3).all()
    assert k_cache[0, 0, 5].tolist() == [7] * 32 and np.count_nonzero(k_cache) == 32
    assert v_cache[0, :, 5].ravel().tolist() == list(range(32))
    assert [part.shape for part in before if part is not None] == [(2, 32)] * 3
    with pytest.raises(ValueError, match="cache_mode"):
        reference.npu_qkv_rms_norm_rope_cache(
            qkv,
            gamma,
            gamma,
            cos,
            sin,
            np.array([5, -1]),
            q_out,
            k_cache,
            v_cache,
            [1, tokens, 3, channels],
            [1, 1, 1],
            cache_mode="NZ",
        )


@pytest.mark.parametrize("is_paged", [False, True])
def test_npu_dequant_rope_quant_kvcache_by_hand(is_paged: bool) -> None:
    channels = 16
    x = np.full((2, 2, 3 * channels), 6, np.int32)
    cos, sin = np.zeros((2, 2, 1, channels), np.float16), np.ones((2, 2, 1, channels), np.float16)
    k_cache, v_cache = (np.zeros((2, 4, 1, channels), np.int8) for _ in range(2))
    indices = np.array([1, 2, -1, 7] if is_paged else [0, 2], np.int32)
    q, k, v, k_same, _ = reference.npu_dequant_rope_quant_kvcache(
        x,
        cos,
        sin,
        k_cache,
        v_cache,
        indices,
        np.full(channels, 0.5, F32),
        np.ones(channels, F32),
        [channels] * 3,
        weight_scale=np.full(64, 0.25, F32),
        activation_scale=f32(1, 2, 3, 4, 99),
        bias=np.ones(64, np.float16),
        cache_mode="PAGE" if is_paged else "Contiguous",
        kv_output=True,
    )
    assert k is not None and v is not None and k_same is k_cache and q.shape == (2, 2, 1, 16)
    values = [2.5, 4.0, 5.5, 7.0]  # 6 / 4 * token scale + 1
    for token, value in enumerate(values):
        turned_ = [-value] * 8 + [value] * 8
        assert q.reshape(4, 16)[token].tolist() == k.reshape(4, 16)[token].tolist() == turned_
        assert v.reshape(4, 16)[token].tolist() == [value] * 16
    written = {1: 2.5, 2: 4.0, 7: 7.0} if is_paged else {0: 2.5, 1: 4.0, 6: 5.5, 7: 7.0}
    for row in range(8):
        code = 2 * written.get(row, 0)
        assert k_cache.reshape(8, 16)[row].tolist() == [-code] * 8 + [code] * 8
        assert v_cache.reshape(8, 16)[row].tolist() == [round(code / 2)] * 16
    with pytest.raises(ValueError, match="cache_mode"):
        reference.npu_dequant_rope_quant_kvcache(
            x,
            cos,
            sin,
            k_cache,
            v_cache,
            indices,
            f32(*[1] * 16),
            f32(*[1] * 16),
            [channels] * 3,
            cache_mode="paged",
        )
