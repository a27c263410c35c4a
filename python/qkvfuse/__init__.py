"""qkvfuse: everything between the QKV projection and attention in LLM inference, in one pass.

Dequantise, split, RMSNorm, RoPE, quantise, scatter into the KV cache, on NumPy arrays, torch CPU
tensors and whatever else has DLPack or the buffer protocol; the same bits on every processor.

    Plan, Spec, Norm, Rope, Dense, Cache, Slots    the general operator: any model, any cache
    npu_qkv_rms_norm_rope_cache,
    npu_dequant_rope_quant_kvcache                 the operators of Ascend, as torch_npu has them
    read_cache, convert_pages, copy_pages          caches back to floats, pages to other caches
    calibrate, Calibrator                          scales and offsets from real keys and values
    rope_table, RopeTable, spec_from_config        tables of cos and sin, Specs of published models
    qkvfuse.reference                              an independent oracle in NumPy
    qkvfuse.torch                                  torch.ops.qkvfuse.*, for torch.compile

`python -m qkvfuse --help` lists the commands. Documentation: docs/python.md.
"""

from . import reference
from ._calibrate import Calibration, Calibrator, calibrate
from ._core import available_targets, version
from ._layouts import LAYOUTS
from ._pages import CacheView, convert_pages, copy_pages, read_cache
from ._plan import Arrays, Operand, Plan, Traffic
from ._spec import Cache, Dense, Norm, Rope, RopeScaling, RopeTable, Slots, Spec
from ._tables import (
    Model,
    rope_attention_factor,
    rope_frequencies,
    rope_table,
    spec_from_config,
)
from ._upstream import npu_dequant_rope_quant_kvcache, npu_qkv_rms_norm_rope_cache
from ._words import (
    DType,
    Gamma,
    Granularity,
    NormKind,
    NormOrder,
    Pairing,
    ScaleRule,
    ScalingKind,
    Sections,
    SlotMode,
    Table,
)

__version__ = version()

__all__ = [
    "Arrays",
    "Cache",
    "CacheView",
    "Calibration",
    "Calibrator",
    "DType",
    "Dense",
    "Gamma",
    "Granularity",
    "LAYOUTS",
    "Model",
    "Norm",
    "NormKind",
    "NormOrder",
    "Operand",
    "Pairing",
    "Plan",
    "Rope",
    "RopeScaling",
    "RopeTable",
    "ScaleRule",
    "ScalingKind",
    "Sections",
    "SlotMode",
    "Slots",
    "Spec",
    "Table",
    "Traffic",
    "available_targets",
    "calibrate",
    "convert_pages",
    "copy_pages",
    "npu_dequant_rope_quant_kvcache",
    "npu_qkv_rms_norm_rope_cache",
    "read_cache",
    "reference",
    "rope_attention_factor",
    "rope_frequencies",
    "rope_table",
    "spec_from_config",
]
