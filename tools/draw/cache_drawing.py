"""Drawings of a KV cache in memory: the place of every cell comes from the stride descriptor, by
inverting its address map over all elements."""

from dataclasses import dataclass, field

from svg import GREY, Canvas

# One pair per part and head: an ordinary cell, and a cell of the highlighted slots.
COLOURS = {
    ("k", 0): ("#dbeafe", "#2563eb"),
    ("k", 1): ("#fde9c8", "#c2620a"),
    ("v", 0): ("#d7f5e3", "#15803d"),
    ("v", 1): ("#f3dff5", "#9333a8"),
}
LINE_HEIGHT = 19
MARGIN = 30


@dataclass
class Part:
    """One cache (k or v) in the buffer."""

    name: str
    layout: object
    first_element: int = 0


@dataclass
class Drawing:
    """What to draw. A line is a stretch of memory that is shown as one bar."""

    title: str
    subtitle: str
    parts: list
    heads: int
    head_dim: int
    line_elements: int
    lines_per_group: int
    group_labels: list  # one per group of lines in a block
    line_labels: list  # one per line of a group
    block_label: str
    highlight: dict  # slot -> label of the token that it holds
    marked: tuple  # (slot, head, channel) of the worked example
    strides: list = field(default_factory=list)  # text lines of the legend
    bar_width: int = 250
    show_head_names: bool = True


@dataclass(frozen=True)
class Owner:
    """The (part, slot, head, channel) that an address holds."""

    part: str
    slot: int
    head: int
    channel: int


def owners(drawing):
    """Address -> Owner for every element of the buffer."""
    table = {}
    for part in drawing.parts:
        for slot in range(part.layout.blocks * part.layout.block_size):
            for head in range(drawing.heads):
                for channel in range(drawing.head_dim):
                    address = part.first_element + part.layout.address(slot, head, channel)
                    if address in table:
                        raise ValueError(f"element {address} has two owners")
                    table[address] = Owner(part.name, slot, head, channel)
    return table


def runs(table, begin, end):
    """Maximal stretches [first, last) of one part, slot and head inside [begin, end)."""
    result = []
    for address in range(begin, end):
        owner = table[address]
        key = (owner.part, owner.slot, owner.head)
        if result and result[-1][2] == key:
            result[-1][1] = address + 1
        else:
            result.append([address, address + 1, key])
    return result


class Painter:
    """Places the blocks of one Drawing on a canvas."""

    def __init__(self, drawing):
        self.drawing = drawing
        self.table = owners(drawing)
        layout = drawing.parts[0].layout
        self.block_elements = layout.block_stride
        self.lines = self.block_elements // drawing.line_elements
        self.groups = self.lines // drawing.lines_per_group
        self.label_width = 8 + 7.3 * max(len(label) for label in drawing.line_labels)
        self.slot_width = 8 + 7.3 * max(len(label) for label in drawing.highlight.values())
        self.block_width = self.label_width + drawing.bar_width + self.slot_width
        self.top = 122
        group_gap = 26 if any(drawing.group_labels) else 8
        self.group_height = drawing.lines_per_group * LINE_HEIGHT + group_gap
        self.group_gap = group_gap
        self.tape_top = self.top + self.groups * self.group_height + 46
        width = int(2 * MARGIN + layout.blocks * (self.block_width + 24))
        height = int(self.tape_top + 66 + 19 * len(drawing.strides) + 34)
        self.canvas = Canvas(max(width, 760), height, drawing.title)

    def paint(self):
        drawing = self.drawing
        self.canvas.text((MARGIN, 34), drawing.title, size=17, bold=True)
        self.canvas.text((MARGIN, 57), drawing.subtitle, size=13, fill=GREY)
        for block in range(drawing.parts[0].layout.blocks):
            self._block(block)
        self._tape()
        for i, words in enumerate(drawing.strides):
            self.canvas.text((MARGIN, self.tape_top + 82 + 19 * i), words, size=12.5, mono=True)
        return self.canvas.render()

    def _block(self, block):
        left = MARGIN + block * (self.block_width + 24)
        bar = left + self.label_width
        self.canvas.text((bar, 86), f"{self.drawing.block_label} {block}", size=14, bold=True)
        if self.drawing.show_head_names:
            self._column_names(block, bar)
        for group in range(self.groups):
            top = self.top + group * self.group_height
            if self.drawing.group_labels[group]:
                self.canvas.text((bar, top - 6), self.drawing.group_labels[group], size=12,
                                 fill=GREY)
            for line in range(self.drawing.lines_per_group):
                at = (left, top + line * LINE_HEIGHT)
                self._line(block, group * self.drawing.lines_per_group + line, line, at)

    def _column_names(self, block, bar):
        begin = block * self.block_elements
        for first, last, key in runs(self.table, begin, begin + self.drawing.line_elements):
            middle = bar + self._pixels((first + last) / 2 - begin)
            self.canvas.text((middle, 110), f"{key[0]} head {key[2]}", size=12, anchor="middle",
                             fill=GREY)

    def _pixels(self, elements):
        return elements * self.drawing.bar_width / self.drawing.line_elements

    def _line(self, block, index, line, at):
        begin = block * self.block_elements + index * self.drawing.line_elements
        bar = at[0] + self.label_width
        self.canvas.text((bar - 6, at[1] + 14), self.drawing.line_labels[line], size=12,
                         anchor="end", mono=True, fill=GREY)
        token = ""
        for first, last, key in runs(self.table, begin, begin + self.drawing.line_elements):
            highlighted = key[1] in self.drawing.highlight
            token = self.drawing.highlight.get(key[1], token)
            x = bar + self._pixels(first - begin)
            box = (x, at[1], self._pixels(last - first), LINE_HEIGHT - 2)
            self.canvas.rect(box, COLOURS[key[0], key[2]][highlighted])
            self.canvas.text((x + 5, at[1] + 13.5), str(first), size=11, mono=True,
                             fill="#ffffff" if highlighted else GREY, bold=highlighted)
        if token:
            self.canvas.text((bar + self.drawing.bar_width + 7, at[1] + 14), token, size=12,
                             mono=True, bold=True)
        self._mark(begin, (bar, at[1]))

    def _marked_address(self):
        part = self.drawing.parts[0]
        return part.first_element + part.layout.address(*self.drawing.marked)

    def _mark(self, begin, at):
        position = self._marked_address() - begin
        if 0 <= position < self.drawing.line_elements:
            left = self._pixels(position)
            if self._pixels(1) > 20:  # in the middle of the cell, beside its number
                left += self._pixels(0.5) - 2.5
            self.canvas.rect((at[0] + left, at[1] - 2, 5, LINE_HEIGHT + 2), "#ef4444",
                             stroke="#ffffff")

    def _tape(self):
        """The whole buffer as one strip: how many pieces a token is, and how far apart."""
        layout = self.drawing.parts[0].layout
        total = layout.blocks * self.block_elements
        width = self.canvas.width - 2 * MARGIN
        scale = width / total
        y = self.tape_top
        self.canvas.text((MARGIN, y - 8), "The same buffer as one strip of memory", size=13,
                         bold=True)
        for first, last, key in runs(self.table, 0, total):
            highlighted = key[1] in self.drawing.highlight
            box = (MARGIN + first * scale, y, (last - first) * scale, 20)
            self.canvas.rect(box, COLOURS[key[0], key[2]][highlighted], width=0.3)
        for block in range(layout.blocks + 1):
            x = MARGIN + block * self.block_elements * scale
            self.canvas.line((x, y - 3), (x, y + 26), width=1.6)
            anchor = "start" if block == 0 else "end" if block == layout.blocks else "middle"
            self.canvas.text((x, y + 40), str(block * self.block_elements), size=11,
                             anchor=anchor, mono=True)
        marked = self._marked_address()
        x = MARGIN + (marked + 0.5) * scale
        self.canvas.arrow((x, y + 50), (x, y + 22), stroke="#dc2626")
        label = f"element {marked}"
        # On the right of the arrow, unless it would run into the last number of the scale.
        is_right = x + 8 + 7.3 * len(label) < MARGIN + width - 40
        self.canvas.text((x + (8 if is_right else -8), y + 52), label, size=12, mono=True,
                         anchor="start" if is_right else "end", fill="#b91c1c", bold=True)
