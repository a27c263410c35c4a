"""Complete calls of the general operator and of the two of Ascend, for tests to vary."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

import qkvfuse

BF16 = np.dtype(ml_dtypes.bfloat16)
TOKENS = 3


def numpy_dtype(name: str) -> Any:
    """The NumPy dtype of one of qkvfuse's names."""
    return np.dtype(getattr(ml_dtypes, name, None) or name)


def qwen_plan(**fields: Any) -> qkvfuse.Plan:
    """A small Qwen3: bf16, norms per head, int8 pages with a scale per head."""
    cache = qkvfuse.Cache("int8", "paged_nhd", blocks=4, block_size=16, granularity="head")
    given: dict[str, Any] = {
        "x_dtype": "bfloat16",
        "heads": (4, 2, 2),
        "head_dim": 64,
        "q_norm": "per_head",
        "k_norm": "per_head",
        "k_cache": cache,
        "v_cache": cache,
        **fields,
    }
    return qkvfuse.Plan(**given)


def arrays_of(
    plan: qkvfuse.Plan, tokens: int | tuple[int, int] = TOKENS, seed: int = 0
) -> dict[str, Any]:
    """Random inputs, and outputs of zeros."""
    rng = np.random.default_rng(seed)
    arrays: dict[str, Any] = {}
    for name, operand in plan.operands(tokens).items():
        dtype = numpy_dtype(str(operand.dtype))
        if operand.is_output:
            arrays[name] = np.zeros(operand.shape, dtype)
        elif "scale" in name:
            arrays[name] = rng.uniform(0.01, 0.1, operand.shape).astype(dtype)
        elif name == "slots":
            count = int(np.prod(operand.shape))
            arrays[name] = rng.permutation(64)[:count].reshape(operand.shape).astype(dtype)
        elif dtype.kind == "i":
            arrays[name] = rng.integers(0, 4, operand.shape).astype(dtype)
        else:
            arrays[name] = rng.standard_normal(operand.shape).astype(dtype)
    return arrays


def bits(array: Any) -> Any:
    """The elements as unsigned integers, to compare NaN and signed zeros too."""
    array = np.asarray(array)
    return np.ascontiguousarray(array).view(f"u{array.itemsize}")
