"""The kinds of cache that the example compares: element type, rule of the scale, what shares it."""

from __future__ import annotations

from dataclasses import dataclass

BYTES = {
    "float32": 4,
    "float16": 2,
    "bfloat16": 2,
    "int8": 1,
    "float8_e4m3fn": 1,
    "float8_e5m2": 1,
}
BLOCK_SIZE = 16  # rows of a page


@dataclass(frozen=True)
class CacheKind:
    """How k and v are stored.

    Attributes:
        name: in results and plots.
        dtype: a key of BYTES.
        scale_rule: of the 8-bit types: "divide", with scales from calibration, or "dynamic", with a
            scale for each token and head; else None.
        granularity: what shares a scale of "divide": "tensor", "head" or "channel".
        has_offset: whether an int8 code is round(y / scale + offset).
    """

    name: str
    dtype: str
    scale_rule: str | None = None
    granularity: str = "channel"
    has_offset: bool = False

    @property
    def is_calibrated(self) -> bool:
        """Whether scales come from calibration."""
        return self.scale_rule == "divide"

    def bytes_per_token(self, layers: int, kv_heads: int, head_dim: int) -> int:
        """Bytes that one token takes in the caches of all layers, its own scales included."""
        scale = 4 if self.scale_rule == "dynamic" else 0
        return layers * 2 * kv_heads * (head_dim * BYTES[self.dtype] + scale)


FLOAT32 = CacheKind("float32", "float32")
BASELINE = CacheKind("bfloat16", "bfloat16")


def _static(granularity: str, has_offset: bool) -> CacheKind:
    form = "asymmetric" if has_offset else "symmetric"
    return CacheKind(f"int8 {granularity} {form}", "int8", "divide", granularity, has_offset)


EIGHT_BIT = (
    *(
        _static(shared, offset)
        for shared in ("tensor", "head", "channel")
        for offset in (False, True)
    ),
    CacheKind("int8 dynamic", "int8", "dynamic"),
    CacheKind("fp8_e4m3 dynamic", "float8_e4m3fn", "dynamic"),
    CacheKind("fp8_e5m2 dynamic", "float8_e5m2", "dynamic"),
)
KINDS = {kind.name: kind for kind in (FLOAT32, BASELINE, *EIGHT_BIT)}
