"""Patching Hugging Face models: what is called and restored, what may change, what is refused."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from typing import Any

import pytest

import qkvfuse

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
from qkvfuse.integrations.transformers import Prologue, patch  # noqa: E402
from transformers_models import (  # noqa: E402
    DIM,
    FAMILIES,
    LOGITS,
    assert_close,
    library_of,
    model_of,
    tokens_of,
)


@pytest.fixture(autouse=True)
def _without_gradients() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # the models are too small for more
    with torch.no_grad():
        yield
    torch.set_num_threads(threads)


@pytest.mark.parametrize("family", FAMILIES)
def test_ours_is_called_and_theirs_is_not(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, calls = model_of(family), {"ours": 0, "theirs": 0}
    library, run = library_of(family), qkvfuse.Plan.run
    rotate = library.apply_rotary_pos_emb

    def counted_run(*arguments: Any, **keywords: Any) -> None:
        calls["ours"] += 1
        run(*arguments, **keywords)

    def counted_rotate(*arguments: Any, **keywords: Any) -> Any:
        calls["theirs"] += 1
        return rotate(*arguments, **keywords)

    monkeypatch.setattr(qkvfuse.Plan, "run", counted_run)
    monkeypatch.setattr(library, "apply_rotary_pos_emb", counted_rotate)
    with patch(model) as patched:
        assert patched.names == tuple(f"model.layers.{layer}.self_attn" for layer in range(3))
        model(tokens_of())
        assert calls == {"ours": 3, "theirs": 0}
    model(tokens_of())
    assert calls == {"ours": 3, "theirs": 3} and patched.names == ()


def test_restore_gives_the_same_bits_and_may_be_called_again() -> None:
    model = model_of("qwen3")
    before = model(tokens_of()).logits
    patched = patch(model)
    assert not torch.equal(model(tokens_of()).logits, before)
    patched.restore()
    patched.restore()
    assert torch.equal(model(tokens_of()).logits, before)
    assert all("forward" not in vars(layer.self_attn) for layer in model.model.layers)
    patch(model).restore()


def test_a_failure_within_the_context_restores() -> None:
    model = model_of("llama")
    with pytest.raises(KeyError), patch(model):
        raise KeyError
    assert "forward" not in vars(model.model.layers[0].self_attn)


def test_restore_refuses_what_was_replaced_later() -> None:
    model = model_of("llama")
    patched = patch(model)
    model.model.layers[1].self_attn.forward = None
    with pytest.raises(RuntimeError, match=r"layers.1.self_attn: its forward was replaced after"):
        patched.restore()
    assert "forward" in vars(model.model.layers[0].self_attn)


def test_a_patched_model_may_change() -> None:
    """Its dtype, its weights, or be copied: nothing of it is kept but the plans."""
    model = model_of("qwen3")
    with patch(model):
        first = model(tokens_of()).logits
        model.model.layers[0].self_attn.q_norm.weight.mul_(1.5)
        second = model(tokens_of()).logits
        copied = copy.deepcopy(model)
        assert torch.equal(copied(tokens_of()).logits, second)
        model.model.layers[0].self_attn.q_norm.weight.mul_(1.5)
        assert torch.equal(copied(tokens_of()).logits, second)
        assert model.bfloat16()(tokens_of()).logits.dtype == torch.bfloat16
    assert (second - first).abs().max() > 10 * LOGITS * first.abs().max()


def test_inference_mode_and_dropout() -> None:
    model = model_of("qwen3", attention_dropout=0.5).train()
    with torch.inference_mode():
        torch.manual_seed(5)
        plain = model(tokens_of()).logits
        with patch(model):
            torch.manual_seed(5)
            assert_close(model(tokens_of()).logits, plain)
            assert (model(tokens_of()).logits - plain).abs().max() > 0.01


def test_compile_of_a_module() -> None:
    model = model_of("gemma3")
    module = model.model.layers[0].self_attn
    generator = torch.Generator().manual_seed(1)
    hidden = torch.randn(2, 5, 64, generator=generator)
    angles = torch.randn(1, 5, DIM, generator=generator)
    with patch(model):
        compiled = torch.compile(module, fullgraph=True, backend="aot_eager")
        arguments = (hidden, (angles.cos(), angles.sin()), None)
        assert torch.equal(compiled(*arguments)[0], module(*arguments)[0])


def test_gradients_are_refused() -> None:
    model = model_of("llama")
    with patch(model), torch.enable_grad():
        with pytest.raises(RuntimeError, match="attention: gradients are enabled, must be off"):
            model(tokens_of())
        model.requires_grad_(False)
        model(tokens_of())
    model.requires_grad_(True)
    with torch.enable_grad():
        model(tokens_of()).logits.sum().backward()
    assert model.model.layers[0].self_attn.q_proj.weight.grad is not None


def test_other_models_are_refused() -> None:
    config = transformers.GPT2Config(n_layer=1, n_head=2, n_embd=32, vocab_size=97)
    allowed = "must contain one of LlamaAttention, Qwen3Attention, Gemma3Attention"
    with pytest.raises(ValueError, match=f"model: is a GPT2LMHeadModel, {allowed}"):
        patch(transformers.GPT2LMHeadModel(config))
    library = library_of("llama")
    subclass = type("OtherAttention", (library.LlamaAttention,), {})
    with pytest.raises(ValueError, match="attention: is a OtherAttention, must be one of Llama"):
        Prologue(subclass(model_of("llama").config, 0))


@pytest.mark.parametrize("version", ["4.56.2", "5.25.0", "6.0"])
def test_other_versions_are_refused(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = model_of("llama")
    monkeypatch.setattr("importlib.metadata.version", lambda _: version)
    with pytest.raises(ValueError, match=rf"transformers: is {version}, must be from 4.57 to 5.24"):
        patch(model)
    assert "forward" not in vars(model.model.layers[0].self_attn)


def test_other_modules_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    model = model_of("qwen3")
    with patch(model), pytest.raises(ValueError, match="its forward is a _Forward, must be its"):
        patch(model)
    model.model.layers[1].self_attn.k_norm = torch.nn.RMSNorm(DIM)
    with pytest.raises(ValueError, match=r"k_norm: is a torch.*RMSNorm, must be a .*Qwen3RMSNorm"):
        patch(model)
    assert "forward" not in vars(model.model.layers[0].self_attn)
    with pytest.raises(ValueError, match="attention: its weights are on meta, must be on cpu"):
        patch(model_of("llama").to("meta"))
    monkeypatch.setattr(library_of("llama").LlamaAttention, "forward", lambda self, x, memory: x)
    with pytest.raises(ValueError, match=r"LlamaAttention.forward: has the parameters memory, x, "):
        patch(model_of("llama"))


def test_mixed_types_are_refused() -> None:
    model = model_of("qwen3", torch.bfloat16)
    model.model.layers[0].self_attn.q_norm.float()
    with patch(model), pytest.raises(TypeError, match="q_gamma: type is float32, must be bfloat16"):
        model(tokens_of())


def test_prologue_by_itself() -> None:
    module = model_of("gemma3").model.layers[0].self_attn
    q, k = torch.randn(1, 1, 4 * DIM), torch.randn(1, 1, 2 * DIM)
    cos, sin = torch.ones(1, 1, DIM), torch.zeros(1, 1, DIM)
    q_out, k_out = Prologue(module)(q, k, cos, sin)
    assert q_out.is_contiguous() and q_out.shape == (1, 4, 1, DIM)
    expected = module.k_norm(k.unflatten(-1, (2, DIM))).transpose(1, 2)
    assert torch.allclose(k_out, expected, rtol=1e-6, atol=math.ulp(1.0))
