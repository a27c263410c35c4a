"""vLLM's CPU operators as a peer: two norms, the rotation, and the write into its cache, as its
model code calls them. Only the compiled operators are loaded, not the engine."""
from __future__ import annotations

import importlib.util
import pathlib

import numpy as np
import torch

from peer_torch import array_of, tensor_of
from workload import BLOCK_SIZE, EPSILON, Outputs, Session, Workload

_LOADED: list[str] = []


def _load_operators() -> None:
    """Loads the build that the engine would take on this processor."""
    if _LOADED:
        return
    name = "_C_AVX2"
    if torch.cpu._is_avx512_supported():
        name = "_C" if torch.cpu._is_avx512_bf16_supported() else "_C_AVX512"
    folder = pathlib.Path(importlib.util.find_spec("vllm").origin).parent
    torch.ops.load_library(str(folder / f"{name}.abi3.so"))
    _LOADED.append(name)


class VllmSession(Session):
    """q and k are copied out of the packed row, normed into new tensors, rotated in place.
    The cache is vLLM's with the "vec" inside: [blocks, kv_heads, head_dim, BLOCK_SIZE] for k,
    transposed, and [blocks, kv_heads, BLOCK_SIZE, head_dim] for v, halves of one tensor."""

    def __init__(self, workload: Workload, threads: int) -> None:
        torch.set_num_threads(threads)
        _load_operators()
        shape, dtype = workload.shape, workload.dtype
        self._workload = workload
        self._qkv = tensor_of(workload.qkv, dtype)
        self._q_gamma = tensor_of(workload.q_gamma, dtype)
        self._k_gamma = tensor_of(workload.k_gamma, dtype)
        table = np.concatenate([workload.cos_half, workload.sin_half], axis=1)
        self._table = tensor_of(table, dtype)
        self._positions = torch.from_numpy(workload.positions)
        self._slots = torch.from_numpy(workload.slots)
        cache = torch.zeros((workload.blocks, shape.kv_heads, 2 * BLOCK_SIZE, shape.head_dim),
                            dtype=self._qkv.dtype)
        self._k_cache, self._v_cache = cache.chunk(2, dim=2)
        self._sizes = [heads * shape.head_dim
                       for heads in (shape.q_heads, shape.kv_heads, shape.kv_heads)]
        self._q = torch.empty(0)

    @torch.inference_mode()
    def run(self) -> None:
        """Four operators."""
        shape, tokens = self._workload.shape, self._workload.tokens
        q, k, v = self._qkv.split(self._sizes, dim=-1)
        # Its norm reads a view as if it were contiguous, so q and k are copied out of the row.
        q = self._norm(q.contiguous().view(tokens, shape.q_heads, shape.head_dim), self._q_gamma)
        k = self._norm(k.contiguous().view(tokens, shape.kv_heads, shape.head_dim), self._k_gamma)
        # It takes the number of heads from the last dimension, so that must be the whole row.
        torch.ops._C.rotary_embedding(self._positions, q.view(tokens, -1), k.view(tokens, -1),
                                      shape.head_dim, self._table, True)
        torch.ops._C.cpu_attn_reshape_and_cache(
            k, v.view(tokens, shape.kv_heads, shape.head_dim), self._k_cache, self._v_cache,
            self._slots, "vec")
        self._q = q

    @staticmethod
    def _norm(x: torch.Tensor, gamma: torch.Tensor) -> torch.Tensor:
        out = torch.empty(x.shape, dtype=x.dtype)
        torch.ops._C.rms_norm(out, x, gamma, EPSILON)
        return out

    def outputs(self, tokens: np.ndarray) -> Outputs:
        """Rows of q; a column of each k block and a row of each v block."""
        shape, dtype = self._workload.shape, self._workload.dtype
        block, row = (torch.from_numpy(part)
                      for part in np.divmod(self._workload.slots[tokens], BLOCK_SIZE))
        transposed = self._k_cache.unflatten(2, (1, BLOCK_SIZE)).reshape(
            -1, shape.kv_heads, shape.head_dim, BLOCK_SIZE)
        return Outputs(array_of(self._q[torch.from_numpy(tokens)], dtype),
                       array_of(transposed[block, :, :, row], dtype),
                       array_of(self._v_cache[block, :, row], dtype))


def open_vllm(workload: Workload, threads: int) -> VllmSession:
    """A case for vLLM's operators."""
    return VllmSession(workload, threads)
