"""`python -m qkvfuse plot error`: what an 8-bit cache keeps of every head and channel."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

import qkvfuse

from .._words import DType, Granularity, ScaleRule
from ..reference.arithmetic import widen
from ..reference.codes import LARGEST
from . import UsageError, drawing, files, refusals

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Floats = npt.NDArray[np.float32]

_REAL = np.dtype(np.float32)
_AXES_OF: dict[str, tuple[int, ...]] = {"tensor": (0, 1, 2), "head": (0, 2), "channel": (0,)}


def draw(file: Path, name: str, dtype: str, output: Path) -> None:
    """Writes the drawing of an array [tokens, heads, head_dim] of floats.

    The file may hold what became of the array, too: NAME_after, floats of the same shape, or
    NAME_codes with NAME_scale and maybe NAME_offset, which broadcast; it is drawn beside the rest.

    Raises:
        UsageError: there is no such array, it has another shape, or the type is not of 8 bits.
    """
    with refusals():
        kind = DType.of(dtype, "--dtype")
    if kind not in LARGEST:
        raise UsageError(f"--dtype: is {dtype}, must be int8, float8_e4m3fn or float8_e5m2")
    arrays = files.read(file).arrays
    values = _values(arrays, name, file)
    with refusals():
        cases = {
            f"{kind}, a scale for each {granularity}": read_back(values, kind, granularity)
            for granularity in _AXES_OF
        }
        cases[f"{kind}, dynamic: for each token and head"] = read_back(values, kind, "dynamic")
        cases.update(_given(arrays, name, values))
    errors = {title: relative_error(values, after) for title, after in cases.items()}
    for title, after in cases.items():
        print(f"{title:50} rms error {_whole(values, after):.3%}")
    with drawing.figure(output, 11, 1.2 + 1.55 * (1 + len(cases))) as figure:
        panels = figure.subplots(1 + len(cases), 1, sharex=True)
        _draw_sizes(panels[0], values, name)
        low = max(min(float(error.min()) for error in errors.values()), 1e-4)
        high = min(max(max(float(error.max()) for error in errors.values()), 10 * low), 10.0)
        for axes, (title, after) in zip(panels[1:], cases.items(), strict=True):
            title = f"{title}; rms error of all {_whole(values, after):.2%}"
            _draw_errors(axes, title, errors[title.split(";")[0]], low, high)
        panels[-1].set_xlabel("channel")


def read_back(values: Floats, dtype: DType, scales: str) -> Floats:
    """What a cache of 8 bits gives back of `values`, with symmetric scales of the largest value.

    Args:
        values: [tokens, heads, head_dim], head_dim even and up to 1024.
        dtype: int8, float8_e4m3fn or float8_e5m2.
        scales: "tensor", "head", "channel" or "dynamic".
    """
    tokens, heads, head_dim = values.shape
    is_dynamic = scales == "dynamic"
    cache = qkvfuse.Cache(
        dtype,
        "token_pool",
        tokens,
        scale_rule=ScaleRule.DYNAMIC if is_dynamic else ScaleRule.DIVIDE,
        granularity=Granularity.CHANNEL if is_dynamic else Granularity(scales),
    )
    plan = qkvfuse.Plan(
        x_dtype=DType.FLOAT32,
        heads=(1, heads, heads),
        head_dim=head_dim,
        is_separate=True,
        rope="none",
        k_cache=cache,
        v_cache=cache,
    )
    arrays = plan.zeros(tokens)
    scale = None
    if not is_dynamic:
        scale = np.abs(values).max(axis=_AXES_OF[scales]) / _REAL.type(LARGEST[dtype])
        scale = np.atleast_1d(np.where(scale == 0, _REAL.type(1), scale))
        arrays.update(k_scale=scale, v_scale=scale)
    slots = np.arange(tokens)
    q = np.zeros((tokens, 1, head_dim), _REAL)
    plan.run(q=q, k=values, v=values, slots=slots, **arrays)
    view = qkvfuse.CacheView(
        cache,
        arrays["k_cache"],
        heads,
        head_dim,
        scale=scale,
        scale_cache=arrays.get("k_scale_cache"),
    )
    return np.asarray(qkvfuse.read_cache(view, slots))


def relative_error(values: Floats, after: Floats) -> Floats:
    """Root of the mean square of the error over that of the values, [heads, head_dim]."""
    error = np.square(after - values).mean(axis=0)
    size = np.square(values).mean(axis=0)
    return np.asarray(np.sqrt(error / np.maximum(size, np.finfo(_REAL).tiny)))


def _values(arrays: dict[str, Any], name: str, file: Path) -> Floats:
    if name not in arrays:
        raise UsageError(f"{file}: has no array {name!r}, must have it: --name chooses")
    array = arrays[name]
    if files.is_void(array) and array.dtype.itemsize == 2:
        array = array.view("bfloat16")
    if array.ndim != 3 or array.dtype.name not in ("float64", "float32", "float16", "bfloat16"):
        raise UsageError(
            f"{name}: is {array.dtype} {list(array.shape)}, "
            "must be floats [tokens, heads, head_dim]"
        )
    values = np.ascontiguousarray(array.astype(_REAL))
    if values.size == 0 or not np.isfinite(values).all():
        raise UsageError(f"{name}: is empty or has NaN or infinities, must have finite numbers")
    return values


def _given(arrays: dict[str, Any], name: str, values: Floats) -> dict[str, Floats]:
    """What the file itself says became of the array."""
    given: dict[str, Floats] = {}
    if f"{name}_after" in arrays:
        given[f"{name}_after of the file"] = arrays[f"{name}_after"].astype(_REAL)
    if f"{name}_codes" in arrays:
        if f"{name}_scale" not in arrays:
            raise ValueError(f"{name}_scale: is missing, must be given with {name}_codes")
        codes = widen(arrays[f"{name}_codes"], _REAL)
        scale, offset = arrays[f"{name}_scale"], arrays.get(f"{name}_offset", _REAL.type(0))
        shape = (len(scale), -1) if scale.ndim == 1 else scale.shape
        scale, offset = (np.reshape(part, shape) if part.ndim else part for part in (scale, offset))
        given[f"{name}_codes of the file"] = ((codes - offset) * scale).astype(_REAL)
    for title, after in given.items():
        if after.shape != values.shape:
            raise ValueError(f"{title}: is {list(after.shape)}, must be {list(values.shape)}")
    return given


def _whole(values: Floats, after: Floats) -> float:
    return float(np.sqrt(np.square(after - values).sum() / max(np.square(values).sum(), 1e-30)))


def _draw_sizes(axes: Axes, values: Floats, name: str) -> None:
    size = np.sqrt(np.square(values).mean(axis=0))
    image = axes.imshow(size, aspect="auto", cmap="Blues", interpolation="nearest")
    _finish(axes, f"{name} itself: root mean square over {len(values)} tokens", image)


def _draw_errors(axes: Axes, title: str, error: Floats, low: float, high: float) -> None:
    from matplotlib.colors import LogNorm

    image = axes.imshow(
        np.maximum(error, low),
        aspect="auto",
        cmap="YlOrRd",
        norm=LogNorm(low, high),
        interpolation="nearest",
    )
    _finish(axes, title, image)


def _finish(axes: Axes, title: str, image: Any) -> None:
    from matplotlib.ticker import MaxNLocator

    axes.set_title(title, fontsize=11)
    axes.set_ylabel("head")
    axes.yaxis.set_major_locator(MaxNLocator(5, integer=True))
    figure = axes.get_figure()
    assert figure is not None
    bar = figure.colorbar(image, ax=axes, pad=0.01, aspect=8)
    if image.cmap.name == "YlOrRd":
        bar.ax.yaxis.set_major_formatter(lambda value, _: f"{value:.3g}")
        bar.set_label("relative error")
    bar.ax.tick_params(labelsize=9)
