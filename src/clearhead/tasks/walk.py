"""The way back from any number of a recording to the embedding: who reads what, in the order of the model."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from clearhead.nn.attention import MultiHeadAttention
from clearhead.nn.feedforward import FeedForward
from clearhead.nn.heads import Unembedding, WordHead
from clearhead.nn.residual import Residual, unchanged
from clearhead.nn.stack import DenseCombination, Stack
from clearhead.tasks.cells import Cell, Explain, Place, explained, unexplained
from clearhead.tasks.cells_attention import AttentionCells
from clearhead.tasks.cells_stream import Slot, added, bent, hidden, logits, mixed, placed, projected, spelled, through
from clearhead.tasks.inspecting import Inspection, Shown
from clearhead.tasks.overview import EMBEDS, Sublayer, plain_name, stacks, sublayers

__all__ = ["Walk", "cell_of", "tensor_of"]


END = unexplained("how this number came about is not taken apart further here")


def cell_of(inspection: Inspection, place: Place) -> Cell | None:
    """How that number came about; None where there is no quantity of that name."""
    return Walk(inspection).cell(place)


def tensor_of(inspection: Inspection, name: str) -> Shown | None:
    """What passed the tap of that name, or what is made of such: all that cells come from."""
    return Walk(inspection).shown(name)


class Walk:
    """Every quantity of an inspection that can be explained, by name."""

    def __init__(self, inspection: Inspection) -> None:
        self.inspection, self.viewer = inspection, inspection.viewer
        self.explanations: dict[str, Explain] = {}
        self.without_tap: dict[str, Callable[[], Shown]] = {}
        self.streams: dict[str, str] = {}  # of each block, the quantity that leaves it
        self._made: dict[str, Tensor] = {}
        layers = sublayers(self.viewer)
        for name, stack, side in stacks(self.viewer):
            self._embedding(EMBEDS[side], side)
            own = [layer for layer in layers if layer[0].block.startswith(f"{name}.")]
            self._stack(name, stack, self._start(EMBEDS[side]), own)
        self._head(name)

    @torch.no_grad()
    def cell(self, place: Place) -> Cell | None:
        """How that number came about; None where there is no quantity of that name."""
        shown = self.shown(place.tap)
        if shown is None:
            return None
        return explained(shown.tensor, place, self.explanations.get(place.tap, lambda place: END))

    @torch.no_grad()
    def shown(self, name: str) -> Shown | None:
        """The numbers of a quantity and their axes; None where there is none of that name, or nothing passes there."""
        if name in self.inspection:
            return self.inspection.tensor(name)
        return self.without_tap[name]() if name in self.without_tap else None

    @torch.no_grad()
    def values(self, name: str) -> Tensor:
        """The numbers of a quantity: recorded, or made once."""
        if name in self.inspection:
            return self.inspection.at(name)
        if name not in self._made:
            self._made[name] = self.without_tap[name]().tensor
        return self._made[name]

    def _make(self, name: str, module: Slot, source: str, explain: Explain, axes: str = "LD") -> str:
        """A quantity that passes no tap: what a module makes of another."""
        self.explanations[name] = explain
        self.without_tap[name] = lambda: Shown(module(self.values(source)), axes)
        return name

    def _embedding(self, name: str, side: str) -> None:
        embed = self.viewer.model.get_submodule(name)
        self.explanations[f"{name}.tokens"] = spelled(embed, self.inspection.view.sides[side].ids)
        self.explanations[f"{name}.placed"] = placed(embed, name, self.values)
        self.explanations[f"{name}.sum"] = through(embed.norm, f"{name}.placed", self.values)

    def _start(self, embed: str) -> str:
        """The stream before the first layer: the embedding, widened where it is narrow (ALBERT)."""
        widen = getattr(self.viewer.model, "widen", None)
        if not isinstance(widen, nn.Linear):
            return f"{embed}.sum"
        return self._make("widen", widen, f"{embed}.sum", projected(widen, f"{embed}.sum", self.values))

    def _stack(self, name: str, stack: Stack, start: str, layers: list[list[Sublayer]]) -> None:
        seen = [start]
        for layer in layers:
            incoming = self._combined(name, stack, seen)
            leaving = incoming
            for one in layer:
                leaving = self._sublayer(one, leaving)
            off = plain_name(layer[0].block)[0] in self.inspection.view.off.layers
            seen.append(incoming if off else leaving)
            self.streams[layer[0].block] = seen[-1]
        self.explanations[f"{name}.output"] = through(stack.norm, self._combined(name, stack, seen), self.values)

    def _combined(self, name: str, stack: Stack, seen: list[str]) -> str:
        """What the next layer reads of those below."""
        combine, below = stack.combine, list(seen)
        if not isinstance(combine, DenseCombination):
            return below[-1]
        combined = f"{name}.combined.{len(below) - 1}"
        self.explanations[combined] = mixed(combine, below, self.values)
        self.without_tap[combined] = lambda: Shown(combine([self.values(one) for one in below]), "LD")
        return combined

    def _sublayer(self, one: Sublayer, incoming: str) -> str:
        """A sub-layer and its residual; the quantity that leaves it."""
        path, _ = plain_name(one.residual)
        residual = self.viewer.model.get_submodule(path)
        assert isinstance(residual, Residual)
        given = incoming
        if residual.before is not unchanged:
            made = through(residual.before, incoming, self.values)
            given = self._make(f"{one.residual}.before", residual.before, incoming, made)
        if isinstance(one.module, MultiHeadAttention):
            self._attention(one, one.module, given)
        else:
            self._feedforward(one, given)
        branch, said = f"{one.residual}.branch", f"{one.name}.output"
        self.explanations[branch] = through(residual.branch, said, self.values)
        self.explanations[f"{one.residual}.sum"] = added(residual, incoming, branch, self.values)
        return f"{one.residual}.sum"

    def _attention(self, one: Sublayer, attention: MultiHeadAttention, given: str) -> None:
        sides = self.inspection.view.sides
        cells = AttentionCells(
            one.name,
            attention,
            self.values,
            reads=(given, "encoder.output" if one.kind == "cross" else given),
            tokens=(sides[one.queries].tokens, sides[one.keys].tokens),
            off=frozenset(self.inspection.view.off.heads.get(plain_name(one.name)[0], ())),
        )
        self.explanations |= cells.explanations()
        self.without_tap |= cells.without_tap()

    def _feedforward(self, one: Sublayer, given: str) -> None:
        said, module = f"{one.name}.output", one.module
        if not isinstance(module, FeedForward):
            end = unexplained(f"what a {type(module).__name__} says is not taken apart here")
            self._make(said, lambda x_LD: module(x_LD[None])[0], given, lambda place: end)
            return
        wide = f"{one.name}.wide"
        self._make(wide, module.widen, given, projected(module.widen, given, self.values), "LF")
        self.explanations[f"{one.name}.hidden"] = hidden(module, wide, self.values)
        neurons = f"{one.name}.hidden"
        self._make(said, module.narrow, neurons, projected(module.narrow, neurons, self.values))

    def _head(self, stack: str) -> None:
        """The way out, where there is one to words."""
        model, source = self.viewer.model, f"{stack}.output"
        output, word_head = (getattr(model, name, None) for name in ("output", "word_head"))
        if isinstance(output, Unembedding):
            self.explanations["output.logits"] = logits(output, source, self.values)
        if isinstance(word_head, WordHead):
            bend = word_head.activation.bend
            dense = self._make(
                "word_head.dense", word_head.dense, source, projected(word_head.dense, source, self.values)
            )
            curved = self._make("word_head.bent", bend, dense, bent(bend, dense, self.values))
            normed = self._make(
                "word_head.normed", word_head.norm, curved, through(word_head.norm, curved, self.values)
            )
            self.explanations["word_head.words.logits"] = logits(word_head, normed, self.values)
