"""qkvfuse through its aclnn door: libqkvfuse_aclnn loaded by ctypes, with the calls that a C
program would make (include/qkvfuse-acl)."""
from __future__ import annotations

import ctypes
import os

import numpy as np

from workload import BLOCK_SIZE, EPSILON, Outputs, Session, Workload, widen

ACL_DTYPE = {"fp16": 1, "bf16": 27}
ACL_INT64 = 9
ACL_FORMAT_ND = 2
CHUNK = 16  # channels of a PA_NZ piece in a 16-bit cache
LIBRARY_VARIABLE = "QKVFUSE_ACLNN_LIBRARY"

# Parameters of phase 1: 12 tensors and 4 of them absent, sizes, heads, epsilon, mode, three absent
# outputs, and where the workspace's size and the executor go.
_PHASE_1 = ([ctypes.c_void_p] * 15 + [ctypes.c_double, ctypes.c_char_p] + [ctypes.c_void_p] * 3 +
            [ctypes.POINTER(ctypes.c_uint64), ctypes.POINTER(ctypes.c_void_p)])


def load_library() -> ctypes.CDLL:
    """Loads the library that QKVFUSE_ACLNN_LIBRARY names, else the installed one."""
    library = ctypes.CDLL(os.environ.get(LIBRARY_VARIABLE, "libqkvfuse_aclnn.so"))
    dims = ctypes.POINTER(ctypes.c_int64)
    library.aclCreateTensor.argtypes = [
        dims, ctypes.c_uint64, ctypes.c_int, dims, ctypes.c_int64, ctypes.c_int, dims,
        ctypes.c_uint64, ctypes.c_void_p]
    library.aclCreateTensor.restype = ctypes.c_void_p
    library.aclCreateIntArray.argtypes = [dims, ctypes.c_uint64]
    library.aclCreateIntArray.restype = ctypes.c_void_p
    library.aclGetRecentErrMsg.restype = ctypes.c_char_p
    library.aclSetAclOpExecutorRepeatable.argtypes = [ctypes.c_void_p]
    for name in ("aclDestroyTensor", "aclDestroyIntArray", "aclDestroyAclOpExecutor"):
        getattr(library, name).argtypes = [ctypes.c_void_p]
    library.aclnnQkvRmsNormRopeCacheGetWorkspaceSize.argtypes = _PHASE_1
    library.aclnnQkvRmsNormRopeCache.argtypes = [
        ctypes.c_void_p, ctypes.c_uint64, ctypes.c_void_p, ctypes.c_void_p]
    return library


class QkvfuseSession(Session):
    """aclnnQkvRmsNormRopeCache on one case: 16-bit PA_NZ caches [blocks, kv_heads*head_dim/16,
    BLOCK_SIZE, 16], q dense. `run` is phase 2 of a repeatable executor, `run_both_phases` a whole
    call as a program makes it that keeps nothing but its tensors."""

    def __init__(self, library: ctypes.CDLL, workload: Workload) -> None:
        shape = workload.shape
        self._library, self._workload = library, workload
        cache = (workload.blocks, shape.kv_heads * shape.head_dim // CHUNK, BLOCK_SIZE, CHUNK)
        self._q = np.zeros((workload.tokens, shape.q_heads * shape.head_dim), np.uint16)
        self._k_cache, self._v_cache = np.zeros(cache, np.uint16), np.zeros(cache, np.uint16)
        self._arrays = [workload.qkv, workload.q_gamma, workload.k_gamma, workload.cos,
                        workload.sin, workload.slots, self._q, self._k_cache, self._v_cache]
        self._tensors = [self._tensor(array) for array in self._arrays]
        self._sizes = self._int_array([1, workload.tokens, shape.heads, shape.head_dim])
        self._heads = self._int_array([shape.q_heads, shape.kv_heads, shape.kv_heads])
        self._bytes, self._executor = ctypes.c_uint64(), ctypes.c_void_p()
        self._phase_1_arguments = (
            *map(ctypes.c_void_p, self._tensors), None, None, None, None,
            ctypes.c_void_p(self._sizes), ctypes.c_void_p(self._heads), ctypes.c_double(EPSILON),
            b"PA_NZ", None, None, None)
        self._phase_1 = library.aclnnQkvRmsNormRopeCacheGetWorkspaceSize
        self._phase_2 = library.aclnnQkvRmsNormRopeCache
        self._nothing = ctypes.CDLL(None).abs
        self._nothing.argtypes, self._nothing.restype = self._phase_2.argtypes, ctypes.c_int
        self._make_executor(self._bytes, self._executor)
        self._check(library.aclSetAclOpExecutorRepeatable(self._executor))
        self._memory = np.empty(self._bytes.value + 1, np.uint8)
        self._workspace = ctypes.c_void_p(self._memory.ctypes.data)
        self._new_bytes, self._new_executor = ctypes.c_uint64(), ctypes.c_void_p()

    def run(self) -> None:
        """Phase 2."""
        status = self._phase_2(self._workspace, self._bytes, self._executor, None)
        if status:
            self._check(status)

    def run_nothing(self) -> None:
        """The way to phase 2 and back without it: what `run` takes that is Python's."""
        self._nothing(self._workspace, self._bytes, self._executor, None)

    def run_both_phases(self) -> None:
        """Phase 1, then phase 2, which consumes the executor."""
        self._make_executor(self._new_bytes, self._new_executor)
        self._check(self._phase_2(self._workspace, self._new_bytes, self._new_executor, None))

    def outputs(self, tokens: np.ndarray) -> Outputs:
        """q rows, and the pieces of each token's k and v."""
        shape, dtype = self._workload.shape, self._workload.dtype
        block, row = np.divmod(self._workload.slots[tokens], BLOCK_SIZE)
        kv = (len(tokens), shape.kv_heads, shape.head_dim)
        return Outputs(
            widen(self._q[tokens], dtype).reshape(len(tokens), shape.q_heads, shape.head_dim),
            widen(self._k_cache[block, :, row], dtype).reshape(kv),
            widen(self._v_cache[block, :, row], dtype).reshape(kv))

    def close(self) -> None:
        """Destroys what the library made."""
        self._library.aclDestroyAclOpExecutor(self._executor)
        for tensor in self._tensors:
            self._library.aclDestroyTensor(tensor)
        for array in (self._sizes, self._heads):
            self._library.aclDestroyIntArray(array)

    def _make_executor(self, size: ctypes.c_uint64, executor: ctypes.c_void_p) -> None:
        self._check(self._phase_1(*self._phase_1_arguments, size, executor))

    def _tensor(self, array: np.ndarray) -> int:
        assert array.flags.c_contiguous
        dims = (ctypes.c_int64 * array.ndim)(*array.shape)
        dtype = ACL_INT64 if array.dtype == np.int64 else ACL_DTYPE[self._workload.dtype]
        return self._library.aclCreateTensor(dims, array.ndim, dtype, None, 0, ACL_FORMAT_ND, dims,
                                             array.ndim, array.ctypes.data)

    def _int_array(self, values: list[int]) -> int:
        return self._library.aclCreateIntArray((ctypes.c_int64 * len(values))(*values),
                                               len(values))

    def _check(self, status: int) -> None:
        if status:
            raise RuntimeError(f"{status}: {self._library.aclGetRecentErrMsg().decode()}")
