"""Small models of Hugging Face transformers with random weights, with qkvfuse and without it."""

from __future__ import annotations

import importlib
from typing import Any

import torch
import transformers

from qkvfuse.integrations.transformers import patch

FAMILIES = ("qwen3", "llama", "gemma3")
DIM, LENGTH, NEW = 32, 24, 10
LOGITS = 5e-6  # largest difference of fp32 logits, as a part of the largest logit


def library_of(family: str) -> Any:
    return importlib.import_module(f"transformers.models.{family}.modeling_{family}")


def model_of(family: str, dtype: Any = None, **changes: Any) -> Any:
    """Three layers of this class, whose weights are large enough that attention matters."""
    fields: dict[str, Any] = {
        "vocab_size": 97,
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": DIM,
        "max_position_embeddings": 128,
        "initializer_range": 0.15,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "pad_token_id": 0,
        "tie_word_embeddings": False,
        "attn_implementation": "eager",
    }
    if family == "gemma3":
        fields |= {
            "query_pre_attn_scalar": DIM,
            "sliding_window": 8,
            "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
        }
    names = {
        "qwen3": ("Qwen3Config", "Qwen3ForCausalLM"),
        "llama": ("LlamaConfig", "LlamaForCausalLM"),
        "gemma3": ("Gemma3TextConfig", "Gemma3ForCausalLM"),
    }[family]
    config, kind = (getattr(transformers, name) for name in names)
    torch.manual_seed(7)
    model = kind(config(**(fields | changes))).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("norm.weight"):
                parameter += torch.empty_like(parameter).uniform_(-0.5, 0.5)
    return model.to(dtype or torch.float32)


def tokens_of(batch: int = 2, length: int = LENGTH) -> Any:
    return torch.randint(3, 97, (batch, length), generator=torch.Generator().manual_seed(3))


def assert_close(found: Any, expected: Any, part: float = LOGITS) -> None:
    largest = expected.abs().max()
    assert largest > 0.5 and (found - expected).abs().max() <= part * largest


def both(model: Any, *arguments: Any, **keywords: Any) -> tuple[Any, Any]:
    """Logits without and with qkvfuse."""
    plain = model(*arguments, **keywords).logits
    with patch(model):
        return plain, model(*arguments, **keywords).logits


def generated(model: Any, tokens: Any, **options: Any) -> tuple[Any, Any]:
    """Tokens without and with qkvfuse, the new ones behind the given ones."""
    options = {"do_sample": False, "max_new_tokens": NEW, "min_new_tokens": NEW} | options
    plain = model.generate(tokens, **options)
    with patch(model):
        return plain, model.generate(tokens, **options)
