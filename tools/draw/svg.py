"""A small SVG writer for the drawings of docs/: boxes, text and arrows, same bytes on every run."""

from xml.sax.saxutils import escape

SANS = "DejaVu Sans, Verdana, Arial, sans-serif"
MONO = "DejaVu Sans Mono, Menlo, Consolas, monospace"
INK = "#1f2933"
GREY = "#616e7c"


def _number(value):
    """Two decimals at most, so that the text does not depend on floating-point noise."""
    return f"{value:.2f}".rstrip("0").rstrip(".")


class Canvas:
    """Collects elements; sizes and positions are in pixels, y grows downwards."""

    def __init__(self, width, height, title):
        self.width = width
        self.height = height
        self.title = title
        self._elements = []

    def _add(self, tag, attributes, text=None):
        fields = " ".join(
            f'{name.replace("_", "-")}="{_number(v) if isinstance(v, (int, float)) else v}"'
            for name, v in attributes.items()
        )
        body = "/>" if text is None else f">{escape(text)}</{tag}>"
        self._elements.append(f"<{tag} {fields}{body}")

    def rect(self, box, fill, stroke=INK, width=1.0, **more):
        """box is (x, y, width, height)."""
        x, y, w, h = box
        self._add("rect", {"x": x, "y": y, "width": w, "height": h, "fill": fill,
                           "stroke": stroke, "stroke_width": width, **more})

    def text(self, at, words, size=13, anchor="start", mono=False, bold=False, fill=INK):
        """at is the baseline's position (x, y)."""
        self._add("text", {"x": at[0], "y": at[1], "font_family": MONO if mono else SANS,
                           "font_size": size, "font_weight": "bold" if bold else "normal",
                           "text_anchor": anchor, "fill": fill}, words)

    def line(self, start, end, stroke=INK, width=1.2, **more):
        self._add("line", {"x1": start[0], "y1": start[1], "x2": end[0], "y2": end[1],
                           "stroke": stroke, "stroke_width": width, **more})

    def polygon(self, points, fill):
        joined = " ".join(f"{_number(x)},{_number(y)}" for x, y in points)
        self._add("polygon", {"points": joined, "fill": fill})

    def arrow(self, start, end, stroke=INK, width=1.4):
        """A straight arrow with a solid head at `end`."""
        dx, dy = end[0] - start[0], end[1] - start[1]
        length = (dx * dx + dy * dy) ** 0.5
        ux, uy = dx / length, dy / length
        base = (end[0] - 8 * ux, end[1] - 8 * uy)
        self.line(start, base, stroke, width)
        self.polygon([end, (base[0] - 4 * uy, base[1] + 4 * ux),
                      (base[0] + 4 * uy, base[1] - 4 * ux)], stroke)

    def render(self):
        head = (f'<svg xmlns="http://www.w3.org/2000/svg" width="{self.width}" '
                f'height="{self.height}" viewBox="0 0 {self.width} {self.height}">')
        ground = f'<rect width="{self.width}" height="{self.height}" fill="#ffffff"/>'
        return "\n".join([head, f"<title>{escape(self.title)}</title>", ground,
                          *self._elements, "</svg>", ""])
