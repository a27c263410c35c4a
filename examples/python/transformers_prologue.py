"""Times the attention prologue of a Hugging Face model, before and after qkvfuse.

One layer of Qwen3-0.6B's attention (16 query and 8 key and value heads of 128 channels, 1024
channels wide) with random weights. "prologue" is what lies between the projections and the cache:
the norms of q and k and their rotation; "layer" is the whole attention module without a cache, its
projections and SDPA included. Both ways are timed in turns in one process; a line shows their
medians and, in brackets, the quartiles. First, what they compute is compared.

Usage: transformers_prologue.py [--rounds N] [--threads N]      (needs PyTorch and transformers)
"""

import argparse
import importlib
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from qkvfuse.integrations.transformers import Prologue, patch

# As Any, since type checkers would read all of transformers.
library: Any = importlib.import_module("transformers.models.qwen3.modeling_qwen3")

CONFIG = {
    "hidden_size": 1024,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "intermediate_size": 64,
    "num_hidden_layers": 1,
    "vocab_size": 64,
    "attn_implementation": "sdpa",
    "pad_token_id": 0,
}
SHAPES = {"decode": ((1, 1), (8, 1), (32, 1)), "prefill": ((1, 512),)}
ALLOWED = 0.02  # of the largest value: the roundings of bfloat16
Call = Callable[[], tuple[Any, ...]]


def spread(times: list[float]) -> str:
    low, middle, high = np.quantile(times, [0.25, 0.5, 0.75]) * 1e6
    return f"{middle:8.0f} [{low:.0f}, {high:.0f}]"


def compare(name: str, calls: tuple[Call, Call], rounds: int) -> str:
    """A line of the table: microseconds of both calls, which take turns."""
    outputs = [call() for call in calls]
    for theirs, ours in zip(*outputs, strict=True):
        if theirs is not None:
            assert (theirs - ours).abs().max() <= ALLOWED * theirs.abs().max(), name
    repeats = max(1, round(2e-3 / seconds(calls[0], 1)))
    times = [[seconds(call, repeats) for call in calls] for _ in range(rounds)]
    before, after = (list(column) for column in zip(*times, strict=True))
    ratio = np.median(before) / np.median(after)
    return f"{name:36}{spread(before):>24}{spread(after):>24}{ratio:8.2f}"


def seconds(call: Call, repeats: int) -> float:
    start = time.perf_counter()
    for _ in range(repeats):
        call()
    return (time.perf_counter() - start) / repeats


def prologues(module: Any, q: Any, k: Any, cos: Any, sin: Any) -> tuple[Call, Call]:
    """Norm and rotation as transformers writes them, and ours."""
    heads = (*q.shape[:-1], -1, module.head_dim)

    def theirs() -> tuple[Any, ...]:
        normed_q = module.q_norm(q.view(heads)).transpose(1, 2)
        normed_k = module.k_norm(k.view(heads)).transpose(1, 2)
        return tuple(library.apply_rotary_pos_emb(normed_q, normed_k, cos, sin))

    prologue = Prologue(module)
    return theirs, lambda: prologue(q, k, cos, sin)


def layers(model: Any, hidden: Any, cos: Any, sin: Any) -> tuple[Call, Call]:
    """The attention module as it is, and patched."""
    module = model.model.layers[0].self_attn
    theirs = module.forward
    with patch(model):
        ours = module.forward
    return lambda: theirs(hidden, (cos, sin), None), lambda: ours(hidden, (cos, sin), None)


def main() -> None:
    parser = argparse.ArgumentParser(description="Times the attention prologue.")
    parser.add_argument("--rounds", type=int, default=60, help="turns of each line")
    parser.add_argument("--threads", type=int, default=1, help="of PyTorch and of qkvfuse")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(0)
    print(f"{'microseconds, median [quartiles]':36}{'transformers':>24}{'qkvfuse':>24}{'ratio':>8}")
    for dtype in (torch.bfloat16, torch.float32):
        model = library.Qwen3ForCausalLM(library.Qwen3Config(**CONFIG)).eval().to(dtype)
        module = model.model.layers[0].self_attn
        for phase, shapes in SHAPES.items():
            for batch, length in shapes:
                hidden = torch.randn(batch, length, 1024).to(dtype)
                cos, sin = model.model.rotary_emb(hidden, torch.arange(length)[None] + 100)
                q, k = module.q_proj(hidden), module.k_proj(hidden)
                what = f"{str(dtype)[6:]:9}{phase} {batch} x {length}"
                calls = prologues(module, q, k, cos, sin)
                print(compare(f"{what:25}prologue", calls, arguments.rounds))
                calls = layers(model, hidden, cos, sin)
                print(compare(f"{what:25}layer", calls, arguments.rounds))


if __name__ == "__main__":
    with torch.no_grad():
        main()
