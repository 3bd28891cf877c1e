"""Positions: what tells one place in the sequence from another.

The literature puts position in four places, and a scheme fills one or two of them:

    embed   x_BLD plus a vector that depends on the position        sinusoidal, learned
    rotate  q and k turned by an angle that grows with the position rotary
    bias    a term on the score                                     Shaw, T5, ALiBi, Transformer-XL
    value   a term on the value that is read                        Shaw's second one

Empty places are None or leave things unmoved, so that nobody asks which scheme is in use.
"""

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor, nn

from clearhead.nn.positions_absolute import LearnedEmbedding, SinusoidalEmbedding
from clearhead.nn.positions_relative import AlibiBias, BucketBias, DistanceBias, DistanceValue, SinusoidalDistanceBias
from clearhead.nn.positions_rotary import Rotation, Stretch

__all__ = [
    "POSITIONS",
    "Place",
    "Positions",
    "Unmoved",
    "alibi",
    "learned",
    "none",
    "rotary",
    "rotary_interleaved",
    "shaw",
    "sinusoidal",
    "sinusoidal_halves",
    "t5",
    "transformer_xl",
]


@dataclass(frozen=True)
class Place:
    """The sizes that a scheme may ask for; each row below takes what it needs.

    length    the longest sequence, for schemes that hold a vector per place
    causal    only the past is seen, so distances have one sign
    base      of the wavelengths (sinusoidal, rotary); they run from 2π to 2π · base
    stretch   of the wavelengths, for longer texts (rotary)
    clip      distances beyond this count as this (Shaw)
    buckets   how many groups of distances, and from which distance on all fall into the last (T5)
    """

    width: int
    heads: int
    head_width: int
    length: int = 1024
    causal: bool = False
    base: float = 10_000.0
    stretch: Stretch | None = None
    clip: int = 16
    buckets: int = 32
    farthest: int = 128


class Positions(nn.Module):
    """One scheme: embed(x, position_BL) · rotate(q or k, position_BL) · bias(q, k, position_BL) · value(w, …).

    `another` makes the scheme anew where each layer has parameters of its own; otherwise all layers share them.
    """

    def __init__(
        self,
        *,
        embed: nn.Module | None = None,
        rotate: nn.Module | None = None,
        bias: nn.Module | None = None,
        value: nn.Module | None = None,
        another: Callable[[], "Positions"] | None = None,
    ) -> None:
        super().__init__()
        self.embed = Unmoved() if embed is None else embed
        self.rotate = rotate
        self.bias = bias
        self.value = value
        self.another = another

    def for_layer(self) -> "Positions":
        """What one attention layer is given: all but the embedding, and its own copy where parameters are its own."""
        mine = self if self.another is None else self.another()
        return Positions(rotate=mine.rotate, bias=mine.bias, value=mine.value)


class Unmoved(nn.Module):
    """The embedding of no position: x as it is."""

    def forward(self, x_BLD: Tensor, position_BL: Tensor) -> Tensor:
        return x_BLD


def none(at: Place) -> Positions:
    """No position at all: attention over a set."""
    return Positions()


def sinusoidal(at: Place) -> Positions:
    """Sines and cosines in turn [vaswani2017 §3.5]."""
    return Positions(embed=SinusoidalEmbedding(at.width, at.base))


def sinusoidal_halves(at: Place) -> Positions:
    """The same columns in another order: all sines, then all cosines (tensor2tensor, Marian)."""
    return Positions(embed=SinusoidalEmbedding(at.width, at.base, halves=True))


def learned(at: Place) -> Positions:
    """A learned vector for each of `length` places [devlin2019; radford2019]."""
    return Positions(embed=LearnedEmbedding(at.length, at.width))


def rotary(at: Place) -> Positions:
    """Pairs (i, i + K/2) of each head turned by position · θ_i [su2021], in the order that Llama uses."""
    return Positions(rotate=Rotation(at.head_width, at.base, stretch=at.stretch))


def rotary_interleaved(at: Place) -> Positions:
    """Pairs (2i, 2i + 1), as the paper writes them [su2021 §3.2.2]."""
    return Positions(rotate=Rotation(at.head_width, at.base, interleaved=True, stretch=at.stretch))


def shaw(at: Place) -> Positions:
    """A learned vector per clipped distance, on keys and on values, shared by the heads [shaw2018 eq. 3, 4]."""
    return Positions(
        bias=DistanceBias(at.head_width, at.clip),
        value=DistanceValue(at.head_width, at.clip),
        another=lambda: shaw(at),
    )


def t5(at: Place) -> Positions:
    """A learned number per head and bucket of distances, shared by all layers [raffel2020 §2.1]."""
    return Positions(bias=BucketBias(at.heads, at.buckets, at.farthest, causal=at.causal))


def alibi(at: Place) -> Positions:
    """A penalty that grows with the distance, at a slope per head [press2022 §3]."""
    return Positions(bias=AlibiBias(at.heads))


def transformer_xl(at: Place) -> Positions:
    """A sinusoid of the distance, projected, and learned biases in place of the query's position [dai2019 §3.3]."""
    return Positions(bias=SinusoidalDistanceBias(at.heads, at.head_width, at.base), another=lambda: transformer_xl(at))


POSITIONS: dict[str, Callable[[Place], Positions]] = {
    "none": none,
    "sinusoidal": sinusoidal,
    "sinusoidal_halves": sinusoidal_halves,
    "learned": learned,
    "rotary": rotary,
    "rotary_interleaved": rotary_interleaved,
    "shaw": shaw,
    "t5": t5,
    "alibi": alibi,
    "transformer_xl": transformer_xl,
}
