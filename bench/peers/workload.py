"""One case of the comparison: shape, tokens and data, equal for qkvfuse and for every peer, and
what it means that two results agree."""
from __future__ import annotations

import abc
import dataclasses

import numpy as np

EPSILON = 1e-6
ROPE_BASE = 1e6
BLOCK_SIZE = 128  # rows of a cache block
DECODE_TOKENS = 64  # up to here a call is a decode step: every token is of another sequence
CONTEXT = 4096  # decode steps are somewhere in a context of this many tokens
COMPARED_TOKENS = 512

# Unit roundoff: the largest relative error of rounding one number to the type.
UNIT = {"bf16": 2.0**-8, "fp16": 2.0**-11}
SMALLEST_NORMAL = {"bf16": 2.0**-126, "fp16": 2.0**-14}  # below it errors are absolute


@dataclasses.dataclass(frozen=True)
class Shape:
    """Heads of q, of k and of v (as many as of k), and channels of a head."""
    q_heads: int
    kv_heads: int
    head_dim: int = 128

    @property
    def heads(self) -> int:
        """Heads in a packed row."""
        return self.q_heads + 2 * self.kv_heads

    def __str__(self) -> str:
        return f"{self.q_heads}/{self.kv_heads}x{self.head_dim}"

    @staticmethod
    def parse(text: str) -> Shape:
        """Reads 32/8 or 32/8x128."""
        heads, _, head_dim = text.partition("x")
        q_heads, _, kv_heads = heads.partition("/")
        return Shape(int(q_heads), int(kv_heads), int(head_dim or 128))


@dataclasses.dataclass(frozen=True)
class Outputs:
    """What a call has written for some tokens, widened to fp32: q [tokens, q_heads, head_dim], and
    k and v [tokens, kv_heads, head_dim] read back from the cache."""
    q: np.ndarray
    k: np.ndarray
    v: np.ndarray


class Session(abc.ABC):
    """A case made ready by qkvfuse or a peer: nothing is left to do but the work itself."""

    @abc.abstractmethod
    def run(self) -> None:
        """The timed call: all tokens of the case."""

    @abc.abstractmethod
    def outputs(self, tokens: np.ndarray) -> Outputs:
        """What the latest call has written for these tokens."""

    def rest(self) -> None:
        """Called when the other side comes next: threads that would go on spinning must stop."""

    def close(self) -> None:
        """Gives back what Python does not."""


def narrow(values: np.ndarray, dtype: str) -> np.ndarray:
    """The bits (uint16) of fp32 values rounded to nearest, ties to even. No NaN."""
    if dtype == "fp16":
        return values.astype(np.float16).view(np.uint16)
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def widen(bits: np.ndarray, dtype: str) -> np.ndarray:
    """The fp32 values of bf16 or fp16 bits (uint16)."""
    if dtype == "fp16":
        return bits.view(np.float16).astype(np.float32)
    return (bits.astype(np.uint32) << 16).view(np.float32)


class Workload:
    """The data of one case, as bits (uint16) of `dtype`:
    qkv [tokens, heads*head_dim], q_gamma and k_gamma [head_dim], the table's halves cos_half and
    sin_half [positions, head_dim/2]; and positions, slots [tokens] int64.

    Decode steps put each token on a random row of a block of its own. Longer calls are one prompt:
    its tokens fill the rows of shuffled blocks in order.
    """

    def __init__(self, shape: Shape, tokens: int, dtype: str) -> None:
        random = np.random.default_rng(tokens)
        self.shape, self.tokens, self.dtype = shape, tokens, dtype
        row = shape.heads * shape.head_dim
        self.qkv = narrow(random.standard_normal((tokens, row), np.float32), dtype)
        gammas = 1 + 0.25 * random.standard_normal((2, shape.head_dim), np.float32)
        self.q_gamma, self.k_gamma = narrow(gammas, dtype)
        if tokens <= DECODE_TOKENS:
            self.blocks = tokens
            self.positions = random.integers(0, CONTEXT, tokens)
            rows = random.integers(0, BLOCK_SIZE, tokens)
        else:
            self.blocks = -(-tokens // BLOCK_SIZE)
            self.positions = np.arange(tokens)
            rows = self.positions % BLOCK_SIZE
        blocks = random.permutation(self.blocks)
        block_of_token = np.arange(tokens) if tokens <= DECODE_TOKENS else (
            self.positions // BLOCK_SIZE)
        self.slots = blocks[block_of_token] * BLOCK_SIZE + rows
        cos, sin = self._table()
        self.cos_half, self.sin_half = narrow(cos, dtype), narrow(sin, dtype)

    def _table(self) -> tuple[np.ndarray, np.ndarray]:
        """cos and sin of every position's angles, [positions, head_dim/2]."""
        half = self.shape.head_dim // 2
        positions = np.arange(max(CONTEXT, self.tokens), dtype=np.float64)
        angles = np.outer(positions, ROPE_BASE ** (-np.arange(half) / half))
        return np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)

    @property
    def cos(self) -> np.ndarray:
        """The row of each token, both halves: [tokens, head_dim]."""
        return np.tile(self.cos_half[self.positions], 2)

    @property
    def sin(self) -> np.ndarray:
        """As cos."""
        return np.tile(self.sin_half[self.positions], 2)

    @property
    def cache_rows(self) -> int:
        """Rows, which are slots, of a cache."""
        return self.blocks * BLOCK_SIZE

    def compared_tokens(self) -> np.ndarray:
        """The tokens whose results are compared: all, or COMPARED_TOKENS spread evenly."""
        count = min(self.tokens, COMPARED_TOKENS)
        return np.linspace(0, self.tokens - 1, count).astype(np.int64)


def roundings_apart(ours: np.ndarray, theirs: np.ndarray, dtype: str) -> float:
    """The largest distance between two rotated results [.., head_dim], in unit roundoffs of the
    length of the rotated pair: the error of a sum of two products is relative to that, and not to
    the sum, which may be near 0."""
    half = ours.shape[-1] // 2
    length = np.hypot(ours[..., :half], ours[..., half:])
    distance = np.abs(ours - theirs)
    # Not a number must not pass for near.
    if not np.isfinite(theirs).all():
        return float("inf")
    scale = UNIT[dtype] * np.maximum(length, np.float32(SMALLEST_NORMAL[dtype]))
    return float(np.max(distance / np.concatenate([scale, scale], axis=-1)))


def disagreement(ours: Outputs, theirs: Outputs, dtype: str, roundings: float) -> str | None:
    """Why two results do not agree, or None: q and k within `roundings`, v in every bit."""
    for name in ("q", "k"):
        apart = roundings_apart(getattr(ours, name), getattr(theirs, name), dtype)
        if not apart <= roundings:
            return f"{name} differs by {apart:.1f} roundings of {dtype}, more than {roundings:g}"
    if not np.array_equal(ours.v, theirs.v):
        return "v differs, must be a copy"
    if not ours.q.any() or not ours.k.any() or not ours.v.any():
        return "a result is all zeros"
    return None
