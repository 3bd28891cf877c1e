"""One text in one model, looked at from all sides: what a page shows, as plain values and tensors.

    inspection = inspect(Viewer(load_model("runs/demo")), "je suis étudiant")
    inspection.summary()                                the tokens, the answer, each head in a few numbers
    inspection.tensor("decoder.1.cross.weights")        what passed a tap, without the row dimension
    inspection.lens(), inspection.shares(2)             what each layer would say; what made a logit

Tensors are recorded when they are first asked for, those of one part together, and kept; `forget` lets go of them.
"""

from collections.abc import Iterable, Sequence
from functools import cache, partial
from typing import Any, NamedTuple, final

import torch
import torch.nn.functional as F
from torch import Tensor

from clearhead.errors import ConfigError, DataError
from clearhead.look.anatomy import anatomy
from clearhead.look.importance import by_gradient
from clearhead.look.lens import stream
from clearhead.nn.attention import MultiHeadAttention
from clearhead.nn.residual import unchanged
from clearhead.nn.scores import Dot
from clearhead.tap import named_taps, watching
from clearhead.tasks.head_statistics import head_statistics
from clearhead.tasks.overview import LONGEST, Sublayer, attentions_of, plain_name, sublayers, vocabulary_of
from clearhead.tasks.viewing import Off, Side, View, Viewer, shown

__all__ = ["Inspection", "Shown", "check_length", "inspect", "off_of"]

Json = dict[str, Any]
LIMIT = 1 << 30  # bytes that the tensors of one part may take
MOVES = 3  # words that are told of those that a layer made likelier, and of those that it made less likely


class Shown(NamedTuple):
    """A tensor, and the letters of its axes."""

    tensor: Tensor
    axes: str


def off_of(heads: dict[str, list[int]], layers: Sequence[str] = ()) -> Off:
    """What is switched off; a head or a layer that runs in several rounds is off in all of them."""
    plain: dict[str, list[int]] = {}
    for name, numbers in heads.items():
        plain.setdefault(plain_name(name)[0], []).extend(numbers)
    off = list(dict.fromkeys(plain_name(layer)[0] for layer in layers))
    return Off({name: sorted({*numbers}) for name, numbers in plain.items() if numbers}, off)


def check_length(viewer: Viewer, text: str, answer: str | None = None, longest: int = LONGEST) -> None:
    """Refuse what has more than `longest` tokens, before any model reads it."""
    given = (("text", text, viewer.parts.tokenizer), ("answer", answer, viewer.parts.writer))
    for what, said, tokenizer in given:
        count = 0 if said is None else len(tokenizer.encode(said))
        if count > longest:
            raise DataError(f"the {what} has {count} tokens, and here at most {longest} are looked at: shorten it")


def inspect(
    viewer: Viewer, text: str, answer: str | None = None, *, off: Off | None = None, longest: int = LONGEST
) -> "Inspection":
    """The text, with the model's own answer or a given one, if neither has more than `longest` tokens."""
    check_length(viewer, text, answer, longest)
    return Inspection(viewer.view(text, answer, off=off))


@final
class Inspection:
    """A view, and what was recorded of it so far."""

    def __init__(self, view: View) -> None:
        self.view, self.viewer = view, view.viewer
        self._kept: dict[str, list[Shown]] = {}
        self._owners = {name: name.rpartition(".")[0] for name in named_taps(self.viewer.model)}
        self._weights = [name for name in self._owners if name.endswith(".weights")]
        self.word = cache(partial(shown, tokenizer=self.viewer.writer))

    @property
    def nbytes(self) -> int:
        """The memory that the recorded tensors take."""
        return sum(shown.tensor.nbytes for values in self._kept.values() for shown in values)

    def forget(self) -> None:
        """Let go of what was recorded: it comes again when it is asked for."""
        self._kept.clear()

    def tensor(self, tap: str) -> Shown | None:
        """What passed that tap, without the row dimension; None where there is no such tap, or nothing passes it."""
        plain, turn = plain_name(tap)
        if tap not in self:
            return None
        if plain not in self._kept:
            self._record([name for name, owner in self._owners.items() if owner == self._owners[plain]])
        values = self._kept[plain]
        return values[turn] if turn < len(values) else None

    def __contains__(self, tap: object) -> bool:
        return isinstance(tap, str) and plain_name(tap)[0] in self._owners

    def at(self, tap: str) -> Tensor:
        """The same, where something certainly passes."""
        found = self.tensor(tap)
        if found is None:
            raise DataError(f"nothing passes a tap {tap!r} of this model")
        return found.tensor

    def record(self, names: Iterable[str]) -> None:
        """Record these taps in one pass, which is faster than one after the other."""
        self._record([*dict.fromkeys(plain_name(name)[0] for name in names)])

    def _record(self, names: Sequence[str]) -> None:
        missing = [name for name in names if name not in self._kept]
        if not missing:
            return
        # while all weights are watched every attention runs its explicit steps: one text, the same numbers to the bit
        with watching(self.viewer.model, dict.fromkeys(self._weights, unchanged)):
            seen = self.view.seen(missing, limit=LIMIT)
        for name in missing:
            values = seen[name].values if name in seen else []
            self._kept[name] = [Shown(value[0].float(), self._axes(name, seen[name].axes)) for value in values]

    def _axes(self, name: str, axes: str) -> str:
        owner = self.viewer.model.get_submodule(self._owners[name])
        alike = isinstance(owner, MultiHeadAttention) and owner.heads == owner.kv_heads
        return axes[1:].replace("T", "L").replace("G", "H" if alike else "G")

    def summary(self, *, importance: bool = False) -> Json:
        """The text as the model reads it, its answer, and each attention with numbers for each head."""
        view, places = self.view, attentions_of(self.viewer)
        self.record(f"{place.name}.weights" for place in places)
        told = self._importance() if importance and view.wanted[0] is not None else {}
        return {
            "text": view.text,
            "answer": view.answer,
            "sides": {name: _side(side) for name, side in view.sides.items()},
            "predicts": self._predicts(),
            "attentions": [self._attention(place, told) for place in places],
            "off": {name: list(heads) for name, heads in view.off.heads.items()},
            "layers_off": list(view.off.layers),
            "bytes": self.nbytes,
        }

    def _predicts(self) -> Json | None:
        """What each position is to say; where nobody knows, after a text's last token, the model's own best guess."""
        if self.viewer.mode == "encoder":
            return None
        log_LV = self.view.run()[0].log_softmax(-1)
        known = [word is not None for word in self.view.wanted]
        words = [int(log_V.argmax()) if word is None else word for word, log_V in self._wanted(log_LV)]
        scores = [float(log_V[word]) for word, log_V in zip(words, log_LV, strict=True)]
        counted = [score for score, sure in zip(scores, known, strict=True) if sure]
        return {
            "side": self.view.side,
            "tokens": [self.word(word) for word in words],
            "ids": words,
            "scores": scores,
            "known": known,
            "loss": -sum(counted) / len(counted) if counted else None,
        }

    def _wanted(self, rows: Tensor) -> list[tuple[int | None, Tensor]]:
        return list(zip(self.view.wanted, rows, strict=True))

    def _attention(self, place: Sublayer, importance: dict[str, list[float]]) -> Json:
        attention, view = place.module, self.view
        assert isinstance(attention, MultiHeadAttention)
        slots = 0 if attention.memory is None else attention.memory.slots
        queries, keys = view.sides[place.queries].ids, view.sides[place.keys].ids
        if place.kind == "cross" and self.viewer.parts.target is not None:
            keys = tuple(-1 - id for id in keys)  # another vocabulary: no token equals one of ours
        statistics: Json = dict(
            head_statistics(self.at(f"{place.name}.weights"), queries, keys, within=place.kind != "cross", slots=slots)
        )
        return {
            "name": place.name,
            "kind": place.kind,
            "queries": place.queries,
            "keys": place.keys,
            "heads": attention.heads,
            "memory": slots,
            "scale": attention.score.scale,
            "dot": isinstance(attention.score, Dot),  # a score is q · k and nothing else
            "placed_values": attention.positions.value is not None,  # what is read is more than Σ w v
            "stats": statistics | {"importance": importance.get(plain_name(place.name)[0])},
        }

    def _importance(self) -> dict[str, list[float]]:
        """How much the loss depends on a gate at each head; parts behind a layer that is off have nothing to say."""
        names = list({plain_name(place.name)[0]: None for place in attentions_of(self.viewer)})
        heard = [name for name in names if name.rpartition(".")[0] not in self.view.off.layers]
        try:
            found = by_gradient(self.viewer.model, lambda model: self.view.loss(), names=heard)
        except ConfigError:  # nothing of an encoder is heard where all layers that read it are off
            return {}
        return {name: found[name].tolist() for name in heard}

    def thumbnails(self, side: int) -> Tensor:
        """Every head of every attention, the largest weight of each patch, as (N, side, side) of 0 to 255."""
        self.record(self._weights)
        small = [F.adaptive_max_pool2d(self.at(f"{place.name}.weights"), side) for place in attentions_of(self.viewer)]
        return (torch.cat(small) * 255).round().to(torch.uint8)

    @torch.no_grad()
    def lens(self, top: int = 5) -> Json:
        """What each layer would say at each position, how it moved words, and how well it knows the one to come."""
        parts, view = anatomy(self.viewer.model), self.view
        places = parts.places()
        names = [f"{parts.embed_name}.sum", *(f"{layer[-1].residual_name}.sum" for layer in places)]
        device = next(self.viewer.model.parameters()).device
        recorded = stream(parts, view.seen([*dict.fromkeys(names)]), without=view.off.layers)
        streams = [x_BLD.to(device) for x_BLD in recorded]
        final_LV = view.run()[0]
        words_L = torch.tensor([int(row.argmax()) if word is None else word for word, row in self._wanted(final_LV)])
        best, moved, rank, probability = [], [], [], []
        before_LV: Tensor | None = None
        for layer in range(len(streams)):
            # one layer at a time: the logits of all would not fit where the vocabulary is large
            x_BLD = parts.stack.norm(parts.stack.combine(streams[: layer + 1]))
            p_LV = parts.head(x_BLD)[0].softmax(-1).cpu()
            own_L1 = p_LV.gather(-1, words_L[:, None])
            best.append([self._words(*row) for row in zip(*p_LV.topk(min(top, p_LV.shape[-1])), strict=True)])
            moved.append(None if before_LV is None else [*map(self._moves, before_LV, p_LV)])
            rank.append((p_LV > own_L1).sum(-1).tolist())
            probability.append(own_L1[:, 0].tolist())
            before_LV = p_LV
        names = [layer[0].block for layer in sublayers(self.viewer)][-len(places) :]
        return {
            "side": view.side,
            "layers": [parts.embed_name, *names],
            "best": best,
            "moved": moved,
            "rank": None if self.viewer.mode == "encoder" else rank,
            "probability": probability,
        }

    def _words(self, probability_X: Tensor, word_X: Tensor) -> list[Json]:
        pairs = zip(probability_X.tolist(), word_X.tolist(), strict=True)
        return [{"token": self.word(word), "id": word, "probability": p} for p, word in pairs]

    def _moves(self, before_V: Tensor, p_V: Tensor) -> Json:
        """The words whose probability rose most, and fell most, from one layer to the next."""
        by_V, count = p_V - before_V, min(MOVES, len(p_V))
        up, down = (by_V.topk(count, largest=largest).indices.tolist() for largest in (True, False))
        told = {"promoted": [id for id in up if by_V[id] > 0], "suppressed": [id for id in down if by_V[id] < 0]}
        return {
            name: [{"token": self.word(id), "id": id, "by": float(by_V[id])} for id in ids]
            for name, ids in told.items()
        }

    def shares(self, position: int, word: int | None = None, against: int | None = None) -> Json:
        """What each part adds to the logit of a word (less that of another); all shares add up to it."""
        for id in (word, against):
            self._check_word(id)
        count = len(self.view.sides[self.view.side].ids)
        if not 0 <= position < count:
            raise DataError(f"there are {count} positions, from 0 on, and none of them is {position}")
        word = self.view.said(position) if word is None else word
        found = self.view.shares(position, word, against)
        return {
            "side": self.view.side,
            "position": position,
            "word": {"token": self.word(word), "id": word},
            "against": None if against is None else {"token": self.word(against), "id": against},
            "logit": found.total,
            "shares": [{"name": name, **_owner(name), "value": value} for name, value in found.of.items()],
        }

    def _check_word(self, id: int | None) -> None:
        size = vocabulary_of(self.viewer)
        if id is not None and not 0 <= id < size:
            raise DataError(f"the vocabulary has the ids 0 to {size - 1}, and none of them is {id}")


def _side(side: Side) -> Json:
    return {"tokens": list(side.tokens), "ids": list(side.ids), "special": list(side.special)}


def _owner(name: str) -> Json:
    """Which part a share is of, and which head of it."""
    part, _, last = name.rpartition(".")
    if part.endswith(".head"):
        return {"part": part.removesuffix(".head"), "head": int(last)}
    return {"part": name if last == "feedforward" else part, "head": None}
