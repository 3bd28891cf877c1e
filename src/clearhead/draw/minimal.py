"""Two small diagrams: the least that attention is made of, and how a segment remembers the one before it."""

from clearhead.draw.canvas import SIZE, SMALL, Canvas, Point
from clearhead.draw.figure import COLUMN, Figure, Sheet
from clearhead.draw.palette import HEADS, ROLES
from clearhead.draw.parts import note
from clearhead.errors import ConfigError
from clearhead.nn.attention import CrossProjection, MultiHeadAttention

__all__ = ["minimal_attention", "segment_recurrence"]


def minimal_attention(attention: MultiHeadAttention, *, on: Sheet = COLUMN) -> Figure:
    """One attention from its own module: three projections, scores, softmax, weighted values, W^O, with their sizes."""
    c = Canvas(on)
    q, k, v = attention.sizes
    across = isinstance(attention.project, CrossProjection)
    wide, high = min(60.0, (c.width - 24) / 3), 18.0
    xs = [c.left + c.width / 2 + i * (wide + 10) for i in (-1, 0, 1)]
    source = "context" if across else "x"
    foot = 176.0
    c.text((xs[0] if across else xs[1], foot), "x", bold=True)
    if across:
        c.text(((xs[1] + xs[2]) / 2, foot), source, bold=True)
    for x, role, size in zip(xs, ("query", "key", "value"), (q, k, v), strict=True):
        start = xs[0] if across and role == "query" else (xs[1] + xs[2]) / 2 if across else xs[1]
        c.arrow([(start, foot - 6), (start, foot - 10), (x, foot - 10), (x, foot - 18)], width=0.6)
        _box(c, (x, foot - 18), (wide, high), f"W {ROLES[role].letter}", f"{attention.width} → {size}", role)
    score = type(attention.score).__name__
    middle = (xs[0] + xs[1]) / 2
    turned = attention.positions.rotate is not None
    for x in xs[:2]:
        c.arrow([(x, 140.0), (x, 128.0)], width=0.6)
    added = " + positions" if attention.positions.bias is not None else ""
    name = f"{'turned ' if turned else ''}scores{added}"
    _box(c, (middle, 128.0), (2 * wide + 10, high), name, f"{score}, {attention.heads} heads", None)
    c.arrow([(middle, 110.0), (middle, 98.0)], width=0.6)
    _box(c, (middle, 98.0), (2 * wide + 10, high), "softmax", "each row sums to 1", None)
    c.arrow([(middle, 80.0), (middle, 68.0)], width=0.6)
    c.arrow([(xs[2], 140.0), (xs[2], 68.0)], width=0.6)
    sizes = f"{attention.heads} × {attention.head_width}"
    _box(c, (xs[1], 68.0), (3 * wide + 20, high), "weights × values", sizes, "value")
    c.arrow([(xs[1], 50.0), (xs[1], 38.0)], width=0.6)
    _box(c, (xs[1], 38.0), (3 * wide + 20, high), "W O", f"{q} → {attention.out.out_features}", "output")
    c.arrow([(xs[1], 20.0), (xs[1], 8.0)], width=0.6)
    return c.finish(foot + 6, f"{'cross' if across else 'self'}-attention of {attention.heads} heads")


def _box(c: Canvas, foot: Point, size: Point, name: str, sizes: str, role: str | None) -> None:
    """A box that stands on a point, with its sizes in a second line."""
    at = (foot[0] - size[0] / 2, foot[1] - size[1])
    c.box(at, size, fill=ROLES[role].colour if role else c.theme.fill, edge=c.theme.faint)
    ink = c.theme.ink if role is None else "#FFFFFF" if role == "query" else "#000000"
    c.text((foot[0], at[1] + 6), name, colour=ink, size=SIZE)
    c.text((foot[0], at[1] + 13), sizes, colour=ink, size=SMALL)


def segment_recurrence(layers: int, length: int, memory: int, *, segments: int = 2, on: Sheet = COLUMN) -> Figure:
    """Segment recurrence [dai2019 §3.2]: each place reads `memory` places back in the layer below, over segments' ends.

    What the last segment's last place can see of the first layer is in colour: layers · memory places back.
    """
    if min(layers, length, segments) < 1 or memory < 0:
        raise ConfigError(f"there is nothing to draw: {layers=}, {length=}, {memory=}, {segments=}")
    places = segments * length
    if places > 48 or layers > 12:
        raise ConfigError(f"there is room for 48 places and 12 layers, not {places} and {layers}")
    c = Canvas(on)
    step = min(24.0, (c.width - 24) / places)
    x0, rise = c.left + 20, 26.0
    base = 14 + layers * rise

    def at(layer: int, place: int) -> Point:
        return x0 + (place + 0.5) * step, base - layer * rise

    seen = {layers: {places - 1}}
    for layer in range(layers, 0, -1):
        seen[layer - 1] = {p for q in seen[layer] for p in range(max(0, q - memory), q + 1)}
        for place in range(places):
            for read in range(max(0, place - memory), place + 1):
                on_path = place in seen[layer]
                colour, width = (HEADS[4], 0.9) if on_path else (c.theme.faint, 0.25)
                c.line([at(layer - 1, read), at(layer, place)], colour=colour, width=width)
    for layer in range(layers + 1):
        c.text((c.left + 12, base - layer * rise), str(layer), size=SMALL)
        for place in range(places):
            fill = HEADS[4] if place in seen[layer] else c.theme.fill
            c.dot(at(layer, place), min(3.5, step * 0.3), fill=fill, edge=c.theme.faint)
    for segment in range(segments):
        left = x0 + segment * length * step
        c.box((left + 1, 5), (length * step - 2, base + 3), edge=c.theme.faint, dashed=True)
        c.text((left + length * step / 2, base + 14), f"segment {segment + 1}", size=SMALL)
    says = f"{len(seen[0])} of {places} places reach the last one through {layers} layers, {memory} back in each"
    return c.finish(note(c, base + 20, says), says)
