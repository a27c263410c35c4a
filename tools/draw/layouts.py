"""Generates the drawings of docs/images: python3 tools/draw/layouts.py --out docs/images
With --check it writes nothing and fails when a file there differs from what it would write."""

import argparse
import pathlib
import sys

from cache_drawing import Drawing, Painter, Part
from cache_layout import in_turn, pa_nz, paged_hnd, paged_nhd, shuffled_v, transposed
from diagrams import architecture, page_table, pipeline, slots

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


def draw_channel_chunks(title, chunk, group_labels):
    layout = pa_nz(*SIZES, chunk)
    drawing = Drawing(
        title=title,
        subtitle="2 blocks of 4 rows, 2 heads of 64 channels. Dark: the token in slot 6 = block 1, "
                 "row 2. Red: its head 1, channel 40.",
        parts=[Part("k", layout)], heads=HEADS, head_dim=HEAD_DIM, line_elements=chunk,
        lines_per_group=BLOCK_SIZE, group_labels=group_labels, line_labels=ROWS,
        block_label="Block", highlight={6: "slot 6"}, marked=MARKED,
        strides=worked_address(layout, MARKED), show_head_names=False)
    return Painter(drawing).paint()


def chunk_labels(chunk):
    """What each chunk of a block holds."""
    return [f"head {head}, channels {first}..{first + chunk - 1}"
            for head in range(HEADS) for first in range(0, HEAD_DIM, chunk)]


def draw_pa_nz(chunk, element):
    planes = [f"plane {i}: {label}" for i, label in enumerate(chunk_labels(chunk))]
    return draw_channel_chunks(
        f"PA_NZ, {element} cache: [blocks, heads*head_dim/{chunk}, block_size, {chunk}]", chunk,
        planes)


def draw_x_split_k():
    return draw_channel_chunks(
        "K split by x = 16 channels: [blocks, heads, head_dim/16, block_size, 16]", 16,
        chunk_labels(16))


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
    layout = in_turn(paged_nhd(*SIZES), HEADS * HEAD_DIM)
    drawing = Drawing(
        title="K and V interleaved in one buffer: [blocks, block_size, 2, heads, head_dim]",
        subtitle="InTurn of paged NHD: K and V have the same strides, V's first element is element "
                 "128 of the buffer. Dark: slot 6. Red: head 1, channel 40 of K.",
        parts=[Part("k", layout), Part("v", layout, HEADS * HEAD_DIM)], heads=HEADS,
        head_dim=HEAD_DIM, line_elements=2 * HEADS * HEAD_DIM, lines_per_group=BLOCK_SIZE,
        group_labels=[""], line_labels=ROWS, block_label="Block", highlight={6: "slot 6"},
        marked=MARKED, strides=worked_address(layout, MARKED), bar_width=340)
    return Painter(drawing).paint()


def draw_blocks_in_turn():
    run = BLOCK_SIZE * HEADS * HEAD_DIM
    layout = in_turn(paged_nhd(*SIZES), run)
    drawing = Drawing(
        title="K and V block by block in one buffer: [blocks, 2, block_size, heads, head_dim]",
        subtitle=f"InTurn of paged NHD: V's first element is element {run} of the buffer. "
                 "Dark: slot 6. Red: head 1, channel 40 of K.",
        parts=[Part("k", layout), Part("v", layout, run)], heads=HEADS, head_dim=HEAD_DIM,
        line_elements=HEADS * HEAD_DIM, lines_per_group=BLOCK_SIZE,
        group_labels=["K: head 0, head 1", "V: head 0, head 1"], line_labels=ROWS,
        block_label="Block", highlight={6: "slot 6"}, marked=MARKED,
        strides=worked_address(layout, MARKED), show_head_names=False)
    return Painter(drawing).paint()


def draw_paged_hnd():
    layout = paged_hnd(*SIZES)
    drawing = Drawing(
        title="Paged HND: [blocks, heads, block_size, head_dim]",
        subtitle="2 blocks of 4 rows, 2 heads of 64 channels. Dark: the token in slot 6 = block 1, "
                 "row 2. Red: its head 1, channel 40.",
        parts=[Part("k", layout)], heads=HEADS, head_dim=HEAD_DIM, line_elements=HEAD_DIM,
        lines_per_group=BLOCK_SIZE, group_labels=[f"head {head}" for head in range(HEADS)],
        line_labels=ROWS, block_label="Block", highlight={6: "slot 6"}, marked=MARKED,
        strides=worked_address(layout, MARKED), show_head_names=False)
    return Painter(drawing).paint()


def draw_contiguous_bnsd():
    rows = 8
    layout = paged_hnd(2, rows, HEADS, HEAD_DIM)
    marked = (rows + 1, 1, 40)
    drawing = Drawing(
        title="Contiguous BNSD: [batch, heads, rows, head_dim]",
        subtitle="2 sequences, 8 rows each. A call with S = 2 new tokens per sequence and starts "
                 "[3, 1] writes the dark rows.",
        parts=[Part("k", layout)], heads=HEADS, head_dim=HEAD_DIM, line_elements=HEAD_DIM,
        lines_per_group=rows, group_labels=[f"head {head}" for head in range(HEADS)],
        line_labels=[f"row {row}" for row in range(rows)], block_label="Sequence",
        highlight={3: "token 0", 4: "token 1", rows + 1: "token 2", rows + 2: "token 3"},
        marked=marked, strides=worked_address(layout, marked), show_head_names=False)
    return Painter(drawing).paint()


# Layouts whose rows are innermost are drawn with few channels: each of their cells is one element.
FEW = 4
FEW_SIZES = (BLOCKS, BLOCK_SIZE, HEADS, FEW)
FEW_MARKED = (6, 1, 3)
CHANNELS = [f"channel {channel}" for channel in range(FEW)]


def draw_rows_innermost(title, layout, groups):
    drawing = Drawing(
        title=title,
        subtitle="2 blocks of 4 rows, 2 heads of 4 channels; a cell is one element. Dark: slot 6 = "
                 "block 1, row 2. Red: its head 1, channel 3.",
        parts=[Part("k", layout)], heads=HEADS, head_dim=FEW,
        line_elements=layout.row_chunk or BLOCK_SIZE, lines_per_group=FEW, group_labels=groups,
        line_labels=CHANNELS, block_label="Block", highlight={6: "slot 6"}, marked=FEW_MARKED,
        strides=worked_address(layout, FEW_MARKED), show_head_names=False)
    return Painter(drawing).paint()


def draw_transposed():
    return draw_rows_innermost(
        "Transposed: [blocks, heads, head_dim, block_size]", transposed(*FEW_SIZES),
        [f"head {head}: rows 0..3 from left to right" for head in range(HEADS)])


def draw_shuffled_v():
    return draw_rows_innermost(
        "V split by x = 2 rows: [blocks, heads, block_size/2, head_dim, 2]",
        shuffled_v(*FEW_SIZES, 2),
        [f"head {head}, rows {row} and {row + 1}" for head in range(HEADS) for row in (0, 2)])


def draw_token_pool():
    tokens, marked = 4, (2, 0, 40)
    layout = paged_nhd(tokens, 1, HEADS, HEAD_DIM)
    drawing = Drawing(
        title="Pool of tokens: [tokens, heads, head_dim]",
        subtitle="4 tokens, 2 heads of 64 channels; blocks of one row. Dark: slot 2. Red: its "
                 "head 0, channel 40.",
        parts=[Part("k", layout)], heads=HEADS, head_dim=HEAD_DIM,
        line_elements=HEADS * HEAD_DIM, lines_per_group=1, group_labels=[""],
        line_labels=[""], block_label="Token", highlight={2: "slot 2"}, marked=marked,
        strides=worked_address(layout, marked), bar_width=190)
    return Painter(drawing).paint()


def draw_scales(title, layout, group_label, line_labels):
    marked = (6, 1, 0)
    drawing = Drawing(
        title=title,
        subtitle="2 blocks of 4 rows, 2 heads; a cell is one fp32. Dark: slot 6 = block 1, row 2. "
                 "Red: its head 1.",
        parts=[Part("k", layout)], heads=HEADS, head_dim=1,
        line_elements=layout.block_stride // len(line_labels), lines_per_group=len(line_labels),
        group_labels=[group_label], line_labels=line_labels, block_label="Block",
        highlight={6: "slot 6"}, marked=marked, strides=worked_address(layout, marked),
        show_head_names=False)
    return Painter(drawing).paint()


def draw_scales_nh():
    return draw_scales("Dynamic scales NH: [blocks, block_size, heads]",
                       paged_nhd(BLOCKS, BLOCK_SIZE, HEADS, 1), "heads 0, 1 from left to right",
                       ROWS)


def draw_scales_hn():
    return draw_scales("Dynamic scales HN: [blocks, heads, block_size]",
                       paged_hnd(BLOCKS, BLOCK_SIZE, HEADS, 1), "rows 0..3 from left to right",
                       [f"head {head}" for head in range(HEADS)])


def drawings():
    """File name -> SVG text."""
    return {
        "architecture.svg": architecture(),
        "pipeline.svg": pipeline(),
        "slots.svg": slots(),
        "page_table.svg": page_table(),
        "pa_nz_int8.svg": draw_pa_nz(32, "int8"),
        "pa_nz_16bit.svg": draw_pa_nz(16, "16-bit"),
        "paged_nhd.svg": draw_paged_nhd(),
        "contiguous_bsnd.svg": draw_contiguous(),
        "interleaved_kv.svg": draw_interleaved(),
        "blocks_in_turn.svg": draw_blocks_in_turn(),
        "paged_hnd.svg": draw_paged_hnd(),
        "contiguous_bnsd.svg": draw_contiguous_bnsd(),
        "x_split_k.svg": draw_x_split_k(),
        "transposed.svg": draw_transposed(),
        "shuffled_v.svg": draw_shuffled_v(),
        "token_pool.svg": draw_token_pool(),
        "scales_nh.svg": draw_scales_nh(),
        "scales_hn.svg": draw_scales_hn(),
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
