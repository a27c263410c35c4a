"""qkvfuse in Hugging Face transformers: norm and RoPE of q and k in one call, for existing models.

    with qkvfuse.integrations.transformers.patch(model):
        model.generate(...)

`patch` replaces the forward of each attention module. Projections, cache, masks and the attention
itself stay the model's own; v goes from its projection to the cache as before, since nothing is
computed of it. Versions, classes and roundings: docs/transformers.md.
"""

from __future__ import annotations

import importlib.metadata
import inspect
import re
import sys
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from .._plan import Plan
from .._spec import Norm
from .._words import DType, Gamma
from ..torch import fused_qkv

OLDEST, NEWEST = (4, 57), (5, 24)  # versions of transformers, the patch level left out


@dataclass(frozen=True)
class _Family:
    """What differs between the attention modules of transformers."""

    norm: str | None = None  # class of q_norm and k_norm, which lies beside the attention's
    gamma: Gamma = Gamma.PLAIN
    epsilon: str = ""  # attribute of the norm
    has_window: bool = False  # its attention function takes a sliding_window


_MODELS = "transformers.models."
_FAMILIES = {
    _MODELS + "llama.modeling_llama.LlamaAttention": _Family(),
    _MODELS + "qwen3.modeling_qwen3.Qwen3Attention": _Family(
        "Qwen3RMSNorm", epsilon="variance_epsilon", has_window=True
    ),
    _MODELS + "gemma3.modeling_gemma3.Gemma3Attention": _Family(
        "Gemma3RMSNorm", Gamma.ONE_PLUS, epsilon="eps", has_window=True
    ),
}

_CLASSES = ", ".join(path.rsplit(".", 1)[1] for path in _FAMILIES)

# Parameters of the forwards that are replaced: those of all versions, and those of some.
_ALWAYS = {"self", "hidden_states", "position_embeddings", "attention_mask", "kwargs"}
_OF_CACHES = (
    {"past_key_values", "cache_position"},  # 4.57 to 5.3
    {"past_key_values"},  # to 5.23
    {"cache"},
)


def _path(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _family(attention: nn.Module) -> _Family:
    """What is known of this module, whose class must be exactly one of those in the table."""
    family = _FAMILIES.get(_path(type(attention)))
    if family is None:
        raise ValueError(f"attention: is a {type(attention).__name__}, must be one of {_CLASSES}")
    for name in ("q_norm", "k_norm") if family.norm else ():
        norm = type(getattr(attention, name))
        allowed = f"{type(attention).__module__}.{family.norm}"
        if _path(norm) != allowed:
            raise ValueError(f"{name}: is a {_path(norm)}, must be a {allowed}")
    return family


class _Plan(NamedTuple):
    plan: Plan
    text: str  # of its Spec, for the operator


class Prologue:
    """Norm and rotation of q and k, as one attention module has them, in one call.

    Called with the projections' outputs, [batch, sequence, heads * head_dim], and with cos and sin,
    [batch or 1, sequence, head_dim], it returns new q and k, [batch, heads, sequence, head_dim].
    There is one plan for each dtype; weights are read from the module at every call.

    Args:
        attention: a module of a class that `patch` knows.

    Raises:
        ValueError: it is of another class, or its parameters are not on the CPU.
    """

    def __init__(self, attention: Any) -> None:
        self._attention = attention
        self._family = _family(attention)
        self._plans: dict[torch.dtype, _Plan] = {}
        weight: Tensor = attention.q_proj.weight
        if weight.device.type != "cpu":
            raise ValueError(f"attention: its weights are on {weight.device}, must be on cpu")
        if weight.dtype.is_floating_point and weight.dtype.itemsize in (2, 4):
            self._plan(weight.dtype)

    def _plan(self, dtype: torch.dtype) -> _Plan:
        made = self._plans.get(dtype)
        if made is None:
            made = self._plans[dtype] = self._made(dtype)
        return made

    def _made(self, dtype: torch.dtype) -> _Plan:
        attention, family = self._attention, self._family
        norms: dict[str, Any] = {}
        if family.norm is not None:
            norm = Norm("per_head", family.gamma)
            epsilon = getattr(attention.q_norm, family.epsilon)
            norms = {"q_norm": norm, "k_norm": norm, "epsilon": epsilon}
        config = attention.config
        kv_heads = config.num_key_value_heads
        plan = Plan(
            x_dtype=DType.of(dtype, "q_proj"),
            heads=(config.num_attention_heads, kv_heads, kv_heads),
            head_dim=attention.head_dim,
            is_separate=True,
            k_out=DType.of(dtype, "q_proj"),
            **norms,
        )
        return _Plan(plan, plan.spec.to_json())

    def __call__(self, q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
        """q and k after norm and rotation.

        Raises:
            RuntimeError: gradients are enabled, and an input needs them.
            TypeError, ValueError: as `Plan.run` does.
        """
        batch, length, _ = q.shape
        attention = self._attention
        plan, text = self._plan(q.dtype)
        heads, kv_heads, _ = plan.spec.heads
        inputs = {
            "q": q,
            "k": k,
            "cos": cos.expand(batch, -1, -1),
            "sin": sin.expand(batch, -1, -1),
        }
        if self._family.norm is not None:
            inputs["q_gamma"] = attention.q_norm.weight
            inputs["k_gamma"] = attention.k_norm.weight
        if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in inputs.values()):
            raise RuntimeError(
                "attention: gradients are enabled, must be off (torch.no_grad()), since qkvfuse "
                "computes none; restore() brings back a model that can be trained"
            )
        q_out = q.new_empty(batch, heads, length, attention.head_dim)
        k_out = q.new_empty(batch, kv_heads, length, attention.head_dim)
        outputs = {"q_out": q_out.transpose(1, 2), "k_out": k_out.transpose(1, 2)}
        if torch.compiler.is_compiling():
            fused_qkv(text, **inputs, **outputs)
        else:
            arrays: dict[str, Any] = inputs | outputs
            plan.run(tokens=(batch, length), threads=torch.get_num_threads(), **arrays)
        return q_out, k_out


class _Forward:
    """The forward that a patched attention module has instead of its class's."""

    def __init__(self, attention: nn.Module) -> None:
        self._attention: Any = attention
        self._prologue = Prologue(attention)
        self._family = _family(attention)
        kind: Any = type(attention)
        self._parameters = _parameters(kind)
        replaced = vars(attention).get("forward")
        if replaced is not None and getattr(replaced, "__func__", None) is not kind.forward:
            raise ValueError(
                f"attention: its forward is a {type(replaced).__name__}, must be its class's own"
            )

    def __call__(
        self,
        hidden_states: Tensor,
        position_embeddings: tuple[Tensor, Tensor],
        attention_mask: Tensor | None = None,
        **keywords: Any,
    ) -> tuple[Tensor, Tensor | None]:
        attention, rows = self._attention, hidden_states.shape[:-1]
        q, k = self._prologue(
            attention.q_proj(hidden_states), attention.k_proj(hidden_states), *position_embeddings
        )
        v = attention.v_proj(hidden_states).view(*rows, -1, attention.head_dim).transpose(1, 2)
        k, v = self._cached(k, v, position_embeddings, keywords)
        window = {"sliding_window": attention.sliding_window} if self._family.has_window else {}
        attended, weights = _attention_function(attention)(
            attention,
            q,
            k,
            v,
            attention_mask,
            dropout=attention.attention_dropout if attention.training else 0.0,
            scaling=attention.scaling,
            **window,
            **keywords,
        )
        return attention.o_proj(attended.reshape(*rows, -1)), weights

    def _cached(
        self, k: Tensor, v: Tensor, angles: tuple[Tensor, Tensor], keywords: dict[str, Any]
    ) -> tuple[Tensor, Tensor]:
        """All keys and values that the tokens attend to. Takes the cache out of the keywords."""
        own = {name: keywords.pop(name, None) for name in self._parameters | {"past_key_values"}}
        cache = own["past_key_values"] if own.get("cache") is None else own["cache"]
        if cache is None:
            return k, v
        more: dict[str, Any] = {}
        if "cache_position" in own:
            where = {"cos": angles[0], "sin": angles[1], "cache_position": own["cache_position"]}
            more = {"cache_kwargs": where}
        elif "cache" in own:
            more = {"kwargs": keywords}
        updated: tuple[Tensor, Tensor] = cache.update(k, v, self._attention.layer_idx, **more)
        return updated


def _parameters(kind: Any) -> frozenset[str]:
    """Of the class's forward, those that bring the cache, which differ between versions."""
    found = frozenset(inspect.signature(kind.forward).parameters) - _ALWAYS
    if found not in _OF_CACHES:
        allowed = " or ".join(", ".join(sorted(names)) for names in _OF_CACHES)
        raise ValueError(
            f"{kind.__name__}.forward: has the parameters {', '.join(sorted(found))}, must have "
            f"{allowed}"
        )
    return found


def _attention_function(attention: Any) -> Any:
    """The function that the model's configuration names."""
    name = attention.config._attn_implementation
    beside: Any = sys.modules[type(attention).__module__]
    if name is None or name == "eager":
        return beside.eager_attention_forward
    return beside.ALL_ATTENTION_FUNCTIONS[name]


def _check_version() -> None:
    version = importlib.metadata.version("transformers")
    found = tuple(int(number) for number in re.findall(r"\d+", version)[:2])
    if not OLDEST <= found <= NEWEST:
        oldest, newest = (".".join(map(str, bound)) for bound in (OLDEST, NEWEST))
        raise ValueError(f"transformers: is {version}, must be from {oldest} to {newest}")


class Patched:
    """The attention modules that `patch` changed, by name; a context manager that restores them."""

    def __init__(self, forwards: dict[str, tuple[nn.Module, _Forward]]) -> None:
        self._forwards = forwards
        for module, forward in forwards.values():
            module.forward = forward

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the patched modules within the model; empty after `restore`."""
        return tuple(self._forwards)

    def restore(self) -> None:
        """Gives the modules their class's forward again; a second call does nothing.

        Raises:
            RuntimeError: a forward was replaced by another one in the meantime. None is changed.
        """
        for name, (module, forward) in self._forwards.items():
            if vars(module).get("forward") is not forward:
                raise RuntimeError(f"{name}: its forward was replaced after patch, must be patch's")
        for module, _ in self._forwards.values():
            del module.forward
        self._forwards = {}

    def __enter__(self) -> Patched:
        return self

    def __exit__(self, *_: object) -> None:
        self.restore()

    def __repr__(self) -> str:
        return f"Patched({', '.join(self.names)})"


def patch(model: nn.Module) -> Patched:
    """Makes the attention modules of a model compute norm and RoPE with qkvfuse, until `restore`.

    Args:
        model: anything that has attention modules of Llama, Qwen3 or Gemma 3 somewhere within, on
            the CPU, in float32, float16 or bfloat16. It keeps its weights and may change its dtype
            later. Modules of other classes are left alone.

    Raises:
        ValueError: transformers is of a version that is not known, the model has no module that is
            known, or one that is patched already, has other norms, or lies on another device: one
            sentence; nothing has changed.

    Example:
        >>> with qkvfuse.integrations.transformers.patch(model):
        ...     model.generate(**tokens, max_new_tokens=20)

    Source: docs/transformers.md.
    """
    _check_version()
    forwards = {
        name: (module, _Forward(module))
        for name, module in model.named_modules()
        if _path(type(module)) in _FAMILIES
    }
    if not forwards:
        raise ValueError(f"model: is a {type(model).__name__}, must contain one of {_CLASSES}")
    return Patched(forwards)
