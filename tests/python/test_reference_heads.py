"""Norms, rotations and sources of the NumPy oracle, worked out without it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from exact import BF16, F32, exact_fma, f32
from qkvfuse import reference
from qkvfuse._spec import Cache, Norm, Rope, Spec
from qkvfuse._words import Pairing, Sections
from qkvfuse.reference import heads


def test_sum_of_squares_in_the_written_order() -> None:
    """The steps of docs/numerics.md, one scalar at a time, each rounded by exact arithmetic."""
    rng = np.random.default_rng(5)
    for channels in (2, 6, 16, 18, 34, 48, 130):
        x = (rng.standard_normal(channels) * np.exp(rng.standard_normal(channels))).astype(F32)
        acc = [np.float32(0)] * 16
        for i in range(channels):
            acc[i % 16] = exact_fma(x[i], x[i], acc[i % 16])
        for count in (8, 4, 2, 1):
            for lane in range(count):
                acc[lane] = acc[lane] + acc[lane + count]
        assert heads.sums_of_squares(x.reshape(1, 1, -1))[0, 0] == acc[0]


def test_norm_by_hand() -> None:
    x = f32(3, 5, 0, 0).reshape(1, 2, 2)  # two heads: sums 34 and 0
    sums = heads.sums_of_squares(x)
    assert sums.tolist() == [[34, 0]]
    with np.errstate(all="ignore"):
        # Per head: mean 17 and epsilon 47 make 64, the reciprocal root 1/8.
        per_head = heads.normalise(x, sums[:, :, None], 2, 47.0)
        # Both heads: 34/4 + 0.5 = 9; the root is 3, its reciprocal rounded before it multiplies.
        full_width = heads.normalise(x, sums[:, None, :], 4, 0.5)
        empty = heads.normalise(x, sums[:, :, None], 2, 0.0)
    assert per_head[0, 0].tolist() == [0.375, 0.625]
    third = np.float32(11184811 * 2.0**-25)  # the float32 nearest to 1/3
    assert full_width[0, 0].tolist() == [1, 5 * third] != [1, np.float32(5) / np.float32(3)]
    assert np.isnan(empty[0, 1]).all()  # 0 * infinity


def test_norm_of_an_overflowing_sum_is_zero() -> None:
    spec = Spec("bfloat16", (1, 1, 1), 2, q_norm=Norm("per_head", "none"), rope="none")
    x = np.full((1, 6), 1e20, BF16)
    assert reference.evaluate(spec, x=x).q.tolist() == [[[0, 0]]]  # type: ignore[union-attr]


@pytest.mark.parametrize("order", ["before_rope", "after_rope"])
def test_weight_and_order_of_norm_and_rotation(order: str) -> None:
    """A quarter turn makes (-b, a) of (a, b); a weight before it stays with its number."""
    norm = Norm("per_head", "one_plus", "float32")
    spec = Spec("float32", (1, 1, 1), 2, q_norm=norm, norm_order=order, epsilon=0.0)
    q = reference.evaluate(
        spec,
        x=f32(7, 7, 0, 0, 0, 0).reshape(1, 6),
        q_gamma=f32(1, 3),
        cos=f32(0, 0).reshape(1, 2),
        sin=f32(1, 1).reshape(1, 2),
    ).q
    assert q is not None  # normalised (1, 1), weights 2 and 4
    assert q.ravel().tolist() == ([-4, 2] if order == "before_rope" else [-2, 4])


def test_ranks_together_give_the_bits_of_one_process() -> None:
    rng = np.random.default_rng(6)
    tokens, all_heads, channels = 5, 6, 34
    q = rng.standard_normal((tokens, all_heads, channels)).astype(F32)
    gamma = rng.standard_normal((all_heads, channels)).astype(F32)

    def out(part: slice, total: int, **more: Any) -> Any:
        own = q[:, part]
        result = np.empty_like(own)
        spec = spec_of(own.shape[1], total)
        reference.run(spec, q=own, q_gamma=gamma[part], q_out=result, **more)
        return result

    def spec_of(count: int, total: int) -> Spec:
        norm = Norm("full_width", total_heads=total)
        return Spec("float32", (count, 1, 1), channels, is_separate=True, q_norm=norm, rope="none")

    gathered = []
    for part in (slice(0, 2), slice(2, 6)):
        own = q[:, part]
        sums = np.empty(own.shape[:2], F32)
        reference.measure(spec_of(own.shape[1], all_heads), q=own, q_head_sums=sums)
        gathered.append(sums)
    q_sums = np.concatenate(gathered, axis=1)
    ranks = [out(part, all_heads, q_sums=q_sums) for part in (slice(0, 2), slice(2, 6))]
    assert np.array_equal(np.concatenate(ranks, axis=1), out(slice(0, 6), 0))


def turned(x: list[float], rope: Rope, **arrays: Any) -> list[float]:
    spec = Spec("float32", (1, 1, 1), len(x), rope=rope)
    row = np.concatenate([f32(*x), np.zeros(2 * len(x), F32)])[None]
    q = reference.evaluate(spec, x=row, **arrays).q
    assert q is not None
    return [float(value) for value in q.ravel()]


def test_which_channels_rotate() -> None:
    """cos 0 and sin 1 or 2: lo becomes -hi * sin[lo], hi becomes lo * sin[hi]."""
    cos, sin = np.zeros((1, 4), F32), f32(1, 1, 2, 2)[None]
    x = [1.0, 2.0, 3.0, 4.0]
    assert turned(x, Rope("halves"), cos=cos, sin=sin) == [-3, -4, 2, 4]
    assert turned(x, Rope("interleaved"), cos=cos, sin=sin) == [-2, 1, -8, 6]
    half = {"cos": np.zeros((1, 2), F32), "sin": f32(1, 2)[None]}
    assert turned(x, Rope("halves", half_width=True), **half) == [-3, -8, 1, 4]
    assert turned(x, Rope("interleaved", half_width=True), **half) == [-2, 1, -8, 6]
    assert turned(x, Rope("halves", rotary_dim=2), **half) == [-2, 2, 3, 4]
    assert turned(x, Rope("halves", 2, rotates_last=True), **half) == [1, 2, -4, 6]


def test_tables_by_position() -> None:
    # Row p is p quarter turns for both pairs: (cos, sin) are (1, 0), (0, 1), (-1, 0), (0, -1).
    cos, sin = f32(1, 0, -1, 0), f32(0, 1, 0, -1)
    joined = np.stack([cos, cos, sin, sin], axis=1)
    rope = Rope(table="joined", max_positions=4, position_dtype="int32")
    expected = {0: [1, 2, 3, 4], 1: [-3, -4, 1, 2], 2: [-1, -2, -3, -4], 3: [3, 4, -1, -2]}
    for position, values in expected.items():
        positions = np.array([position], np.int32)
        assert turned([1, 2, 3, 4], rope, cos=joined, positions=positions) == values
    two = Rope(table="two_tables", max_positions=4, half_width=True)
    tables = {"cos": joined[:, :2], "sin": joined[:, 2:]}
    assert turned([1, 2, 3, 4], two, positions=np.array([3]), **tables) == [3, 4, -1, -2]
    # Three positions: the first pair by the second one, the second pair by the third.
    sections = Rope(
        table="joined", max_positions=4, sections="concatenated", section_pairs=(0, 1, 1)
    )
    positions = np.array([[0], [1], [2]])
    assert turned([1, 2, 3, 4], sections, cos=joined, positions=positions) == [-3, -2, 1, -4]


def test_sections_of_published_models() -> None:
    # Qwen2-VL: mrope_section [16, 24, 24], one after another.
    sections = heads.section_of_pairs(Sections.CONCATENATED, (16, 24, 24))
    assert sections.tolist() == [0] * 16 + [1] * 24 + [2] * 24
    # Qwen3-VL: [24, 20, 20] interleaved, THWTHW...THWTT..
    sections = heads.section_of_pairs(Sections.INTERLEAVED, (24, 20, 20))
    assert sections.tolist() == [0, 1, 2] * 20 + [0] * 4


def test_interleaved_sections_of_different_sizes() -> None:
    of_pairs = {(3, 2, 1): [0, 1, 2, 0, 1, 0], (3, 1, 2): [0, 1, 2, 0, 0, 2]}
    for section_pairs, expected in of_pairs.items():
        sections = heads.section_of_pairs(Sections.INTERLEAVED, section_pairs)
        assert sections.tolist() == expected


def test_rotation_in_the_written_order() -> None:
    rng = np.random.default_rng(7)
    a, g, cos, sin = rng.standard_normal((4, 8)).astype(F32)
    angles = heads.Angles(*(part[None, None] for part in (cos[:4], cos[4:], sin[:4], sin[4:])))
    y = heads.rotate(a[None, None], g[None], angles, Pairing.HALVES, 8, False)[0, 0]
    for lo in range(4):
        hi = lo + 4
        assert y[lo] == exact_fma(a[lo], g[lo] * cos[lo], -(a[hi] * (g[hi] * sin[lo])))
        assert y[hi] == exact_fma(a[hi], g[hi] * cos[hi], a[lo] * (g[lo] * sin[hi]))


def test_error_against_float64_is_within_the_documented_bound() -> None:
    """E of docs/numerics.md, Accuracy, for a normalised and rotated head."""
    rng = np.random.default_rng(8)
    tokens, channels = 40, 128
    spec = Spec("bfloat16", (4, 1, 1), channels, q_norm="per_head")
    x = rng.standard_normal((tokens, 6 * channels)).astype(BF16)
    gamma = rng.standard_normal(channels).astype(BF16)
    angle = rng.uniform(0, 6, (tokens, channels))
    cos, sin = np.cos(angle).astype(BF16), np.sin(angle).astype(BF16)
    arrays: dict[str, Any] = {"x": x, "q_gamma": gamma, "cos": cos, "sin": sin}
    single = reference.evaluate(spec, **arrays).q
    double = reference.evaluate(spec, precision="float64", **arrays).q
    assert single is not None and double is not None and double.dtype == np.float64
    wide = x.astype(np.float64).reshape(tokens, 6, channels)[:, :4]
    a = wide / np.sqrt((wide**2).mean(-1, keepdims=True) + np.float32(1e-6))
    first, second = np.arange(128), (np.arange(128) + 64) % 128
    c, s = (table.astype(np.float64)[:, None] for table in (cos, sin))
    own = a * gamma.astype(np.float64) * c
    other = (a * gamma.astype(np.float64))[..., second] * s
    exact = own + np.where(first < 64, -other, other)
    assert np.allclose(double, exact, rtol=1e-12, atol=1e-13)
    bound = 1.0001 * 2.0**-24 * ((8 + 11) / 2 * np.abs(exact) + 2 * (np.abs(own) + np.abs(other)))
    error = np.abs(single - exact)
    assert (error <= bound + 2.0**-146).all() and error.max() > 0


def test_dequantisation_by_hand() -> None:
    largest = 2**31 - 1
    x = np.array([[largest, -5, 3, 7, 2**24 + 1, 1]], np.int32)
    scale = f32(1, 0.5, 2, 1, 1, 1)
    base: dict[str, Any] = {"x": x, "weight_scale": scale, "token_scale": f32(4)}

    def values(bias: Any) -> list[float]:
        spec = Spec(
            "int32",
            (1, 1, 1),
            2,
            has_token_scale=True,
            bias=bias.dtype,
            rope="none",
            q_out="float32",
            k_out="float32",
            v_out="float32",
        )
        rows = [part for part in reference.evaluate(spec, bias=bias, **base) if part is not None]
        return [float(value) for value in np.concatenate(rows, axis=None)]

    # int32: added first, and it wraps; 2^24 + 1 + 2 rounds to the even 2^24 + 4.
    integers = np.array([1, 1, -1, 0, 2, 0], np.int32)
    assert values(integers) == [-(2.0**33), -8, 16, 28, 4 * (2.0**24 + 4), 4]
    # float: added last; 2^24 + 1 is 2^24 by then.
    assert values(f32(1, 1, 0.5, 0, 0, 0.25)) == [2.0**33, -9, 24.5, 28, 2.0**26, 4.25]


def test_heads_that_nothing_is_computed_of_keep_their_bits() -> None:
    signalling = np.array([0x7F81, 0xFFA5], np.uint16)  # bfloat16 NaN whose quiet bit is 0
    x = np.concatenate([np.zeros(4, np.uint16), signalling]).view(BF16)[None]
    cache = Cache("bfloat16", "token_pool", 3)
    spec = Spec(
        "bfloat16", (1, 1, 1), 2, v_out="bfloat16", k_cache=cache, v_cache=cache, rope="none"
    )
    arrays: dict[str, Any] = {name: np.zeros((1, 1, 2), BF16) for name in ("q_out", "v_out")}
    caches: dict[str, Any] = {name: np.full((3, 1, 2), 9, BF16) for name in ("k_cache", "v_cache")}
    reference.run(spec, x=x, slots=np.array([2]), **arrays, **caches)
    assert arrays["v_out"].view(np.uint16).ravel().tolist() == signalling.tolist()
    assert caches["v_cache"].view(np.uint16)[2, 0].tolist() == signalling.tolist()
    assert (caches["v_cache"][:2] == 9).all()
    # Of another type it is a quiet NaN.
    other = np.zeros((1, 1, 2), np.float16)
    reference.run(
        Spec("bfloat16", (1, 1, 1), 2, v_out="float16", rope="none"),
        x=x,
        q_out=arrays["q_out"],
        v_out=other,
    )
    assert (other.view(np.uint16) & 0x7E00 == 0x7E00).all()


def test_shapes_that_an_array_may_have() -> None:
    rng = np.random.default_rng(9)
    spec = Spec("float32", (2, 1, 1), 4, rope="none", k_out="float32")
    x = rng.standard_normal((2, 3, 16)).astype(F32)
    for source in (x, x.reshape(6, 16), x.reshape(6, 4, 4), x.reshape(2, 3, 4, 4)):
        for shape in ((6, 2, 4), (6, 8), (2, 3, 2, 4), (2, 3, 8)):
            q = np.zeros((*shape[:-1], 2 * shape[-1]), F32)[..., ::-2]
            reference.run(spec, tokens=(2, 3), x=source, q_out=q, k_out=np.zeros((6, 4), F32))
            assert np.array_equal(q.reshape(6, 8), x.reshape(6, 16)[:, :8])
    with pytest.raises(ValueError, match="q_out: shape is"):
        reference.run(spec, x=x, q_out=np.zeros((8, 6), F32), k_out=np.zeros((6, 4), F32))
    with pytest.raises(ValueError, match="x: type is"):
        reference.run(spec, x=x.astype(np.float64), q_out=q, k_out=np.zeros((6, 4), F32))
    with pytest.raises(ValueError, match="k_out: is absent"):
        reference.run(spec, x=x, q_out=q)
