"""The operators in NumPy, written from the documents alone: an oracle for the compiled library.

It shares no code with the library or with its C++ references, and takes the same Specs and arrays,
so that what two independent readings of docs/numerics.md compute can be compared byte by byte:

    spec = qkvfuse.Spec("bfloat16", (32, 8, 8), 128, q_norm="per_head")
    qkvfuse.reference.run(spec, x=x, q_gamma=gamma, cos=cos, sin=sin, q_out=q)

Use it to learn what an operator does, to test against, and to measure errors: `evaluate` computes
in float32 to the bit, or in float64. It is not fast, and it does not refuse all that the library
refuses. It needs NumPy and ml_dtypes only.
"""

from .ascend import npu_dequant_rope_quant_kvcache, npu_qkv_rms_norm_rope_cache
from .operands import Operand, operands
from .operators import Heads, evaluate, measure, run
from .read_back import read_cache

__all__ = [
    "Heads",
    "Operand",
    "evaluate",
    "measure",
    "npu_dequant_rope_quant_kvcache",
    "npu_qkv_rms_norm_rope_cache",
    "operands",
    "read_cache",
    "run",
]
