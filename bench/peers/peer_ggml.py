"""ggml's CPU backend as a peer: one graph of nodes, built and allocated once, computed by every
call. QKVFUSE_PEER_GGML names a folder of another build of libggml-base and libggml-cpu to take."""
from __future__ import annotations

import ctypes
import importlib.util
import os
import pathlib

import numpy as np

from workload import EPSILON, ROPE_BASE, Outputs, Session, Workload, widen

FOLDER_VARIABLE = "QKVFUSE_PEER_GGML"
_F32, _F16, _I32, _I64 = 0, 1, 26, 27
_ROPE_NEOX = 2  # halves
_MAX_TENSORS = 64
_HANDLE, _COUNT, _SIZE = ctypes.c_void_p, ctypes.c_int64, ctypes.c_size_t


class _InitParams(ctypes.Structure):
    _fields_ = [("mem_size", _SIZE), ("mem_buffer", _HANDLE), ("no_alloc", ctypes.c_bool)]


class _ComputePlan(ctypes.Structure):
    _fields_ = [("work_size", _SIZE), ("work_data", _HANDLE), ("n_threads", ctypes.c_int),
                ("threadpool", _HANDLE), ("abort_callback", _HANDLE),
                ("abort_callback_data", _HANDLE), ("use_ref", ctypes.c_bool)]


class _ThreadpoolParams(ctypes.Structure):
    _fields_ = [("cpumask", ctypes.c_bool * 512), ("n_threads", ctypes.c_int),
                ("prio", ctypes.c_int), ("poll", ctypes.c_uint32), ("strict_cpu", ctypes.c_bool),
                ("paused", ctypes.c_bool)]


# Name -> result and parameters, as in ggml.h, ggml-alloc.h, ggml-backend.h and ggml-cpu.h.
_BASE_FUNCTIONS = {
    "ggml_tensor_overhead": (_SIZE, []),
    "ggml_graph_overhead": (_SIZE, []),
    "ggml_init": (_HANDLE, [_InitParams]),
    "ggml_new_graph": (_HANDLE, [_HANDLE]),
    "ggml_new_tensor_1d": (_HANDLE, [_HANDLE, ctypes.c_int, _COUNT]),
    "ggml_new_tensor_2d": (_HANDLE, [_HANDLE, ctypes.c_int, _COUNT, _COUNT]),
    "ggml_view_2d": (_HANDLE, [_HANDLE, _HANDLE, _COUNT, _COUNT, _SIZE, _SIZE]),
    "ggml_view_3d": (_HANDLE, [_HANDLE, _HANDLE, _COUNT, _COUNT, _COUNT, _SIZE, _SIZE, _SIZE]),
    "ggml_reshape_2d": (_HANDLE, [_HANDLE, _HANDLE, _COUNT, _COUNT]),
    "ggml_rms_norm": (_HANDLE, [_HANDLE, _HANDLE, ctypes.c_float]),
    "ggml_mul": (_HANDLE, [_HANDLE, _HANDLE, _HANDLE]),
    "ggml_rope_ext": (_HANDLE, [_HANDLE] * 4 + [ctypes.c_int] * 3 + [ctypes.c_float] * 6),
    "ggml_set_rows": (_HANDLE, [_HANDLE] * 4),
    "ggml_set_output": (None, [_HANDLE]),
    "ggml_build_forward_expand": (None, [_HANDLE, _HANDLE]),
    "ggml_get_data": (_HANDLE, [_HANDLE]),
    "ggml_backend_cpu_buffer_type": (_HANDLE, []),
    "ggml_backend_alloc_ctx_tensors_from_buft": (_HANDLE, [_HANDLE, _HANDLE]),
    "ggml_backend_buffer_free": (None, [_HANDLE]),
    "ggml_gallocr_new": (_HANDLE, [_HANDLE]),
    "ggml_gallocr_alloc_graph": (ctypes.c_bool, [_HANDLE, _HANDLE]),
    "ggml_gallocr_free": (None, [_HANDLE]),
    "ggml_free": (None, [_HANDLE]),
    "ggml_threadpool_params_default": (_ThreadpoolParams, [ctypes.c_int]),
}
_CPU_FUNCTIONS = {
    "ggml_cpu_init": (None, []),
    "ggml_threadpool_new": (_HANDLE, [ctypes.POINTER(_ThreadpoolParams)]),
    "ggml_threadpool_pause": (None, [_HANDLE]),
    "ggml_threadpool_free": (None, [_HANDLE]),
    "ggml_graph_plan": (_ComputePlan, [_HANDLE, ctypes.c_int, _HANDLE]),
    "ggml_graph_compute": (ctypes.c_int, [_HANDLE, ctypes.POINTER(_ComputePlan)]),
}


class _Ggml:
    """Both libraries' functions, without the prefix ggml_."""

    def __init__(self) -> None:
        folder = os.environ.get(FOLDER_VARIABLE)
        if folder is None:
            package = importlib.util.find_spec("libggml").submodule_search_locations[0]
            folder = str(next(pathlib.Path(package).glob("lib*/libggml-base.so")).parent)
        for name, functions in (("base", _BASE_FUNCTIONS), ("cpu", _CPU_FUNCTIONS)):
            library = ctypes.CDLL(os.path.join(folder, f"libggml-{name}.so"),
                                  mode=ctypes.RTLD_GLOBAL)
            for function, (result, parameters) in functions.items():
                entry = getattr(library, function)
                entry.restype, entry.argtypes = result, parameters
                setattr(self, function.removeprefix("ggml_"), entry)
        self.cpu_init()


class GgmlSession(Session):
    """qkv fp32, q fp32, caches f16 [rows, kv_heads*head_dim]. Data that outlives a call is in one
    context; the nodes' memory is planned by ggml's graph allocator, which reuses it."""

    def __init__(self, workload: Workload, threads: int) -> None:
        self._ggml, self._workload = _Ggml(), workload
        self._data, self._nodes = self._context(), self._context()
        self._graph = self._ggml.new_graph(self._nodes)
        self._build()
        buffer_type = self._ggml.backend_cpu_buffer_type()
        self._buffer = self._ggml.backend_alloc_ctx_tensors_from_buft(self._data, buffer_type)
        self._allocator = self._ggml.gallocr_new(buffer_type)
        if not self._ggml.gallocr_alloc_graph(self._allocator, self._graph):
            raise MemoryError("ggml could not allocate its graph")
        self._fill()
        params = self._ggml.threadpool_params_default(threads)
        self._pool = self._ggml.threadpool_new(ctypes.byref(params))
        self._plan = self._ggml.graph_plan(self._graph, threads, self._pool)
        self._work = np.empty(self._plan.work_size + 64, np.uint8)
        self._plan.work_data = self._work.ctypes.data
        self._plan_pointer = ctypes.pointer(self._plan)

    def run(self) -> None:
        """Computes the graph."""
        status = self._ggml.graph_compute(self._graph, self._plan_pointer)
        if status:
            raise RuntimeError(f"ggml_graph_compute returned {status}")

    def rest(self) -> None:
        """Stops the workers' polling; the next computation wakes them."""
        self._ggml.threadpool_pause(self._pool)

    def outputs(self, tokens: np.ndarray) -> Outputs:
        """Rows of q and of the caches."""
        shape, slots = self._workload.shape, self._workload.slots[tokens]
        q = self._view(self._q, np.float32, (self._workload.tokens, shape.q_heads, shape.head_dim))
        cache = (self._workload.cache_rows, shape.kv_heads, shape.head_dim)
        k, v = (self._view(tensor, np.float16, cache)[slots].astype(np.float32)
                for tensor in (self._k_cache, self._v_cache))
        return Outputs(q[tokens].copy(), k, v)

    def close(self) -> None:
        """Frees threads and memory."""
        self._ggml.threadpool_free(self._pool)
        self._ggml.gallocr_free(self._allocator)
        self._ggml.backend_buffer_free(self._buffer)
        self._ggml.free(self._nodes)
        self._ggml.free(self._data)

    def _context(self) -> int:
        size = _MAX_TENSORS * self._ggml.tensor_overhead() + self._ggml.graph_overhead()
        return self._ggml.init(_InitParams(size, None, True))

    def _build(self) -> None:
        """Tensors of the case, then the nodes that write q, k and v."""
        ggml, shape, tokens = self._ggml, self._workload.shape, self._workload.tokens
        kv_row, rows = shape.kv_heads * shape.head_dim, self._workload.cache_rows
        row = shape.heads * shape.head_dim
        self._qkv = ggml.new_tensor_2d(self._data, _F32, row, tokens)
        self._q_gamma = ggml.new_tensor_1d(self._data, _F32, shape.head_dim)
        self._k_gamma = ggml.new_tensor_1d(self._data, _F32, shape.head_dim)
        self._positions = ggml.new_tensor_1d(self._data, _I32, tokens)
        self._slots = ggml.new_tensor_1d(self._data, _I64, tokens)
        self._k_cache = ggml.new_tensor_2d(self._data, _F16, kv_row, rows)
        self._v_cache = ggml.new_tensor_2d(self._data, _F16, kv_row, rows)

        self._q = self._norm_and_rope(0, shape.q_heads, self._q_gamma)
        ggml.set_output(self._q)
        k = self._norm_and_rope(shape.q_heads, shape.kv_heads, self._k_gamma)
        v = ggml.view_2d(self._nodes, self._qkv, kv_row, tokens, 4 * row, 4 * (row - kv_row))
        ggml.build_forward_expand(self._graph, self._q)
        for cache, values in ((self._k_cache, k), (self._v_cache, v)):
            flat = ggml.reshape_2d(self._nodes, values, kv_row, tokens) if values == k else values
            ggml.build_forward_expand(
                self._graph, ggml.set_rows(self._nodes, cache, flat, self._slots))

    def _norm_and_rope(self, first_head: int, heads: int, gamma: int) -> int:
        """The node of some heads of qkv after norm and rotation: [tokens, heads, head_dim]."""
        ggml, shape, nodes = self._ggml, self._workload.shape, self._nodes
        head_bytes = 4 * shape.head_dim
        part = ggml.view_3d(nodes, self._qkv, shape.head_dim, heads, self._workload.tokens,
                            head_bytes, shape.heads * head_bytes, first_head * head_bytes)
        normed = ggml.mul(nodes, ggml.rms_norm(nodes, part, EPSILON), gamma)
        return ggml.rope_ext(nodes, normed, self._positions, None, shape.head_dim, _ROPE_NEOX, 0,
                             ROPE_BASE, 1.0, 0.0, 1.0, 0.0, 0.0)

    def _fill(self) -> None:
        workload = self._workload
        for tensor, bits in ((self._qkv, workload.qkv), (self._q_gamma, workload.q_gamma),
                             (self._k_gamma, workload.k_gamma)):
            self._view(tensor, np.float32, bits.shape)[:] = widen(bits, workload.dtype)
        self._view(self._positions, np.int32, (workload.tokens,))[:] = workload.positions
        self._view(self._slots, np.int64, (workload.tokens,))[:] = workload.slots

    def _view(self, tensor: int, dtype: type, shape: tuple[int, ...]) -> np.ndarray:
        """A tensor's memory as an array."""
        size = int(np.prod(shape)) * np.dtype(dtype).itemsize
        memory = (ctypes.c_uint8 * size).from_address(self._ggml.get_data(tensor))
        return np.frombuffer(memory, dtype).reshape(shape)


def open_ggml(workload: Workload, threads: int) -> GgmlSession:
    """A case for ggml."""
    return GgmlSession(workload, threads)
