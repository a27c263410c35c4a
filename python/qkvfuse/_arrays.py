"""New arrays of the kind that a call's inputs are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ml_dtypes  # noqa: F401  (registers bfloat16 and float8 with NumPy)
import numpy as np

from ._words import DType

ArrayLike = Any  # whatever has DLPack or the buffer protocol


def is_torch(array: object) -> bool:
    """Whether this is a tensor of PyTorch, which is then imported already."""
    return type(array).__module__.split(".")[0] == "torch"


def zeros(shape: Sequence[int], dtype: DType | str, like: object = None) -> Any:
    """Zeros of one of qkvfuse's dtypes: a torch tensor where `like` is one, else a NumPy array."""
    name = str(DType.of(dtype, "dtype"))
    if is_torch(like):
        import torch

        return torch.zeros(tuple(shape), dtype=getattr(torch, name))
    return np.zeros(tuple(shape), dtype=np.dtype(name))
