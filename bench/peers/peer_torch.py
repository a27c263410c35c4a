"""PyTorch as a peer: the formula as model code writes it, run eagerly or through torch.compile."""
from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from workload import EPSILON, Outputs, Session, Shape, Workload, widen

_DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


def tensor_of(bits: np.ndarray, dtype: str) -> torch.Tensor:
    """A tensor on the memory of bf16 or fp16 bits (uint16)."""
    return torch.from_numpy(bits.view(np.int16)).view(_DTYPES[dtype])


def array_of(tensor: torch.Tensor, dtype: str) -> np.ndarray:
    """The values of a bf16 or fp16 tensor as fp32."""
    bits = tensor.contiguous().view(torch.int16).numpy().view(np.uint16)
    return widen(bits, dtype)


def rms_norm(x: torch.Tensor, gamma: torch.Tensor) -> torch.Tensor:
    """Per-head RMSNorm in fp32, rounded before gamma: x [tokens, heads, head_dim]."""
    wide = x.float()
    inverse = torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + EPSILON)
    return gamma * (wide * inverse).to(x.dtype)


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """RoPE on halves: x [tokens, heads, head_dim], cos and sin [tokens, 1, head_dim]."""
    low, high = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-high, low), dim=-1) * sin


def prologue(shape: Shape) -> Callable[..., torch.Tensor]:
    """The whole work as one function of tensors; writes the caches, returns q."""

    def run(qkv, q_gamma, k_gamma, cos, sin, slots, k_cache, v_cache):
        parts = (shape.q_heads, shape.kv_heads, shape.kv_heads)
        heads = qkv.view(qkv.shape[0], shape.heads, shape.head_dim)
        q, k, v = heads.split(parts, dim=1)
        q = rotate(rms_norm(q, q_gamma), cos, sin)
        k = rotate(rms_norm(k, k_gamma), cos, sin)
        k_cache.index_put_((slots,), k)
        v_cache.index_put_((slots,), v)
        return q

    return run


class TorchSession(Session):
    """Caches [rows, kv_heads, head_dim]; q is a new tensor of every call."""

    def __init__(self, workload: Workload, threads: int, compiled: bool) -> None:
        torch.set_num_threads(threads)
        shape, dtype = workload.shape, workload.dtype
        cache = (workload.cache_rows, shape.kv_heads, shape.head_dim)
        self._workload = workload
        self._k_cache = torch.zeros(cache, dtype=_DTYPES[dtype])
        self._v_cache = torch.zeros(cache, dtype=_DTYPES[dtype])
        self._arguments = (
            *(tensor_of(array, dtype) for array in (workload.qkv, workload.q_gamma,
                                                    workload.k_gamma)),
            tensor_of(workload.cos, dtype).unsqueeze(1),
            tensor_of(workload.sin, dtype).unsqueeze(1),
            torch.from_numpy(workload.slots), self._k_cache, self._v_cache)
        self._function = prologue(shape)
        if compiled:
            # Every case has its own code: fixed sizes are what the compiler does best with.
            torch._dynamo.reset()
            self._function = torch.compile(self._function, fullgraph=True, dynamic=False)
        self._q = torch.empty(0)

    @torch.inference_mode()
    def run(self) -> None:
        """One call of the function."""
        self._q = self._function(*self._arguments)

    def outputs(self, tokens: np.ndarray) -> Outputs:
        """Rows of q and of the caches."""
        chosen = torch.from_numpy(tokens)
        slots = torch.from_numpy(self._workload.slots[tokens])
        dtype = self._workload.dtype
        return Outputs(array_of(self._q[chosen], dtype), array_of(self._k_cache[slots], dtype),
                       array_of(self._v_cache[slots], dtype))


def open_eager(workload: Workload, threads: int) -> TorchSession:
    """The function as it stands."""
    return TorchSession(workload, threads, compiled=False)


def open_compiled(workload: Workload, threads: int) -> TorchSession:
    """The function through torch.compile; the first run compiles."""
    return TorchSession(workload, threads, compiled=True)
