"""One palette for every figure: fixed roles, two scales, and signs for what is no number on a scale.

Roles come from the Okabe–Ito set, which colour-blind readers can tell apart, and always go with their letter. A masked
cell is hatched and never has a colour of the scale; NaN and the infinities have glyphs of their own.
"""

from dataclasses import dataclass

__all__ = [
    "DARK",
    "GLYPHS",
    "HEADS",
    "HIGH",
    "LIGHT",
    "LOW",
    "MASKED",
    "MIDDLE",
    "ROLES",
    "SEQUENTIAL",
    "Role",
    "Theme",
]


@dataclass(frozen=True)
class Role:
    """What a colour stands for, wherever it is seen; the letter says it to those who do not see the colour."""

    letter: str
    colour: str


@dataclass(frozen=True)
class Theme:
    """The ground and what is written on it.

    paper, ink    background and text
    faint         lines and words of less weight
    fill          boxes that play no role
    """

    paper: str
    ink: str
    faint: str
    fill: str


LIGHT = Theme(paper="#FFFFFF", ink="#1A1A1A", faint="#757575", fill="#EFEFEF")
DARK = Theme(paper="#16181D", ink="#EDEDED", faint="#9A9A9A", fill="#2B2F38")

ROLES: dict[str, Role] = {
    "query": Role("Q", "#0072B2"),
    "key": Role("K", "#E69F00"),
    "value": Role("V", "#009E73"),
    "output": Role("Z", "#CC79A7"),
}

# The heads of one picture, in this order; a head's number always stands beside its colour.
HEADS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9", "#F0E442", "#8C8C8C")

SEQUENTIAL = "cividis"
LOW, MIDDLE, HIGH = "#0072B2", "#FFFFFF", "#E69F00"  # the diverging scale: blue, white, orange
MASKED = "//////"
GLYPHS = {"nan": "×", "+inf": "+∞", "-inf": "−∞"}
