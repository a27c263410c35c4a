"""The diagrams that are no memory maps: layers of the library, the pipeline, slots, a page
table."""

from svg import GREY, Canvas

BOX = "#eef2f7"
BLUE = "#dbeafe"
AMBER = "#fde9c8"
GREEN = "#d7f5e3"


def _box(canvas, box, heading, words=(), fill=BOX):
    """A box with a bold heading and lines of text below it, all centred."""
    x, y, w, h = box
    canvas.rect(box, fill, rx=5)
    first = y + h / 2 + 5 - 9 * len(words)
    canvas.text((x + w / 2, first), heading, size=14, anchor="middle", bold=True)
    for i, line in enumerate(words):
        canvas.text((x + w / 2, first + 18 * (i + 1)), line, size=12, anchor="middle")


def architecture():
    canvas = Canvas(900, 640, "Layers of qkvfuse and the life of a call")
    canvas.text((30, 34), "Four doors, one plan", size=17, bold=True)
    doors = [("C++", "include/qkvfuse"), ("aclnn (C)", "src/capi"),
             ("command line", "tools/cli"), ("Python", "planned")]
    for i, (name, where) in enumerate(doors):
        x = 30 + i * 140
        _box(canvas, (x, 54, 130, 62), name, [where], GREEN)
        canvas.arrow((x + 65, 116), (x + 65, 148))
    _layers(canvas)
    _life(canvas)
    return canvas.render()


def _layers(canvas):
    layers = [
        ("ops/", ["what an operator means: types, shapes, defaults, refusals",
                  "fills a Pipeline (plain data); no loop over elements"]),
        ("plan/", ["Pipeline = head groups q, k, v: source, norm, rope, sinks",
                   "slots, address map, split of the tokens; Check and RunRange"]),
        ("kernels/", ["Measure, then Emit, for the heads of a run of tokens in L1",
                      "all SIMD code; chosen once per plan and SIMD target"]),
        ("base/", ["scalar fp16 and bf16, checked arithmetic, messages,",
                   "parallel-for, floating-point environment, log"]),
    ]
    for i, (name, words) in enumerate(layers):
        y = 150 + i * 112
        _box(canvas, (30, y, 550, 84), name, words)
        if i + 1 < len(layers):
            canvas.arrow((305, y + 84), (305, y + 110))
    canvas.text((30, 618), "Includes point downwards only. reference/ is a second opinion: it "
                "includes neither plan/ nor kernels/.", size=12, fill=GREY)


def _life(canvas):
    canvas.text((640, 34), "Life of a call", size=17, bold=True)
    steps = [("Spec", ["heads, types, layouts, strides"]),
             ("MakePlan", ["checks the Spec, binds kernels"]),
             ("Check", ["pointers, overlap, slots, scales;", "prepares the workspace"]),
             ("RunRange", ["any split of the tokens,", "any threads, same bytes"])]
    for i, (name, words) in enumerate(steps):
        y = 54 + i * 112
        _box(canvas, (640, y, 230, 84), name, words, BLUE)
        if i + 1 < len(steps):
            canvas.arrow((755, y + 84), (755, y + 110))
    canvas.text((640, 500), "once", size=13, bold=True)
    canvas.text((690, 500), "Spec, MakePlan", size=13)
    canvas.text((640, 522), "often", size=13, bold=True)
    canvas.text((690, 522), "Run = Check, then RunRange", size=13)
    canvas.text((690, 542), "over all threads", size=13)


def pipeline():
    canvas = Canvas(980, 380, "The pipeline of both operators")
    canvas.text((30, 34), "One pass over the packed row of a token", size=17, bold=True)
    canvas.text((30, 57), "Between the source and the sinks everything is fp32 and stays in L1.",
                size=13, fill=GREY)
    parts = [("q", "Nq heads", BLUE), ("k", "Nk heads", AMBER), ("v", "Nv heads", GREEN)]
    for i, (name, heads, fill) in enumerate(parts):
        y = 92 + i * 92
        _box(canvas, (30, y, 120, 70), name, [heads], fill)
        _stages(canvas, name, y)
    canvas.text((90, 84), "packed row", size=12, anchor="middle", fill=GREY)
    canvas.text((30, 370), "QNR: QkvRmsNormRopeCache. DRQ: DequantRopeQuantKvcache. "
                "Dashed: optional.", size=12, fill=GREY)
    return canvas.render()


def _stages(canvas, part, y):
    _box(canvas, (190, y, 170, 70), "source", ["widen 16-bit, or", "dequantise int32 (DRQ)"])
    canvas.arrow((150, y + 35), (188, y + 35))
    x = 360
    if part != "v":
        _box(canvas, (400, y, 120, 70), "RMSNorm", ["QNR only"])
        _box(canvas, (560, y, 100, 70), "RoPE", ["halves"])
        canvas.arrow((360, y + 35), (398, y + 35))
        canvas.arrow((520, y + 35), (558, y + 35))
        x = 660
    canvas.arrow((x, y + 35), (698, y + 35))
    if part == "q":
        _sink(canvas, (700, y, 250, 32), "q_out, 16-bit", False)
        _sink(canvas, (700, y + 38, 250, 32), "second copy (before quant, QNR)", True)
    else:
        _sink(canvas, (700, y, 250, 32), f"{part}_cache, int8 or 16-bit (QNR)", False)
        _sink(canvas, (700, y + 38, 250, 32), f"{part}_out, 16-bit (before quant)", True)


def _sink(canvas, box, words, dashed):
    x, y, w, h = box
    canvas.rect(box, "#ffffff" if dashed else BOX, rx=5,
                **({"stroke_dasharray": "5 3"} if dashed else {}))
    canvas.text((x + w / 2, y + h / 2 + 4.5), words, size=12, anchor="middle")


def slots():
    """slots = [6, -1, 2, 6, 0, 3] into 2 blocks of 4 rows, repeated slots allowed."""
    canvas = Canvas(800, 390, "Slots: token to cache row")
    canvas.text((30, 34), "One slot per token: block = slot / block_size, row = slot % block_size",
                size=17, bold=True)
    table = [6, -1, 2, 6, 0, 3]
    canvas.text((30, 57), f"block_size 4, slots = {table}, lenient mode", size=13, mono=True,
                fill=GREY)
    winner = {slot: token for token, slot in enumerate(table)}  # the highest token index
    for token, slot in enumerate(table):
        _slot_row(canvas, token, slot, winner)
    for row in range(8):
        y = _cache_row(row)
        canvas.rect((620, y, 150, 28), GREEN if row in winner else "#ffffff")
        canvas.text((610, y + 19), f"block {row // 4}, row {row % 4}", size=12, anchor="end",
                    mono=True)
        held = f"token {winner[row]}" if row in winner else "unchanged"
        canvas.text((695, y + 19), held, size=12, anchor="middle",
                    fill="#1f2933" if row in winner else GREY)
    return canvas.render()


def _cache_row(slot):
    return 80 + 34 * slot + (20 if slot >= 4 else 0)


def _slot_row(canvas, token, slot, winner):
    y = 92 + token * 46
    written = slot >= 0 and winner[slot] == token
    words = f"token {token}, slot {slot}"
    if slot < 0:
        words += ": no cache write"
    elif not written:
        words += f": shadowed by token {winner[slot]}"
    canvas.rect((30, y, 290, 28), BLUE if written else "#ffffff",
                **({} if written else {"stroke_dasharray": "5 3"}))
    canvas.text((42, y + 19), words, size=12, mono=True)
    if written:
        canvas.arrow((322, y + 14), (496, _cache_row(slot) + 14))


def page_table():
    """ReadCache of two sequences, 6 and 3 rows, from 4 blocks of 4 rows."""
    pages, lengths, offsets, block_size, rows = [[2, 0], [3]], [6, 3], [0, 7], 4, 10
    colours = [BLUE, GREEN]
    canvas = Canvas(800, 480, "ReadCache: rows of a page table")
    canvas.text((30, 34), "A page table: row i of a sequence is in its page i / block_size",
                size=17, bold=True)
    canvas.text((30, 57), f"block_size 4, slots = [[2, 0], [3, -]], lengths = {lengths}, "
                f"row_offsets = {offsets}", size=13, mono=True, fill=GREY)
    held = {}  # (block, row) of the cache -> (sequence, row of it, row of out)
    for b, length in enumerate(lengths):
        for i in range(length):
            held[pages[b][i // block_size], i % block_size] = (b, i, offsets[b] + i)
    for block in range(4):
        for row in range(block_size):
            _page_row(canvas, block, row, held.get((block, row)), colours)
    named = {out: (b, i) for b, i, out in held.values()}
    for out in range(rows):
        y = _out_row(out)
        b, i = named.get(out, (None, None))
        canvas.text((610, y + 16), f"out row {out}", size=12, anchor="end", mono=True)
        canvas.rect((620, y, 150, 24), "#ffffff" if b is None else colours[b])
        words = "unchanged" if b is None else f"sequence {b}, row {i}"
        canvas.text((695, y + 16), words, size=12, anchor="middle",
                    fill=GREY if b is None else "#1f2933")
    return canvas.render()


def _out_row(out):
    """Top of a row of out."""
    return 110 + out * 28


def _page_row(canvas, block, row, held, colours):
    y = 80 + block * 96 + row * 21
    canvas.text((30, y + 14), f"block {block}, row {row}", size=12, mono=True)
    canvas.rect((140, y, 150, 18), "#ffffff" if held is None else colours[held[0]])
    if held is None:
        return
    canvas.text((215, y + 13), f"sequence {held[0]}, row {held[1]}", size=12, anchor="middle")
    canvas.arrow((292, y + 9), (520, _out_row(held[2]) + 12))
