"""Where the numbers of the stream came from: embeddings, norms, residuals, feed-forward layers, the way out.

A norm is linear once its mean and deviation are held: (x − μ) / σ · g + b = x · g/σ − μ · g/σ + b, for each part of x.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from clearhead.nn.embed import TokenEmbedding
from clearhead.nn.feedforward import FeedForward
from clearhead.nn.heads import Unembedding, WordHead
from clearhead.nn.norm import ScaleNorm, fix_norm
from clearhead.nn.residual import Residual, Scale, unchanged
from clearhead.nn.stack import DenseCombination
from clearhead.tasks.cells import Explain, Made, Place, Term, dot, in_words, unexplained

__all__ = [
    "Slot",
    "Values",
    "added",
    "bent",
    "hidden",
    "logits",
    "mixed",
    "placed",
    "projected",
    "spelled",
    "through",
]

Values = Callable[[str], Tensor]  # the numbers of the quantity of that name
Slot = Callable[[Tensor], Tensor]


class _Line(NamedTuple):
    """What a module does to one feature of a vector: times a number, plus others that have names."""

    name: str
    times: float
    plus: list[Term]


def _line(module: Slot, whole_D: Tensor, column: int) -> _Line | None:
    """The module at this vector, its statistics held; None where it does not act on vectors in a known way."""
    x_D = whole_D.double()
    match module:
        case nn.LayerNorm():
            gain = 1.0 if module.weight is None else float(module.weight[column])
            times = gain * float((x_D.var(correction=0) + module.eps).rsqrt())
            plus = [Term.of("− mean · gain / deviation", (-float(x_D.mean()), None), (times, None))]
            if module.bias is not None:
                plus.append(Term.of("bias of the norm", (float(module.bias[column]), None)))
            return _Line("LayerNorm", times, plus)
        case nn.RMSNorm():
            eps = torch.finfo(whole_D.dtype).eps if module.eps is None else module.eps
            gain = 1.0 if module.weight is None else float(module.weight[column])
            return _Line("RMSNorm", gain * float((x_D.square().mean() + eps).rsqrt()), [])
        case ScaleNorm():
            return _Line("ScaleNorm", float(module.gain) / max(float(x_D.norm()), module.eps), [])
        case Scale():
            return _Line("Scale", float(module.gain.expand(len(whole_D))[column]), [])
        case nn.Identity():
            return _Line("", 1.0, [])
    return _Line("", 1.0, []) if module is unchanged else None


def _passed(line: _Line, parts: Sequence[Term]) -> list[Term]:
    """The terms behind the module, and those that it adds."""
    if line.times == 1.0 and not line.plus:
        return list(parts)
    label = "{} · gain / deviation" if line.name.endswith("Norm") else "{} · scale"
    times = (line.times, None)
    each = [Term.of(label.format(p.label), *zip(p.factors, p.came, strict=True), times) for p in parts]
    return [*each, *line.plus]


def through(module: Slot, source: str, values: Values) -> Explain:
    """A module on the vectors of another quantity."""

    def made(place: Place) -> Made:
        x_D = values(source)[place.row]
        line = _line(module, x_D, place.column)
        if line is None:
            return unexplained(f"what a {type(module).__name__} makes of a vector is not taken apart here")
        cell = (float(x_D[place.column]), Place(source, None, place.row, place.column))
        terms = _passed(line, [Term.of("x", cell)])
        if not line.name:
            return Made(f"{in_words(source)} as it is", "x", terms)
        if line.name == "Scale":
            return Made(f"{in_words(source)} scaled", "g · x", terms)
        return Made(f"{line.name} of {in_words(source)} at this position", FORMULAS[line.name], terms, "norm")

    return made


FORMULAS = {
    "LayerNorm": "(x − mean) / deviation · g + b",
    "RMSNorm": "x / √mean(x²) · g",
    "ScaleNorm": "x / ‖x‖ · g",
}


def added(residual: Residual, incoming: str, branch: str, values: Values) -> Explain:
    """after(keep(x) + branch): the stream behind a sub-layer."""

    def made(place: Place) -> Made:
        row, column = place.row, place.column
        x_D, branch_D = values(incoming)[row], values(branch)[row]
        keep = _line(residual.keep, x_D, column)
        after = None if keep is None else _line(residual.after, residual.keep(x_D) + branch_D, column)
        if keep is None or after is None:
            return unexplained("this residual has a part that is not taken apart here")
        before = Term.of("the stream before", (float(x_D[column]), Place(incoming, None, row, column)))
        new = Term.of("what the sub-layer adds", (float(branch_D[column]), Place(branch, None, row, column)))
        terms = _passed(after, [*_passed(keep, [before]), new])
        if not after.name:
            return Made("the stream and what this sub-layer adds to it", "x + F(x)", terms)
        return Made(
            f"{after.name} of the stream and what this sub-layer adds", f"{after.name}(x + F(x))", terms, "norm"
        )

    return made


def mixed(combine: DenseCombination, sources: Sequence[str], values: Values) -> Explain:
    """Σ_k W_k LN(y_k) over all layers below."""

    def made(place: Place) -> Made:
        terms = []
        shares = combine.weights[len(sources) - 1].tolist()
        for source, norm, share in zip(sources, combine.norms, shares, strict=False):
            x_D = values(source)[place.row]
            line = _line(norm, x_D, place.column)
            assert line is not None
            part = Term.of(source, (float(x_D[place.column]), Place(source, None, place.row, place.column)))
            shared = [(term.label, zip(term.factors, term.came, strict=True)) for term in _passed(line, [part])]
            terms += [Term.of(f"{label} · share", *factors, (share, None)) for label, factors in shared]
        return Made("a learned mixture of all layers below, each normalised", "Σ_k W_k LN(y_k)", terms, "norm")

    return made


def projected(linear: nn.Linear, source: str, values: Values, scale: float = 1.0) -> Explain:
    """scale · Σ_i x_i W_i + b."""

    def made(place: Place) -> Made:
        x_W, weight_W = values(source)[place.row], linear.weight[place.column].detach().cpu() * scale
        terms = dot(x_W, weight_W, "x·W", lambda at: Place(source, None, place.row, at))
        terms += _bias(linear, place.column)
        return Made(f"{in_words(source)} at this position times a column of a matrix", "Σ_i x_i W_i + b", terms)

    return made


def _bias(linear: nn.Linear, column: int) -> list[Term]:
    return [] if linear.bias is None else [Term.of("bias", (float(linear.bias[column]), None))]


def hidden(feedforward: FeedForward, wide: str, values: Values) -> Explain:
    """f(z), or f(z) · z′ where the layer is gated: z′ stands as far behind z as there are neurons."""

    def made(place: Place) -> Made:
        z_W, width = values(wide)[place.row], feedforward.hidden
        columns = [place.column, place.column + width] if feedforward.activation.gated else [place.column]
        factors = tuple(float(z_W[column]) for column in columns)
        value = float(feedforward.activation.bend(z_W[place.column]))
        value = value * factors[1] if len(factors) > 1 else value
        label = "f(z) · z′" if len(factors) > 1 else "f(z)"
        came = tuple(Place(wide, None, place.row, column) for column in columns)
        return Made("the neuron, bent by its activation", label, [Term(label, factors, came, value)])

    return made


def bent(activation: Slot, source: str, values: Values) -> Explain:
    """f(z) of one number."""

    def made(place: Place) -> Made:
        z = values(source)[place.row, place.column]
        came = (Place(source, None, place.row, place.column),)
        return Made("bent by the activation", "f(z)", [Term("f(z)", (float(z),), came, float(activation(z)))])

    return made


def spelled(embed: TokenEmbedding, ids: Sequence[int]) -> Explain:
    """scale · E[token]: the end of every way."""

    def made(place: Place) -> Made:
        id = ids[place.row]
        if id == embed.blank:
            return Made("the start of an answer, which this model reads as zeros", "0", [])
        row_D = embed.tokens.weight[id].detach().cpu()
        entry, scale = float(row_D[place.column]), embed.scale
        if embed.fixed is not None:
            scale *= float(fix_norm(row_D, embed.fixed)[place.column]) / entry if entry else 0.0
        factors = [(entry, None)] + ([(scale, None)] if scale != 1.0 else [])
        label = f"E[{id}, {place.column}]"
        return Made("the token's own vector, a row of the embedding", label, [Term.of(label, *factors)])

    return made


def placed(embed: TokenEmbedding, name: str, values: Values) -> Explain:
    """The token's vector, its segment's, and its position's."""

    def made(place: Place) -> Made:
        row, column = place.row, place.column
        token = float(values(f"{name}.tokens")[row, column])
        terms = [Term.of("the token", (token, Place(f"{name}.tokens", None, row, column)))]
        if embed.segments is not None:
            terms.append(Term.of("the segment", (float(embed.segments.weight[0, column]), None)))
        device, width = embed.tokens.weight.device, embed.tokens.embedding_dim
        nothing_BLD, position_BL = torch.zeros(1, 1, width, device=device), torch.tensor([[row]], device=device)
        position = float(embed.place(nothing_BLD, position_BL)[0, 0, column])
        if position:
            terms.append(Term.of(f"position {row}", (position, None)))
        return Made("the token's vector with what tells where it stands", "token + position", terms)

    return made


def logits(head: Unembedding | WordHead, source: str, values: Values) -> Explain:
    """scale · x Eᵀ + b: how well the vector fits each word's."""
    words = head if isinstance(head, Unembedding) else head.words
    inner = projected(words.linear, source, values, words.scale)

    def made(place: Place) -> Made:
        found = inner(place)
        return Made(
            f"how well {in_words(source)} at this position fits the vector of word {place.column}",
            "Σ_i x_i E_i + b",
            found.terms,
        )

    return made
