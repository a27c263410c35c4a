"""Prints the address of one cache element, term by term, and the same address by row-major indexing
of the layout's array, which knows nothing of strides. Fails when the two differ."""

import argparse
import sys

from cache_layout import pa_nz, paged_nhd


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
    if args.layout == "pa_nz":
        plane, within = divmod(args.head * args.head_dim + args.channel, args.chunk)
        dims = (args.blocks, args.heads * args.head_dim // args.chunk, args.block_size, args.chunk)
        return dims, (block, plane, row, within)
    dims = (args.blocks, args.block_size, args.heads, args.head_dim)
    return dims, (block, row, args.head, args.channel)


def parse_arguments():
    parser = argparse.ArgumentParser(
        description=__doc__,
        epilog="example: address.py pa_nz --blocks 16 --block-size 128 --heads 8 --head-dim 128 "
               "--chunk 32 --slot 300 --head 5 --channel 70")
    parser.add_argument("layout", choices=["pa_nz", "paged_nhd"])
    for name in ("blocks", "block-size", "heads", "head-dim", "slot", "head", "channel"):
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--chunk", type=int, default=32, help="pa_nz only: 32 int8, 16 16-bit")
    return parser.parse_args()


def main():
    args = parse_arguments()
    sizes = (args.blocks, args.block_size, args.heads, args.head_dim)
    layout = pa_nz(*sizes, args.chunk) if args.layout == "pa_nz" else paged_nhd(*sizes)
    for name, factor, stride in layout.terms(args.slot, args.head, args.channel):
        print(f"{name:>14} {factor:>6} * {stride:>10} = {factor * stride:>12}")
    by_strides = layout.address(args.slot, args.head, args.channel)
    dims, index = array_form(args)
    by_array = row_major(dims, index)
    print(f"by strides {by_strides}; element {list(index)} of {list(dims)} is {by_array}")
    return 0 if by_strides == by_array else 1


if __name__ == "__main__":
    sys.exit(main())
