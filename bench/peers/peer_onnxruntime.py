"""onnxruntime's CPU provider as a peer: a graph of standard and contributed operators, with inputs,
outputs and caches bound to fixed memory."""
from __future__ import annotations

import numpy as np
import onnxruntime
from onnx import TensorProto, helper

from workload import EPSILON, Outputs, Session, Shape, Workload, widen

CONTRIBUTED = "com.microsoft"


def _norm_and_rope(part: str, heads: int, shape: Shape) -> tuple[list, dict[str, np.ndarray]]:
    """Nodes from <part>_raw [tokens, heads*head_dim] to <part>_rotated [1, tokens, the same], and
    the shapes that they need as constants."""
    by_head, row = f"{part}_by_head", heads * shape.head_dim
    nodes = [
        helper.make_node("Reshape", [f"{part}_raw", f"{part}_heads"], [by_head]),
        helper.make_node("SimplifiedLayerNormalization", [by_head, f"{part}_gamma"],
                         [f"{part}_normed"], axis=-1, epsilon=EPSILON, stash_type=1),
        helper.make_node("Reshape", [f"{part}_normed", f"{part}_row"], [f"{part}_flat"]),
        helper.make_node("RotaryEmbedding", [f"{part}_flat", "positions", "cos", "sin"],
                         [f"{part}_rotated"], domain=CONTRIBUTED, interleaved=0,
                         num_heads=heads, rotary_embedding_dim=0),
    ]
    shapes = {f"{part}_heads": np.array([-1, heads, shape.head_dim]),
              f"{part}_row": np.array([1, -1, row])}
    return nodes, shapes


def _constant(name: str, values: np.ndarray):
    dtype = TensorProto.INT64 if values.dtype == np.int64 else TensorProto.FLOAT
    return helper.make_tensor(name, dtype, values.shape, values.tobytes(), raw=True)


def build_model(workload: Workload) -> bytes:
    """The graph of one case: qkv and q fp32, caches f16 [rows, kv_heads*head_dim]."""
    shape, tokens = workload.shape, workload.tokens
    q_row, kv_row = shape.q_heads * shape.head_dim, shape.kv_heads * shape.head_dim
    nodes = [helper.make_node("Split", ["qkv", "widths"], ["q_raw", "k_raw", "v_raw"], axis=1)]
    constants = {"widths": np.array([q_row, kv_row, kv_row]), "kv_row": np.array([-1, kv_row])}
    for name in ("q_gamma", "k_gamma"):
        constants[name] = widen(getattr(workload, name), workload.dtype)
    constants["cos"] = widen(workload.cos_half, workload.dtype)
    constants["sin"] = widen(workload.sin_half, workload.dtype)
    for part, heads in (("q", shape.q_heads), ("k", shape.kv_heads)):
        part_nodes, part_constants = _norm_and_rope(part, heads, shape)
        nodes += part_nodes
        constants |= part_constants
    nodes.append(helper.make_node("Reshape", ["k_rotated", "kv_row"], ["k_out"]))
    for part, source in (("k", "k_out"), ("v", "v_raw")):
        nodes.append(helper.make_node("Cast", [source], [f"{part}_half"], to=TensorProto.FLOAT16))
        nodes.append(helper.make_node(
            "ScatterND", [f"{part}_cache", "slots", f"{part}_half"], [f"{part}_cache_out"]))

    cache = [workload.cache_rows, kv_row]
    half, value = TensorProto.FLOAT16, helper.make_tensor_value_info
    inputs = [value("qkv", TensorProto.FLOAT, [tokens, shape.heads * shape.head_dim]),
              value("positions", TensorProto.INT64, [1, tokens]),
              value("slots", TensorProto.INT64, [tokens, 1]),
              value("k_cache", half, cache), value("v_cache", half, cache)]
    outputs = [value("q_rotated", TensorProto.FLOAT, [1, tokens, q_row]),
               value("k_cache_out", half, cache), value("v_cache_out", half, cache)]
    graph = helper.make_graph(nodes, "prologue", inputs, outputs,
                              [_constant(name, array) for name, array in constants.items()])
    model = helper.make_model(graph, ir_version=10, opset_imports=[
        helper.make_opsetid("", 18), helper.make_opsetid(CONTRIBUTED, 1)])
    return model.SerializeToString()


class OnnxruntimeSession(Session):
    """Each cache is bound as an input and, at the same address, as the output of its ScatterND,
    which then writes only the rows of the call."""

    def __init__(self, workload: Workload, threads: int) -> None:
        shape, tokens = workload.shape, workload.tokens
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
        self._workload = workload
        self._session = onnxruntime.InferenceSession(build_model(workload), options,
                                                     providers=["CPUExecutionProvider"])
        cache = (workload.cache_rows, shape.kv_heads * shape.head_dim)
        arrays = {
            "qkv": widen(workload.qkv, workload.dtype),
            "positions": workload.positions.reshape(1, tokens),
            "slots": workload.slots.reshape(tokens, 1),
            "k_cache": np.zeros(cache, np.float16),
            "v_cache": np.zeros(cache, np.float16),
            "q_rotated": np.zeros((1, tokens, shape.q_heads * shape.head_dim), np.float32),
        }
        self._values = {name: onnxruntime.OrtValue.ortvalue_from_numpy(array)
                        for name, array in arrays.items()}
        self._binding = self._session.io_binding()
        for name in ("qkv", "positions", "slots", "k_cache", "v_cache"):
            self._binding.bind_ortvalue_input(name, self._values[name])
        self._binding.bind_ortvalue_output("q_rotated", self._values["q_rotated"])
        for name in ("k_cache", "v_cache"):
            self._binding.bind_ortvalue_output(f"{name}_out", self._values[name])

    def run(self) -> None:
        """Runs the graph on the bound memory."""
        self._session.run_with_iobinding(self._binding)

    def outputs(self, tokens: np.ndarray) -> Outputs:
        """Rows of q and of the caches."""
        shape, slots = self._workload.shape, self._workload.slots[tokens]
        kv = (len(tokens), shape.kv_heads, shape.head_dim)
        q = self._values["q_rotated"].numpy()[0, tokens]
        k, v = (self._values[name].numpy()[slots].astype(np.float32).reshape(kv)
                for name in ("k_cache", "v_cache"))
        return Outputs(q.reshape(len(tokens), shape.q_heads, shape.head_dim), k, v)


def open_onnxruntime(workload: Workload, threads: int) -> OnnxruntimeSession:
    """A case for onnxruntime."""
    return OnnxruntimeSession(workload, threads)
