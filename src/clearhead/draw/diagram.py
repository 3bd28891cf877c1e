"""Diagrams of architectures, generated from a model's own modules: encoder left, decoder right, as is customary."""

from collections.abc import Mapping

from torch import nn

from clearhead.draw.canvas import SIZE, SMALL, Canvas
from clearhead.draw.figure import COLUMN, Figure, Sheet
from clearhead.draw.palette import HEADS
from clearhead.draw.wiring import BlockPlan, Part, SublayerPlan, Tower, plan, sublayer_plan
from clearhead.draw.words import fit, width_of
from clearhead.errors import ConfigError
from clearhead.nn.residual import Residual

__all__ = ["DEPTHS", "architecture", "norm_placements"]

DEPTHS = ("black box", "stack", "block", "two blocks")
KINDS = {"attention": HEADS[1], "feedforward": HEADS[5], "norm": HEADS[6], "embed": HEADS[3], "head": HEADS[2]}
GAP = 7.0
LANE = 8.0  # between a box and the arrow that goes around it


class _Pen:
    """Draws upwards: `y` is the upper end of what stands there already; boxes are centred on `x`."""

    def __init__(self, c: Canvas, x: float, width: float, y: float) -> None:
        self.c, self.x, self.width, self.y = c, x, width, y
        self.crossings: list[float] = []  # heights at which a context comes in

    def up(self, by: float = GAP, *, head: bool = False) -> None:
        """A piece of the stream."""
        ends = [(self.x, self.y), (self.x, self.y - by)]
        if head:
            self.c.arrow(ends, width=0.6)
        else:
            self.c.line(ends, width=0.6)
        self.y -= by

    def box(self, part: Part) -> None:
        """A part, with its sizes in a second line where it has some."""
        high = 18.0 if part.sizes else 11.0
        self.y -= high
        at = (self.x - self.width / 2, self.y)
        fill = KINDS.get(part.kind, self.c.theme.fill)
        self.c.box(at, (self.width, high), fill=fill, edge=self.c.theme.faint, label="" if part.sizes else part.name)
        if part.sizes:
            ink = "#000000"
            self.c.text((self.x, self.y + 6), fit(part.name, self.width - 3, SIZE), colour=ink)
            self.c.text((self.x, self.y + 13), fit(part.sizes, self.width - 3, SMALL), size=SMALL, colour=ink)

    def sublayer(self, of: SublayerPlan) -> None:
        """Up through the sub-layer, and around it what is kept."""
        self.up(4)
        fork = self.y
        for part in (of.before, of.sublayer, of.branch):
            if part is not None:
                self.up(GAP, head=True)
                self.box(part)
                if part.name == "cross-attention":
                    self.crossings.append(self.y + 9)
        if of.kept:
            self.up(5)
            self.y -= 4
            lane = self.x + self.width / 2 + LANE
            self.c.arrow([(self.x, fork), (lane, fork), (lane, self.y), (self.x + 4, self.y)], width=0.6)
            self.c.dot((self.x, self.y), 4, edge=self.c.theme.ink, label="+")
            if of.keep is not None:
                wide = max(11.0, width_of(of.keep.name, SMALL) + 4)
                at = (max(lane - wide / 2, self.x + self.width / 2 + 1.5), (fork + self.y) / 2 - 4.5)
                self.c.box(at, (wide, 9.0), fill=self.c.theme.fill, edge=self.c.theme.faint, label=of.keep.name,
                           type_size=SMALL)  # fmt: skip
            self.y -= 4
        if of.after is not None:
            self.up(5, head=True)
            self.box(of.after)

    def block(self, of: BlockPlan, label: str) -> None:
        """A block in its frame, with its number of repetitions at the left."""
        start = self.y
        self.up(4)
        for sublayer in of.sublayers:
            self.sublayer(sublayer)
        self.up(5)
        at = (self.x - self.width / 2 - 5, self.y)
        self.c.box(at, (self.width + LANE + 14, start - self.y), edge=self.c.theme.faint, dashed=True)
        self.c.text((at[0] - 3, (start + self.y) / 2), label, align=("right", "center"), bold=True)


def _tower_blocks(pen: _Pen, tower: Tower, depth: str) -> None:
    """The blocks of a tower at one depth of zoom."""
    if depth == "black box":
        pen.box(Part(tower.name, f"{tower.layers} layers", "attention"))
    elif depth == "stack":
        for number in range(1, tower.layers + 1) if tower.layers <= 12 else (1, 2, 0, tower.layers):
            if number == 0:
                pen.up(16)
                pen.c.text((pen.x + 5, pen.y + 8), "⋮", align=("left", "center"))
            else:
                pen.box(Part(f"{tower.name} layer {number}", "", "attention"))
                pen.crossings.append(pen.y + 5.5)
            if number != tower.layers:
                pen.up(GAP, head=True)
    elif depth == "block":
        for i, (of, count) in enumerate(tower.blocks):
            pen.up(GAP) if i else None
            pen.block(of, f"{count} ×")
    else:
        layers = [of for of, count in tower.blocks for _ in range(count)]
        for number, of in enumerate(layers[:2], start=1):
            pen.up(GAP) if number > 1 else None
            pen.block(of, str(number))
        if len(layers) > 2:
            pen.up(14)
            pen.c.text((pen.x + 5, pen.y + 7), f"⋮ {len(layers)} in all", align=("left", "center"), size=SMALL)


def architecture(model: nn.Module, *, depth: str = "block", on: Sheet = COLUMN) -> Figure:
    """Any model of the family at one of `DEPTHS` of zoom, bottom to top."""
    if depth not in DEPTHS:
        raise ConfigError(f"a diagram is drawn at a depth of {list(DEPTHS)}, not {depth!r}")
    towers = plan(model)
    c = Canvas(on)
    room = c.width / len(towers)
    width = min(room - LANE - 36, 110.0)
    pens: list[_Pen] = []
    for i, tower in enumerate(towers):
        # y = 0 is the foot of every tower and they grow upwards; the whole is moved down at the end
        pen = _Pen(c, c.left + i * room + 22 + width / 2 if len(towers) > 1 else c.left + room / 2, width, 0.0)
        for part in tower.below:
            pen.box(part)
            pen.up(GAP, head=True)
        first = pen.y
        _tower_blocks(pen, tower, depth)
        for part in tower.above:
            pen.up(GAP, head=True)
            pen.box(part)
        _heads(pen, tower, room)
        if depth == "black box":
            pen.crossings = [first - 9]
        if tower.dense:
            pen.up(8)
            c.text((pen.x, pen.y - 4), "each layer reads all below", size=SMALL, colour=c.theme.faint)
        pens.append(pen)
    if len(pens) > 1:
        _cross(c, pens[0], pens[1])
    top = min(pen.y for pen in pens) - 6
    figure = c.finish(-top, f"{type(model).__name__} at the depth of a {depth}: {', '.join(t.name for t in towers)}")
    c.axes.set_ylim(4, top - 4)
    return figure


def _heads(pen: _Pen, tower: Tower, room: float) -> None:
    """What is asked of the last vectors: one chain straight on, several side by side."""
    count, foot = len(tower.heads), pen.y
    wide = pen.width if count == 1 else min(pen.width, (room - 8) / max(count, 1) - 6)
    tops = []
    for i, chain in enumerate(tower.heads):
        one = _Pen(pen.c, pen.x + (i - (count - 1) / 2) * (wide + 6), wide, foot)
        if count > 1:
            one.y = foot - 6
            pen.c.line([(pen.x, foot), (pen.x, one.y), (one.x, one.y)], width=0.6)
        for part in chain:
            one.up(GAP, head=True)
            one.box(part)
        one.up(10, head=True)
        tops.append(one.y)
    pen.y = min(tops, default=pen.y)


def _cross(c: Canvas, encoder: _Pen, decoder: _Pen) -> None:
    """From the top of the encoder to every place where the decoder reads it."""
    encoder.up(8)
    lane = encoder.x + encoder.width / 2 + LANE + 13
    left = decoder.x - decoder.width / 2
    foot = max(decoder.crossings)
    c.line([(encoder.x, encoder.y), (lane, encoder.y), (lane, foot)], width=0.8, colour=HEADS[0])
    c.line([(lane, encoder.y), (lane, min(decoder.crossings))], width=0.8, colour=HEADS[0])
    for y in decoder.crossings:
        c.arrow([(lane, y), (left, y)], width=0.8, colour=HEADS[0])
    c.text((lane - 2, encoder.y - 4), "K, V", size=SMALL, align=("right", "center"), colour=c.tone("query"))


def norm_placements(residuals: Mapping[str, Residual], *, on: Sheet = COLUMN) -> Figure:
    """Where the norm stands: each placement as a diagram and a formula, from the slots of its residual."""
    if not residuals:
        raise ConfigError("there is no residual to draw")
    c = Canvas(on)
    across = min(len(residuals), max(1, int(c.width // 76)))
    room, high = c.width / across, 112.0
    rows = -(-len(residuals) // across)
    for i, (name, residual) in enumerate(residuals.items()):
        of = sublayer_plan(residual, Part("F", "", "attention"))
        row, column = divmod(i, across)
        pen = _Pen(c, c.left + (column + 0.42) * room, min(44.0, room - 30), (row + 1) * high - 18)
        pen.up(4)
        pen.sublayer(of)
        pen.up(7, head=True)
        foot = (row + 1) * high
        c.text((c.left + column * room, foot - 11), fit(name, room - 3, SIZE), align=("left", "center"), bold=True)
        c.text(
            (c.left + column * room, foot - 3), fit(of.formula, room - 3, SMALL), size=SMALL, align=("left", "center")
        )
    return c.finish(rows * high + 4, "placements of the norm: " + ", ".join(residuals))
