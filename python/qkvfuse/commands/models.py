"""The config.json of a few published models, as far as it concerns q, k and v: rows of `bench`."""

from __future__ import annotations

from typing import Any

CONFIGS: dict[str, dict[str, Any]] = {
    # https://huggingface.co/Qwen/Qwen3-8B
    "qwen3-8b": {
        "model_type": "qwen3",
        "num_hidden_layers": 36,
        "hidden_size": 4096,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "rms_norm_eps": 1e-6,
        "rope_theta": 1000000,
        "max_position_embeddings": 40960,
        "attention_bias": False,
        "torch_dtype": "bfloat16",
    },
    # https://huggingface.co/meta-llama/Llama-3.1-8B
    "llama3-8b": {
        "model_type": "llama",
        "num_hidden_layers": 32,
        "hidden_size": 4096,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "rope_theta": 500000,
        "rope_scaling": {
            "rope_type": "llama3",
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192,
        },
        "max_position_embeddings": 131072,
        "torch_dtype": "bfloat16",
    },
    # https://huggingface.co/google/gemma-3-4b-it
    "gemma3-4b": {
        "model_type": "gemma3_text",
        "num_hidden_layers": 34,
        "hidden_size": 2560,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "rope_scaling": {"rope_type": "linear", "factor": 8.0},
        "torch_dtype": "bfloat16",
    },
    # https://huggingface.co/zai-org/GLM-4-9B-0414
    "glm4-9b": {
        "model_type": "glm4",
        "num_hidden_layers": 40,
        "hidden_size": 4096,
        "num_attention_heads": 32,
        "num_key_value_heads": 2,
        "head_dim": 128,
        "partial_rotary_factor": 0.5,
        "attention_bias": False,
        "max_position_embeddings": 32768,
        "torch_dtype": "bfloat16",
    },
}
