"""A drawing in SVG: a few shapes, and colours that hold on a light and on a dark page. Every drawing has its own
ground, so that it can be read wherever it is shown. Colours are Okabe and Ito's, which differ for every eye;
each line has its name beside it and a mark of its own as well."""
from xml.sax.saxutils import escape

# For each name: the colour on light, the colour on dark.
COLOURS = {
    "ground": ("#ffffff", "#0d1117"),
    "ink": ("#1f2328", "#e6edf3"),
    "faint": ("#59636e", "#9198a1"),
    "grid": ("#dde3e9", "#2a3038"),
    "sekisho": ("#0072b2", "#56b4e9"),
    "peer": ("#b3bcc5", "#57606a"),
    "floor": ("#8b949e", "#8b949e"),
    "nginx": ("#00805d", "#27b48b"),
    "h2o": ("#d55e00", "#f0883e"),
    "lighttpd": ("#b5568a", "#dd8fb8"),
    "apache": ("#8a6d00", "#d9b429"),
    "caddy": ("#6a51b8", "#a795e6"),
}
FONT = "system-ui, -apple-system, 'Segoe UI', 'Liberation Sans', sans-serif"


class Drawing:
    """Shapes on a ground of this size."""

    def __init__(self, width, height, description):
        self.width, self.height, self.description = width, height, description
        self.shapes = []

    def text(self, x, y, text, colour="ink", size=12, anchor="start", weight=400):
        self.shapes.append(
            f'<text x="{x:.1f}" y="{y:.1f}" class="{colour}" font-size="{size}" font-weight="{weight}" '
            f'text-anchor="{anchor}">{escape(text)}</text>')

    def value(self, x, y, value, remark, weight=400):
        """A number, and what is said of it in small."""
        beside = f'<tspan dx="5" class="faint" font-size="11" font-weight="400">{escape(remark)}</tspan>'
        self.shapes.append(
            f'<text x="{x:.1f}" y="{y:.1f}" class="ink" font-size="12" font-weight="{weight}">'
            f'{escape(value)}{beside if remark else ""}</text>')

    def bar(self, x, y, width, height, colour, is_hollow=False):
        kind = f"{colour} hollow" if is_hollow else colour
        self.shapes.append(
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(width, 0.8):.1f}" height="{height:.1f}" rx="2" '
            f'class="{kind}"/>')

    def line(self, points, colour, width=1.0, is_dashed=False):
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        dash = ' stroke-dasharray="5 4"' if is_dashed else ""
        self.shapes.append(
            f'<polyline points="{path}" class="line {colour}" stroke-width="{width}"{dash}/>')

    def mark(self, x, y, colour, shape):
        """A point of a line: each line has its own shape."""
        r = 4
        if shape == "circle":
            self.shapes.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{r}" class="{colour}"/>')
            return
        outline = {
            "square": [(-r, -r), (r, -r), (r, r), (-r, r)],
            "diamond": [(0, -r - 1), (r + 1, 0), (0, r + 1), (-r - 1, 0)],
            "up": [(0, -r - 1), (r + 1, r), (-r - 1, r)],
            "down": [(0, r + 1), (r + 1, -r), (-r - 1, -r)],
        }[shape]
        path = " ".join(f"{x + dx:.1f},{y + dy:.1f}" for dx, dy in outline)
        self.shapes.append(f'<polygon points="{path}" class="{colour}"/>')

    def render(self):
        body = "\n".join(self.shapes)
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}" '
            f'width="{self.width}" height="{self.height}" role="img" font-family="{FONT}">\n'
            f"<title>{escape(self.description)}</title>\n<style>\n{_style()}</style>\n"
            f'<rect width="{self.width}" height="{self.height}" rx="8" class="ground"/>\n{body}\n</svg>\n')


def _style():
    def rules(at):
        return "".join(
            f".{name}{{fill:{pair[at]}}}.line.{name},.hollow.{name}{{fill:none;stroke:{pair[at]}}}\n"
            for name, pair in COLOURS.items())
    return f"{rules(0)}@media (prefers-color-scheme: dark) {{\n{rules(1)}}}\n"
