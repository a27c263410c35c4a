"""The six-stride descriptor of include/qkvfuse/cache_layout.hpp and its presets, for the drawings
and for checking a worked address by hand (see address.py)."""

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class CacheLayout:
    """Field for field the C++ struct; strides in elements, a chunk of 0 means not chunked."""

    blocks: int
    block_size: int
    block_stride: int
    head_stride: int
    row_stride: int
    row_chunk: int = 0
    row_chunk_stride: int = 0
    channel_chunk: int = 0
    channel_chunk_stride: int = 0
    channel_stride: int = 1

    def terms(self, slot, head, channel):
        """The address as (name, factor, stride) terms; their products add up to it."""
        block, row = divmod(slot, self.block_size)
        row_chunk, row_in = divmod(row, self.row_chunk) if self.row_chunk else (0, row)
        chunk, channel_in = (
            divmod(channel, self.channel_chunk) if self.channel_chunk else (0, channel))
        return [("block", block, self.block_stride), ("head", head, self.head_stride),
                ("row_chunk", row_chunk, self.row_chunk_stride),
                ("row", row_in, self.row_stride),
                ("channel_chunk", chunk, self.channel_chunk_stride),
                ("channel", channel_in, self.channel_stride)]

    def address(self, slot, head, channel):
        """Elements from the cache's first one."""
        return sum(factor * stride for _, factor, stride in self.terms(slot, head, channel))


def pa_nz(blocks, block_size, heads, head_dim, chunk):
    """[blocks, heads*head_dim/chunk, block_size, chunk]"""
    return CacheLayout(blocks, block_size, block_stride=heads * head_dim * block_size,
                       head_stride=head_dim * block_size, row_stride=chunk, channel_chunk=chunk,
                       channel_chunk_stride=block_size * chunk)


def paged_nhd(blocks, block_size, heads, head_dim):
    """[blocks, block_size, heads, head_dim]; contiguous BSND is the same with blocks = batch."""
    return CacheLayout(blocks, block_size, block_stride=block_size * heads * head_dim,
                       head_stride=head_dim, row_stride=heads * head_dim)


def paged_hnd(blocks, block_size, heads, head_dim):
    """[blocks, heads, block_size, head_dim]; contiguous BNSD is the same with blocks = batch."""
    return CacheLayout(blocks, block_size, block_stride=heads * block_size * head_dim,
                       head_stride=block_size * head_dim, row_stride=head_dim)


def transposed(blocks, block_size, heads, head_dim):
    """[blocks, heads, head_dim, block_size]"""
    return replace(paged_hnd(blocks, block_size, heads, head_dim), row_stride=1,
                   channel_stride=block_size)


def shuffled_v(blocks, block_size, heads, head_dim, x):
    """[blocks, heads, block_size/x, head_dim, x]"""
    return replace(paged_hnd(blocks, block_size, heads, head_dim), row_chunk=x,
                   row_chunk_stride=head_dim * x, row_stride=1, channel_stride=x)


def in_turn(layout, run):
    """K of a buffer that has `run` elements of K and V in turn; V has the same strides and starts
    `run` elements later."""
    names = ["block_stride", "head_stride", "row_chunk_stride", "row_stride",
             "channel_chunk_stride", "channel_stride"]
    return replace(layout, **{name: 2 * getattr(layout, name) for name in names
                              if getattr(layout, name) >= run})
