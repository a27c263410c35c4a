"""Cache layouts as the names of an array's axes.

A layout says which array a cache is: `"block row head channel"` is [blocks, block_size, heads,
head_dim]. Any order of the axes is a layout. Rows and channels may be cut into chunks of `chunk`
elements: `"row_chunk"` counts the chunks, `"row"` then counts within one; `"channel_chunk"` and
`"channel"` likewise. `"head*channel_chunk"` is one axis of heads * head_dim/chunk entries. The
names of `LAYOUTS` stand for the layouts of known engines; drawings are in docs/cache_layouts.md.
The strides of the array are honoured, so that K and V in one buffer are two views of it.
"""

from __future__ import annotations

LAYOUTS: dict[str, str] = {
    "paged_nhd": "block row head channel",  # vLLM, FlashInfer "NHD", Ascend "page"
    "paged_hnd": "block head row channel",  # FlashInfer "HND", TensorRT-LLM
    "bsnd": "block row head channel",  # a block is the cache of one sequence
    "bnsd": "block head row channel",
    "pa_nz": "block head*channel_chunk row channel",  # Ascend
    "x_split_k": "block head channel_chunk row channel",  # K of vLLM's paged attention, of AITER
    "transposed": "block head channel row",  # V of vLLM's paged attention
    "shuffled_v": "block head row_chunk channel row",  # V of AITER
    "token_pool": "block head channel",  # SGLang: blocks of one row
    "scales_nh": "block row head",  # dynamic scales, one for each row and head
    "scales_hn": "block head row",  # AITER
}

_AXES = ("block", "row_chunk", "row", "head", "channel_chunk", "channel")


def axes_of(layout: str, name: str) -> tuple[str, ...]:
    """The axes that a layout's name or its own words stand for.

    Raises:
        ValueError: an axis is unknown, named twice or missing; the sentence names the argument
        `name`.
    """
    if not isinstance(layout, str):
        raise TypeError(f"{name}: is {layout!r}, must be a string")
    words = LAYOUTS.get(layout, layout).split()
    axes = [axis for word in words for axis in word.split("*")]
    known = layout in LAYOUTS or len(words) > 1
    joined = [word for word in words if "*" in word and word != "head*channel_chunk"]
    if not known or joined or any(axis not in _AXES for axis in axes):
        raise ValueError(
            f"{name}: is {layout!r}, must be {', '.join(LAYOUTS)}, or names of axes: "
            f"{', '.join(_AXES)} or head*channel_chunk"
        )
    repeated = next((axis for axis in axes if axes.count(axis) > 1), None)
    if repeated is not None:
        raise ValueError(f"{name}: {layout!r} names the axis {repeated} twice, must name it once")
    missing = next((axis for axis in ("block", "head") if axis not in axes), None)
    for part in ("row", "channel"):
        if f"{part}_chunk" in axes and part not in axes:
            missing = part
    if missing is not None:
        raise ValueError(f"{name}: {layout!r} does not name the axis {missing}, must name it")
    return tuple(words)
