"""Where a number came from: any cell of a recording as a sum of terms, each with the cells that it was made of.

    weights ← softmax of masked ← scaled + bias ← scores ← Σ q k ← q = Σ x W + b ← x = norm(stream)
    ← the stream = what it was + what a sub-layer added ← … ← the vector of a token + its position

What has no tap of its own, such as what a norm before a sub-layer gives, has a name here all the same, and cells.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from clearhead.errors import DataError

__all__ = ["Cell", "Explain", "Made", "Place", "Term", "dot", "explained", "in_words", "unexplained"]

MOST = 32  # terms by themselves; the others are summed up


class Place(NamedTuple):
    """One number of one quantity; where it has no heads, `head` is None."""

    tap: str
    head: int | None
    row: int
    column: int


@dataclass(frozen=True)
class Term:
    """A part of a number: the product of its factors, unless its label names a function of them.

    came   for each factor the cell that it is, or None where it is a weight of the model
    """

    label: str
    factors: tuple[float, ...]
    came: tuple[Place | None, ...]
    value: float

    @staticmethod
    def of(label: str, *factors: tuple[float, Place | None]) -> "Term":
        """The product of factors, each with the cell that it is."""
        values = tuple(float(value) for value, _ in factors)
        return Term(label, values, tuple(place for _, place in factors), math.prod(values))


@dataclass(frozen=True)
class Made:
    """How a number was made: in words, as a formula, and from which terms.

    combine   sum: the terms add up · norm: they do too, with the mean and the deviation held · softmax: exp(own) over
              the sum of all exp(term), the own term being the first
    """

    says: str
    formula: str
    terms: Sequence[Term]
    combine: str = "sum"


Explain = Callable[[Place], Made]


def unexplained(says: str) -> Made:
    """The end of the way: a sentence, and no terms."""
    return Made(says, "", ())


@dataclass(frozen=True)
class Cell:
    """A number and how it was made; `rest` counts and combines the terms that are too small to be named."""

    place: Place
    value: float
    made: Made
    rest: tuple[int, float] | None

    def as_json(self) -> dict[str, Any]:
        """The same for the page; a number that is not finite is null, which JSON can say."""
        return {
            **self.place._asdict(),
            "value": _number(self.value),
            "says": self.made.says,
            "formula": self.made.formula,
            "combine": self.made.combine,
            "terms": [_term(term) for term in self.made.terms],
            "rest": None if self.rest is None else {"count": self.rest[0], "value": _number(self.rest[1])},
        }


def explained(tensor: Tensor, place: Place, explain: Explain) -> Cell:
    """The cell of a tensor at that place, and how it was made; refused where the tensor has none."""
    index = (place.row, place.column) if place.head is None else (place.head, place.row, place.column)
    if len(index) != tensor.dim() or not all(0 <= at < size for at, size in zip(index, tensor.shape, strict=True)):
        raise DataError(f"{place.tap!r} is of the shape {list(tensor.shape)} and has no cell {list(index)}")
    made, rest = _shortened(explain(place))
    return Cell(place, float(tensor[index]), made, rest)


def _shortened(made: Made) -> tuple[Made, tuple[int, float] | None]:
    """The largest terms, the own one of a softmax first; how many others there are, and what they come to."""
    if len(made.terms) <= MOST:
        return made, None
    softmax = made.combine == "softmax"
    size = [term.value if softmax else abs(term.value) for term in made.terms]
    if softmax:
        size[0] = math.inf
    kept = {*sorted(range(len(size)), key=lambda at: -size[at])[:MOST]}
    others = torch.tensor([term.value for at, term in enumerate(made.terms) if at not in kept], dtype=torch.float64)
    value = float(others.logsumexp(0) if softmax else others.sum())
    largest = [made.terms[at] for at in sorted(kept, key=lambda at: -size[at])]
    return replace(made, terms=largest), (len(others), value)


def dot(x_W: Tensor, weight_W: Tensor, name: str, came: Callable[[int], Place | None]) -> list[Term]:
    """x_i · w_i for each i, where x_i is the cell that `came` names."""
    pairs = zip(x_W.tolist(), weight_W.tolist(), strict=True)
    return [Term.of(f"{name}_{at}", (x, came(at)), (w, None)) for at, (x, w) in enumerate(pairs)]


# the last word of a quantity's name -> what it is
WORDS = {
    "tokens": "the token's vector",
    "placed": "the embedding before its norm",
    "sum": "the stream",
    "before": "the stream, normed,",
    "branch": "what the sub-layer adds",
    "hidden": "the neurons",
    "widen": "the embedding, widened,",
    "dense": "the word head's vector",
    "bent": "the word head's vector, bent,",
    "normed": "the word head's vector, normed,",
}


def in_words(name: str) -> str:
    """A quantity as people call it.

    >>> in_words("decoder.1.add_cross.before")
    'the stream, normed,'
    """
    *path, last = name.split(".")
    if last == "output":
        return f"what the {path[-1].replace('feedforward', 'feed-forward layer')} gives"
    return WORDS.get(last, "the layers below, mixed," if "combined" in path else name)


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _term(term: Term) -> dict[str, Any]:
    came = [None if place is None else place._asdict() for place in term.came]
    return {
        "label": term.label,
        "factors": [_number(factor) for factor in term.factors],
        "value": _number(term.value),
        "from": came if any(came) else None,
    }
