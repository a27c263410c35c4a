"""Hugging Face models with qkvfuse's norms and rotations, against the same models as they are.

What attention receives is held against the formulas in float64, within bounds that count roundings;
logits and tokens against those of the unpatched model.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
from qkvfuse.integrations.transformers import Prologue, patch  # noqa: E402
from transformers_models import (  # noqa: E402
    DIM,
    FAMILIES,
    LENGTH,
    LOGITS,
    NEW,
    assert_close,
    both,
    generated,
    library_of,
    model_of,
    tokens_of,
)

# Roundings of each rotated term, by transformers in 16 bits.
ROUNDINGS = {"qwen3": 3, "llama": 1, "gemma3": 2}
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}


@pytest.fixture(autouse=True)
def _without_gradients() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # the models are too small for more
    with torch.no_grad():
        yield
    torch.set_num_threads(threads)


class Recorder:
    """What the first layer's projections, rotation and attention function see."""

    def __init__(self, model: Any, family: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.attention = model.model.layers[0].self_attn
        self.seen: dict[str, Any] = {}
        library = library_of(family)
        eager = library.eager_attention_forward

        def recorded(module: Any, q: Any, k: Any, *arguments: Any, **keywords: Any) -> Any:
            if module is self.attention:
                self.seen |= {"q_out": q, "k_out": k}
            return eager(module, q, k, *arguments, **keywords)

        def angles(_: Any, __: Any, keywords: dict[str, Any]) -> None:
            self.seen["cos"], self.seen["sin"] = keywords["position_embeddings"]

        monkeypatch.setattr(library, "eager_attention_forward", recorded)
        self.attention.register_forward_pre_hook(angles, with_kwargs=True)
        for part in "qk":
            getattr(self.attention, f"{part}_proj").register_forward_hook(
                lambda _, __, output, part=part: self.seen.update({part: output})
            )

    def exact(self, part: str, family: str) -> tuple[Any, Any]:
        """q or k in float64 by the formulas, and the sum of its two terms' absolute values."""
        x = self.seen[part].double().unflatten(-1, (-1, DIM)).transpose(1, 2)
        if family != "llama":
            norm = getattr(self.attention, f"{part}_norm")
            x = x / torch.sqrt(x.square().mean(-1, keepdim=True) + 1e-6)
            x = x * (norm.weight.double() + (1 if family == "gemma3" else 0))
        cos, sin = (self.seen[name].double()[:, None] for name in ("cos", "sin"))
        low, high = x.chunk(2, -1)
        terms = x * cos, torch.cat((-high, low), -1) * sin
        return terms[0] + terms[1], terms[0].abs() + terms[1].abs()


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("family", FAMILIES)
def test_q_and_k_are_within_their_roundings(
    family: str, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = model_of(family, getattr(torch, dtype))
    recorder = Recorder(model, family, monkeypatch)
    unit = {"float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}[dtype]
    found: dict[bool, Any] = {}
    for is_ours in (False, True):
        handle = patch(model) if is_ours else None
        model(tokens_of())
        found[is_ours] = dict(recorder.seen)
        if handle is not None:
            handle.restore()
    for part, heads in (("q", 4), ("k", 2)):
        y, m = recorder.exact(part, family)
        ours, theirs = (found[is_ours][f"{part}_out"].double() for is_ours in (True, False))
        assert ours.shape == (2, heads, LENGTH, DIM)
        arithmetic = 1.001 * 2**-24 * ((DIM // 16 + 11) / 2 * y.abs() + 4 * m) + 2.0**-24 * unit
        assert ((ours - y).abs() <= unit * y.abs() + arithmetic).all()
        terms = ROUNDINGS[family] if dtype != "float32" else DIM / 2 + 6
        allowed = 1.01 * unit * (terms * m + y.abs()) + arithmetic
        assert ((theirs - y).abs() <= allowed).all()
        if dtype != "float32" and family != "llama":  # the bound tells them apart
            assert ((theirs - y).abs() > unit * y.abs() + arithmetic).any()


def _assert_same(found: Any, expected: Any) -> None:
    assert type(found) is type(expected)
    if isinstance(expected, dict):
        assert found.keys() == expected.keys()
        for name, value in expected.items():
            _assert_same(found[name], value)
    elif isinstance(expected, torch.Tensor):
        assert torch.equal(found, expected)
    else:
        assert found == expected


@pytest.mark.parametrize("family", FAMILIES)
def test_cache_and_attention_get_the_same_arguments(
    family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All but q and k, in the first layer: v, masks, positions, windows, whatever a version has."""
    model, library = model_of(family), library_of(family)
    calls: list[dict[str, Any]] = []

    def recorded(function: Any) -> Any:
        def call(*arguments: Any, **keywords: Any) -> Any:
            given = inspect.signature(function).bind(*arguments, **keywords).arguments
            calls.append({name: value for name, value in given.items() if name not in ignored})
            return function(*arguments, **keywords)

        return call

    ignored = {"self", "query", "key", "key_states"}
    for owner, name in (
        (transformers.DynamicCache, "update"),
        (library, "eager_attention_forward"),
    ):
        monkeypatch.setattr(owner, name, recorded(getattr(owner, name)))
    model(tokens_of(), use_cache=True)
    plain, calls = calls[:2], []
    with patch(model):
        model(tokens_of(), use_cache=True)
    assert "value_states" in plain[0] and plain[1]["scaling"] == DIM**-0.5
    for found, expected in zip(calls[:2], plain, strict=True):
        _assert_same(found, expected)


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("family", FAMILIES)
def test_prefill(family: str, attention: str) -> None:
    plain, ours = both(model_of(family, attn_implementation=attention), tokens_of())
    assert_close(ours, plain)


def test_the_tolerance_notices_a_wrong_rotation(monkeypatch: pytest.MonkeyPatch) -> None:
    model = model_of("llama")
    plain, _ = both(model, tokens_of())
    call = Prologue.__call__
    monkeypatch.setattr(Prologue, "__call__", lambda *a: call(*a[:4], a[4] * (1 + 1e-3)))
    _, wrong = both(model, tokens_of())
    assert (wrong - plain).abs().max() > 10 * LOGITS * plain.abs().max()


@pytest.mark.parametrize("heads", [(4, 4), (4, 1), (8, 2)])
@pytest.mark.parametrize("family", FAMILIES)
def test_head_counts(family: str, heads: tuple[int, int]) -> None:
    model = model_of(family, num_attention_heads=heads[0], num_key_value_heads=heads[1])
    plain, ours = both(model, tokens_of())
    assert_close(ours, plain)


@pytest.mark.parametrize("family", FAMILIES)
def test_bfloat16_is_no_further_from_float32(family: str) -> None:
    model = model_of(family, torch.bfloat16)
    exact = copy.deepcopy(model).float()(tokens_of(8)).logits
    plain, ours = (logits.float() for logits in both(model, tokens_of(8)))
    errors = [(logits - exact).square().mean().sqrt() for logits in (plain, ours)]
    assert 0 < errors[1] <= 1.05 * errors[0]
    assert (ours - plain).abs().max() <= 0.05 * exact.abs().max()


@pytest.mark.parametrize("family", FAMILIES)
def test_steps_over_a_cache_equal_one_call(family: str) -> None:
    model, tokens = model_of(family), tokens_of()
    plain = model(tokens).logits
    name = "cache" if "cache" in inspect.signature(model.forward).parameters else "past_key_values"
    cache = transformers.DynamicCache(config=model.config)
    logits = []
    with patch(model):
        for part in (tokens[:, :5], *tokens[:, 5:].split(1, dim=1)):
            logits.append(model(part, use_cache=True, **{name: cache}).logits)
    assert cache.get_seq_length() == LENGTH
    assert_close(torch.cat(logits, 1), plain)


@pytest.mark.parametrize("options", [{}, {"num_beams": 3}, {"cache_implementation": "static"}])
@pytest.mark.parametrize("family", FAMILIES)
def test_generated_tokens(family: str, options: dict[str, Any]) -> None:
    plain, ours = generated(model_of(family), tokens_of(), **options)
    assert plain.shape == (2, LENGTH + NEW) and len(plain[:, LENGTH:].unique()) > 4
    assert torch.equal(ours, plain)


@pytest.mark.parametrize("family", FAMILIES)
def test_left_padding(family: str) -> None:
    model, tokens = model_of(family), tokens_of()
    mask = torch.ones_like(tokens)
    tokens[0, :9] = mask[0, :9] = 0
    plain, ours = both(model, tokens, attention_mask=mask)
    assert_close(ours[mask == 1], plain[mask == 1])
    plain, ours = generated(model, tokens, attention_mask=mask)
    assert torch.equal(ours, plain)
    alone, _ = generated(model, tokens[:1, 9:])
    assert torch.equal(ours[:1, LENGTH:], alone[:, LENGTH - 9 :])


def test_sliding_windows() -> None:
    model, wide = model_of("gemma3"), model_of("gemma3", sliding_window=64)
    plain, ours = both(model, tokens_of())
    assert_close(ours, plain)
    assert (wide(tokens_of()).logits - plain).abs().max() > 0.01 * plain.abs().max()
    model = model_of("qwen3", use_sliding_window=True, sliding_window=8, max_window_layers=1)
    assert {layer.self_attn.sliding_window for layer in model.model.layers} == {None, 8}
    plain, ours = both(model, tokens_of())
    assert_close(ours, plain)


def test_llama3_scaling() -> None:
    scaling = {"rope_scaling": LLAMA3}
    if transformers.__version__ >= "5":
        scaling = {"rope_parameters": LLAMA3 | {"rope_theta": 10000.0}}
    model = model_of("llama", **scaling)
    plain, ours = both(model, tokens_of())
    assert_close(ours, plain)
    unscaled = model_of("llama")(tokens_of()).logits
    assert (unscaled - plain).abs().max() > 0.01 * plain.abs().max()


@pytest.mark.parametrize("family", ["qwen3", "llama"])
def test_projections_with_bias(family: str) -> None:
    model = model_of(family, attention_bias=True)
    for layer in model.model.layers:
        for part in "qkv":
            getattr(layer.self_attn, f"{part}_proj").bias.uniform_(-1, 1)
    plain, ours = both(model, tokens_of())
    assert_close(ours, plain)


def test_attentions_are_recorded() -> None:
    model = model_of("qwen3")
    plain = model(tokens_of(), output_attentions=True).attentions
    with patch(model):
        ours = model(tokens_of(), output_attentions=True).attentions
    assert len(ours) == 3
    for found, expected in zip(ours, plain, strict=True):
        assert torch.allclose(found, expected, rtol=0, atol=1e-5)
