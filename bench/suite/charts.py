"""The charts: bars beside bars and lines over a growing thing. Every axis begins at zero."""
import dataclasses
import math

from . import results as numbers
from .scenarios import BY_NAME, RATE
from .site import SIZES, VHOSTS
from .svg import Drawing

WIDTH = 900
MARGIN = 24
HEADING = 64
NAME_WIDTH = 58
# Several times as long as the others: they stand in the tables, where they hide nothing.
SLOW = {"apache", "caddy"}
EDGE = ["tls", "handshake", "bulk", "h2", "h2many", "h2traffic", "proxy", "proxybig", "fcgi"]
SLOW_WORDS = "Apache and Caddy are in the tables."
MARKS = {"sekisho": "circle", "nginx": "square", "h2o": "diamond", "lighttpd": "up", "floor": "down"}


@dataclasses.dataclass
class Panel:
    """Bars of one figure: (server, value, remark)."""
    title: str
    bars: list
    show: object


def write(found, folder):
    """Draws what was measured; what was not is not drawn."""
    makers = {
        "requests.svg": requests, "edge.svg": edge, "latency.svg": latency, "connections.svg": connections,
        "sizes.svg": sizes, "memory.svg": memory, "many.svg": many,
    }
    for name, make in makers.items():
        drawing = make(found)
        if drawing:
            (folder / name).write_text(drawing.render())
            yield folder / name


def requests(found):
    """CPU of each server for one request, scenario by scenario."""
    names = ["traffic", "small", "index", "missing", "close", "medium", "large", "put", "cgi"]
    panels = [panel for name in names if (panel := _panel(found, name))]
    return _bars(panels, "What a request costs",
                 "Server CPU for one request on one core, and × of nginx; less is better. CGI: a second, more "
                 "is better. Apache, Caddy: in the tables.", columns=3)


def edge(found):
    """The same for what faces the internet, and what stands behind."""
    panels = [panel for name in EDGE if (panel := _panel(found, name))]
    return _bars(panels, "TLS, HTTP/2 and proxying",
                 "Server CPU for one request on one core, and × of nginx; less is better. FastCGI: without PHP's own.", columns=3)


def latency(found):
    panels = [
        _panel(found, "latency", figure, title)
        for figure, title in [("p50_us", "half of them within"), ("p99_us", "99 % within"),
                              ("p999_us", "99.9 % within")]]
    return _bars([panel for panel in panels if panel], f"Latency at {RATE:,} requests a second",
                 "From when a request was due to the last byte of its answer, 64 connections; less is better. "
                 f"{SLOW_WORDS}",
                 columns=3)


def memory(found):
    panels = [
        _panel(found, "idle", "bytes_each", "an idle connection (10,000 of them)", show_bytes),
        _panel(found, "config", "start_ms", f"start, {VHOSTS:,} servers", lambda ms: show_time(ms * 1e3)),
        _panel(found, "config", "memory_mb", f"memory, {VHOSTS:,} servers",
               lambda megabytes: show_bytes(megabytes * 1e6)),
    ]
    return _bars([panel for panel in panels if panel], "Memory and large configurations",
                 "Memory of the server for each idle connection; time until a large configuration serves. "
                 "Less is better.", columns=3)


def many(found):
    """Costs that should not grow: with servers, with workers."""
    panels = [
        _panel(found, "vhosts", "cpu_us", f"{point:,} server{'s' if point > 1 else ''}", point=point)
        for point in BY_NAME["vhosts"].points]
    panels += [
        _panel(found, "workers", "cpu_us", f"{point} worker{'s' if point > 1 else ''}", point=point)
        for point in BY_NAME["workers"].points]
    return _bars([panel for panel in panels if panel], "Many servers, more workers",
                 "Server CPU for one request for a small file; left: a thousand heads in turn, to one server "
                 "or to a thousand.", columns=2, is_shared=True)


def connections(found):
    points = BY_NAME["connections"].points
    lines = _lines(found, "connections", points, lambda server, point: found.middle(
        "connections", server, "cpu_us", point))
    return _growth(lines, [f"{point:,}" for point in points], "Cost of a request as connections grow",
                   "Server CPU for a small file, all connections in use; less is better.", show_time,
                   "open connections")


def sizes(found):
    points = list(SIZES)
    lines = _lines(found, "sizes", points, lambda server, point: found.ratio(
        "sizes", server, "cpu_us", point))
    return _growth(lines, points, "Cost of a request as files grow",
                   "Server CPU for one request, nginx is 1; less is better.", lambda ratio: f"{ratio:.2f}",
                   "size of the file")


def _panel(found, name, figure=None, title=None, show=None, point=None):
    scenario = BY_NAME[name]
    figure = figure or scenario.figure
    show = show or (show_rate if figure == "rate" else show_time)
    bars = []
    for server in sorted(found.servers(name), key=lambda server: server == "floor"):
        value = found.middle(name, server, figure, point)
        if value is None or server in SLOW and not scenario.is_rate:
            continue
        ratio = found.ratio(name, server, figure, point)
        is_other = ratio is not None and server != numbers.REFERENCE
        bars.append((server, value, f"{ratio:.2f}×" if is_other else ""))
    return Panel(title or scenario.title, bars, show) if bars else None


def _lines(found, name, points, value):
    lines = {}
    for server in found.servers(name):
        values = [value(server, point) for point in points]
        if any(number is not None for number in values):
            lines[server] = values
    return lines


def _bars(panels, title, subtitle, columns, is_shared=False):
    """Panels of bars, each with an axis of its own from zero, or one for each row of panels."""
    if not panels:
        return None
    gap, row, top = 28, 19, 26
    width = (WIDTH - 2 * MARGIN - (columns - 1) * gap) / columns
    rows = [panels[at:at + columns] for at in range(0, len(panels), columns)]
    heights = [top + row * max(len(panel.bars) for panel in group) + 18 for group in rows]
    drawing = Drawing(WIDTH, HEADING + sum(heights) + 8, f"{title}. {subtitle}")
    _heading(drawing, title, subtitle)
    y = HEADING
    for group, height in zip(rows, heights):
        most_of_all = max(value for panel in group for _, value, _ in panel.bars)
        for column, panel in enumerate(group):
            x = MARGIN + column * (width + gap)
            drawing.text(x, y + 14, panel.title, size=13, weight=600)
            label = 88
            most = most_of_all if is_shared else max(value for _, value, _ in panel.bars)
            scale = (width - NAME_WIDTH - label) / most if most else 0
            for at, (server, value, remark) in enumerate(panel.bars):
                line = y + top + at * row
                is_ours = server == "sekisho"
                weight = 600 if is_ours else 400
                drawing.text(x, line + 12, server, "ink" if is_ours else "faint", weight=weight)
                colour = "sekisho" if is_ours else "floor" if server == "floor" else "peer"
                drawing.bar(x + NAME_WIDTH, line + 2, value * scale, row - 6, colour, server == "floor")
                end = x + NAME_WIDTH + value * scale + 6
                drawing.value(end, line + 12, panel.show(value), remark, weight)
            base = y + top
            drawing.line([(x + NAME_WIDTH, base), (x + NAME_WIDTH, base + row * len(panel.bars))], "faint")
        y += height
    return drawing


def _growth(lines, names, title, subtitle, show, axis):
    """Lines from left to right; equal steps, zero at the bottom, each named at its end."""
    if not lines:
        return None
    height, left, right, bottom = 420, 64, 96, 56
    drawing = Drawing(WIDTH, height, f"{title}. {subtitle}")
    _heading(drawing, title, subtitle)
    top, base, end = HEADING + 16, height - bottom, WIDTH - MARGIN - right
    most = max(value for values in lines.values() for value in values if value is not None)
    step = nice_step(most / 5)
    most = math.ceil(most / step) * step
    place = lambda at: left + (end - left) * at / max(len(names) - 1, 1)  # noqa: E731
    level = lambda value: base - (base - top) * value / most  # noqa: E731
    for at in range(int(round(most / step)) + 1):
        y = level(at * step)
        drawing.line([(left, y), (end, y)], "faint" if at == 0 else "grid")
        drawing.text(left - 8, y + 4, show(at * step).replace(".0 ", " ") if at else "0", "faint", 11, "end")
    for at, name in enumerate(names):
        drawing.text(place(at), base + 18, name, "faint", 11, "middle")
    drawing.text((left + end) / 2, base + 40, axis, "faint", 12, "middle")
    # Ours is drawn last, over the others.
    for server, values in sorted(lines.items(), key=lambda line: line[0] == "sekisho"):
        points = [(place(at), level(value)) for at, value in enumerate(values) if value is not None]
        drawing.line(points, server, 3 if server == "sekisho" else 2, server == "floor")
        for x, y in points:
            drawing.mark(x, y, server, MARKS.get(server, "square"))
    ends = {
        server: level(next(value for value in reversed(values) if value is not None))
        for server, values in lines.items()}
    for server, y in spread(ends, 17).items():
        last = next(value for value in reversed(lines[server]) if value is not None)
        weight = 600 if server == "sekisho" else 400
        drawing.text(end + 12, y + 4, f"{server} {show(last)}", server, 12, weight=weight)
    return drawing


def _heading(drawing, title, subtitle):
    drawing.text(MARGIN, 32, title, size=18, weight=600)
    drawing.text(MARGIN, 52, subtitle, "faint", 12.5)


def spread(places, gap):
    """Moves labels apart that would lie on each other, in their order."""
    moved, last = {}, -math.inf
    for name, y in sorted(places.items(), key=lambda place: place[1]):
        last = max(y, last + gap)
        moved[name] = last
    over = last - max(places.values()) if places else 0
    return {name: y - over / 2 for name, y in moved.items()}


def nice_step(least):
    """The smallest of 1, 2, 5, 10, … that is not below."""
    power = 10 ** math.floor(math.log10(least)) if least > 0 else 1
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= least)


def show_time(micros):
    """Three figures with their unit."""
    for limit, factor, unit in [(1e3, 1, "µs"), (1e6, 1e-3, "ms"), (math.inf, 1e-6, "s")]:
        if micros < limit:
            return f"{_short(micros * factor)} {unit}"
    return ""


def show_bytes(count):
    for limit, factor, unit in [(1e3, 1, "B"), (1e6, 1e-3, "KB"), (math.inf, 1e-6, "MB")]:
        if count < limit:
            return f"{_short(count * factor)} {unit}"
    return ""


def show_rate(rate):
    return f"{rate:,.0f}/s"


def _short(value):
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 1 else f"{value:.2f}"
