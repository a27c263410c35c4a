"""Generates the drawings of docs/images: python3 tools/draw/layouts.py --out docs/images
With --check it writes nothing and fails when a file there differs from what it would write."""

import argparse
import pathlib
import sys

from cache_drawing import Drawing, Painter, Part
from cache_layout import interleaved, pa_nz, paged_nhd
from diagrams import architecture, pipeline, slots

# The example of every drawing: small enough to number each run of memory.
BLOCKS, BLOCK_SIZE, HEADS, HEAD_DIM = 2, 4, 2, 64
SIZES = (BLOCKS, BLOCK_SIZE, HEADS, HEAD_DIM)
MARKED = (6, 1, 40)
ROWS = [f"row {row}" for row in range(BLOCK_SIZE)]


def worked_address(layout, marked):
    """The example's address, term by term."""
    slot, head, channel = marked
    names = {"block": "block", "head": "head", "row_chunk": "row chunk", "row": "row",
             "channel_chunk": "channel chunk", "channel": "channel"}
    used = [(names[name], factor, stride) for name, factor, stride in layout.terms(*marked)
            if stride]
    total = " + ".join(f"{factor}*{stride}" for _, factor, stride in used)
    words = " + ".join(f"{name}*{stride}" for name, _, stride in used)
    return [f"address = {words}",
            f"slot {slot}, head {head}, channel {channel}: {total} = {layout.address(*marked)}"]


def draw_pa_nz(chunk, element):
    layout = pa_nz(*SIZES, chunk)
    planes = [f"plane {head * HEAD_DIM // chunk + i}: head {head}, channels {i * chunk}.."
              f"{(i + 1) * chunk - 1}" for head in range(HEADS) for i in range(HEAD_DIM // chunk)]
    drawing = Drawing(
        title=f"PA_NZ, {element} cache: [blocks, heads*head_dim/{chunk}, block_size, {chunk}]",
        subtitle="2 blocks of 4 rows, 2 heads of 64 channels. Dark: the token in slot 6 = block 1, "
                 "row 2. Red: its head 1, channel 40.",
        parts=[Part("k", layout)], heads=HEADS, head_dim=HEAD_DIM, line_elements=chunk,
        lines_per_group=BLOCK_SIZE, group_labels=planes, line_labels=ROWS, block_label="Block",
        highlight={6: "slot 6"}, marked=MARKED, strides=worked_address(layout, MARKED),
        show_head_names=False)
    return Painter(drawing).paint()


def draw_paged_nhd():
    layout = paged_nhd(*SIZES)
    drawing = Drawing(
        title="Paged NHD: [blocks, block_size, heads, head_dim]",
        subtitle="2 blocks of 4 rows, 2 heads of 64 channels. Dark: the token in slot 6 = block 1, "
                 "row 2. Red: its head 1, channel 40.",
        parts=[Part("k", layout)], heads=HEADS, head_dim=HEAD_DIM,
        line_elements=HEADS * HEAD_DIM, lines_per_group=BLOCK_SIZE, group_labels=[""],
        line_labels=ROWS, block_label="Block", highlight={6: "slot 6"}, marked=MARKED,
        strides=worked_address(layout, MARKED))
    return Painter(drawing).paint()


def draw_contiguous():
    rows = 8
    layout = paged_nhd(2, rows, HEADS, HEAD_DIM)
    marked = (rows + 1, 1, 40)
    drawing = Drawing(
        title="Contiguous BSND: [batch, rows, heads, head_dim]",
        subtitle="2 sequences, 8 rows each. A call with S = 2 new tokens per sequence and starts "
                 "[3, 1] writes the dark rows.",
        parts=[Part("k", layout)], heads=HEADS, head_dim=HEAD_DIM,
        line_elements=HEADS * HEAD_DIM, lines_per_group=rows, group_labels=[""],
        line_labels=[f"row {row}" for row in range(rows)], block_label="Sequence",
        highlight={3: "token 0", 4: "token 1", rows + 1: "token 2", rows + 2: "token 3"},
        marked=marked, strides=worked_address(layout, marked))
    return Painter(drawing).paint()


def draw_interleaved():
    layout = interleaved(*SIZES)
    drawing = Drawing(
        title="K and V interleaved in one buffer: [blocks, block_size, 2, heads, head_dim]",
        subtitle="An own layout: K and V have the same strides; V's first element is element 128 "
                 "of the buffer. Dark: slot 6. Red: head 1, channel 40 of K.",
        parts=[Part("k", layout), Part("v", layout, HEADS * HEAD_DIM)], heads=HEADS,
        head_dim=HEAD_DIM, line_elements=2 * HEADS * HEAD_DIM, lines_per_group=BLOCK_SIZE,
        group_labels=[""], line_labels=ROWS, block_label="Block", highlight={6: "slot 6"},
        marked=MARKED, strides=worked_address(layout, MARKED), bar_width=340)
    return Painter(drawing).paint()


def drawings():
    """File name -> SVG text."""
    return {
        "architecture.svg": architecture(),
        "pipeline.svg": pipeline(),
        "slots.svg": slots(),
        "pa_nz_int8.svg": draw_pa_nz(32, "int8"),
        "pa_nz_16bit.svg": draw_pa_nz(16, "16-bit"),
        "paged_nhd.svg": draw_paged_nhd(),
        "contiguous_bsnd.svg": draw_contiguous(),
        "interleaved_kv.svg": draw_interleaved(),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=pathlib.Path, required=True, help="folder of the SVG files")
    parser.add_argument("--check", action="store_true", help="compare, write nothing")
    args = parser.parse_args()
    differing = []
    for name, text in drawings().items():
        path = args.out / name
        if not args.check:
            path.write_text(text, encoding="ascii")
        elif not path.is_file() or path.read_text(encoding="ascii") != text:
            differing.append(str(path))
    for path in differing:
        print(f"{path} differs from what tools/draw/layouts.py draws", file=sys.stderr)
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
