"""Prints the address of one cache element, term by term, and the same address by row-major indexing
of the layout's array, which knows nothing of strides. Fails when the two differ."""

import argparse
import sys

from cache_layout import pa_nz, paged_hnd, paged_nhd, shuffled_v, transposed


def row_major(dims, index):
    """Position of `index` in a contiguous array of `dims`."""
    position = 0
    for size, i in zip(dims, index):
        if not 0 <= i < size:
            raise ValueError(f"index {index} lies outside of {dims}")
        position = position * size + i
    return position


def array_form(args):
    """The array's sizes and the element's index in it."""
    block, row = divmod(args.slot, args.block_size)
    head, channel, chunk = args.head, args.channel, args.chunk
    blocks, rows, heads, channels = args.blocks, args.block_size, args.heads, args.head_dim
    if args.layout == "pa_nz":
        plane, within = divmod(head * channels + channel, chunk)
        return (blocks, heads * channels // chunk, rows, chunk), (block, plane, row, within)
    return {
        "paged_nhd": ((blocks, rows, heads, channels), (block, row, head, channel)),
        "paged_hnd": ((blocks, heads, rows, channels), (block, head, row, channel)),
        "x_split_k": ((blocks, heads, channels // chunk, rows, chunk),
                      (block, head, channel // chunk, row, channel % chunk)),
        "transposed": ((blocks, heads, channels, rows), (block, head, channel, row)),
        "shuffled_v": ((blocks, heads, rows // chunk, channels, chunk),
                       (block, head, row // chunk, channel, row % chunk)),
    }[args.layout]


def layout_of(args):
    sizes = (args.blocks, args.block_size, args.heads, args.head_dim)
    if args.layout == "shuffled_v":
        return shuffled_v(*sizes, args.chunk)
    if args.layout in ("pa_nz", "x_split_k"):
        return pa_nz(*sizes, args.chunk)
    return {"paged_nhd": paged_nhd, "paged_hnd": paged_hnd,
            "transposed": transposed}[args.layout](*sizes)


def parse_arguments():
    parser = argparse.ArgumentParser(
        description=__doc__,
        epilog="example: address.py pa_nz --blocks 16 --block-size 128 --heads 8 --head-dim 128 "
               "--chunk 32 --slot 300 --head 5 --channel 70")
    parser.add_argument("layout", choices=["pa_nz", "paged_nhd", "paged_hnd", "x_split_k",
                                           "transposed", "shuffled_v"])
    for name in ("blocks", "block-size", "heads", "head-dim", "slot", "head", "channel"):
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--chunk", type=int, default=32,
                        help="pa_nz: 32 int8, 16 16-bit; x of x_split_k and shuffled_v")
    return parser.parse_args()


def main():
    args = parse_arguments()
    layout = layout_of(args)
    for name, factor, stride in layout.terms(args.slot, args.head, args.channel):
        print(f"{name:>14} {factor:>6} * {stride:>10} = {factor * stride:>12}")
    by_strides = layout.address(args.slot, args.head, args.channel)
    dims, index = array_form(args)
    by_array = row_major(dims, index)
    print(f"by strides {by_strides}; element {list(index)} of {list(dims)} is {by_array}")
    return 0 if by_strides == by_array else 1


if __name__ == "__main__":
    sys.exit(main())
