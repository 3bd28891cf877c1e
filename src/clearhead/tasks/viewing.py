"""A text on its way through any text model, ready to be looked into: its tokens by side, and a pass that can be run.

    viewer = Viewer(load_model("runs/demo"))
    view = viewer.view("je suis étudiant")          # the model's own answer, or a given one that it is forced to
    view.sides["target"].tokens                     # ['<bos>', 'i', 'am', 'a', 'student']
    view.seen("decoder.*.cross.weights")            # a Recording, with these tokens attached
    view.lens(), view.shares(3)                     # what each layer would say; what made a logit

An encoder–decoder has the sides `source` and `target`, all others one, `text`. With heads or layers switched off, all
of it is what the model does without them, its own answer included.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple, final

import torch
from torch import Tensor, nn

from clearhead.data.tokenizers import Tokenizer
from clearhead.errors import ConfigError, DataError
from clearhead.look.ablate import ablate
from clearhead.look.capture import look
from clearhead.look.lens import Lens, lens
from clearhead.look.recording import Recording
from clearhead.look.shares import Shares, logit_shares
from clearhead.models.decoder_only import DecoderOnly
from clearhead.models.encoder_decoder import EncoderDecoder
from clearhead.models.encoder_only import EncoderOnly
from clearhead.nn.attention import MultiHeadAttention
from clearhead.nn.stack import Stack
from clearhead.tasks.directory import ModelParts
from clearhead.tasks.encoder_data import frame
from clearhead.tasks.pair_data import Frame
from clearhead.tasks.translating import Sentence, Translating
from clearhead.tasks.writing import first_tokens

__all__ = ["AttentionPlace", "Off", "Side", "View", "Viewer", "shown"]


class AttentionPlace(NamedTuple):
    """One attention of a model: its name, whether it is self, masked or cross, and what asks and answers in it."""

    name: str
    kind: str
    queries: str
    keys: str
    heads: int


@dataclass(frozen=True)
class Off:
    """What is switched off: heads by the name of their attention, and whole layers."""

    heads: Mapping[str, Sequence[int]] = field(default_factory=dict)
    layers: Sequence[str] = ()


@dataclass(frozen=True)
class Side:
    """The tokens of one side, as the model reads them."""

    ids: tuple[int, ...]
    tokens: tuple[str, ...]
    special: tuple[bool, ...]

    @staticmethod
    def of(ids: Sequence[int], tokenizer: Tokenizer) -> "Side":
        special = tuple(id in tokenizer.special_ids for id in ids)
        return Side(tuple(ids), tuple(shown(id, tokenizer) for id in ids), special)


def shown(id: int, tokenizer: Tokenizer) -> str:
    """A token for people: the text that it stands for, its name where it has none by itself, or else its number."""
    text = tokenizer.decode([id])
    if text and "\N{REPLACEMENT CHARACTER}" not in text:
        return text
    try:
        return tokenizer.token_of(id)
    except ConfigError:  # models may have more places for words than their tokenizers have words
        return f"<{id}>"


class _Read(NamedTuple):
    """What a mode makes of a text: its sides, what each position is to say (None where nobody knows), and the pass."""

    sides: dict[str, Side]
    wanted: list[int | None]
    run: Callable[[], Tensor]
    answer: str | None


@final
class Viewer:
    """A text model of any kind, ours or loaded, that can be looked into."""

    def __init__(self, parts: ModelParts) -> None:
        if type(parts.model) not in READ:
            known = ", ".join(kind.__name__ for kind in READ)
            raise ConfigError(f"a {type(parts.model).__name__} reads no text to be looked at; these do: {known}")
        self.parts, self.model = parts, parts.model
        self.mode, self._read = READ[type(parts.model)]

    @property
    def writer(self) -> Tokenizer:
        """The tokenizer of what the model says."""
        return self.parts.writer

    def attentions(self) -> list[AttentionPlace]:
        """All attentions, in the order in which they run; layers that share one name it once."""
        found: dict[str, AttentionPlace] = {}
        for stack_name, stack in self.model.named_children():
            if not isinstance(stack, Stack):
                continue
            side = "text" if self.mode != "encoder-decoder" else {"encoder": "source"}.get(stack_name, "target")
            own = "self" if stack_name == "encoder" else "masked"
            for layer, block in zip(stack.rounds, stack.layers, strict=True):
                for part, kind, keys in (("attention", own, side), ("cross", "cross", "source")):
                    attention = getattr(block, part)
                    name = f"{stack_name}.{layer}.{part}"
                    if isinstance(attention, MultiHeadAttention):
                        found[name] = AttentionPlace(name, kind, side, keys, attention.heads)
        return list(found.values())

    @torch.no_grad()
    def view(self, text: str, answer: str | None = None, *, off: Off | None = None) -> "View":
        """The text, with the model's own answer or a given one where it is a pair that the model reads."""
        off = off or Off()
        with ablate(self.model, heads=off.heads, layers=off.layers):
            read = self._read(self.parts, text, answer)
        for name, side in read.sides.items():
            _check_fits(name, side, self.parts.settings.config)
        return View(self, text, off, read)


@final
class View:
    """One text in one model; everything is computed when it is asked for, and nothing is kept."""

    def __init__(self, viewer: Viewer, text: str, off: Off, read: _Read) -> None:
        self.viewer, self.text, self.off = viewer, text, off
        self.sides, self.wanted, self.answer = read.sides, read.wanted, read.answer
        self._run = read.run

    @property
    def side(self) -> str:
        """The side at whose positions the model says something."""
        return list(self.sides)[-1]

    @property
    def tokens(self) -> dict[str, list[list[str]]]:
        """The tokens by side, as a recording has them."""
        return {name: [list(side.tokens)] for name, side in self.sides.items()}

    @contextmanager
    def without(self) -> Iterator[None]:
        """The model without what is switched off, while the context lasts."""
        with ablate(self.viewer.model, heads=self.off.heads, layers=self.off.layers):
            yield

    def run(self) -> Tensor:
        """One whole pass: the logits of each position (1, L, V); of an encoder without words, its last vectors."""
        with self.without(), torch.no_grad():
            return self._run()

    def seen(self, names: str | Sequence[str], *, limit: int | None = None) -> Recording:
        """What passes the taps of these names in one pass."""
        with self.without(), torch.no_grad(), look(self.viewer.model, names, tokens=self.tokens, limit=limit) as seen:
            self._run()
        return seen

    def scores(self) -> list[float | None]:
        """The log-probability of what each position is to say; None where nobody knows what that is."""
        log_LV = self.run()[0].log_softmax(-1)
        return [None if word is None else float(log_LV[place, word]) for place, word in enumerate(self.wanted)]

    def loss(self) -> Tensor:
        """The negative log-probability of all that is known to be said, summed; with gradients where they are on."""
        with self.without():
            log_LV = self._run()[0].log_softmax(-1)
        known = [(place, word) for place, word in enumerate(self.wanted) if word is not None]
        return -sum((log_LV[place, word] for place, word in known), log_LV.new_zeros(()))

    def lens(self) -> Lens:
        """What each layer would say at each position."""
        with self.without():
            return lens(self.viewer.model, self._run, without=self.off.layers)

    def said(self, position: int) -> int:
        """What that position is to say or, where nobody knows, the model's best guess."""
        word = self.wanted[position]
        return int(self.run()[0, position].argmax()) if word is None else word

    def shares(self, position: int, word: int | None = None, against: int | None = None) -> Shares:
        """What each part adds to the logit of a word (less that of another) at that position."""
        count = len(self.sides[self.side].ids)
        if not -count <= position < count:
            raise DataError(f"there are {count} positions, from 0 on, and none of them is {position}")
        word = self.said(position) if word is None else word
        with self.without():
            return logit_shares(
                self.viewer.model, self._run, word, against=against, position=position, without=self.off.layers
            )


def _pair(parts: ModelParts, text: str, answer: str | None) -> _Read:
    frame, working = Frame.of(parts.tokenizer, parts.settings), Translating([parts])
    source = parts.tokenizer.encode(text.strip())
    if answer is None:
        (found,) = working.decode([Sentence(text.strip())], working.request())
        target = found.best[0].tokens
    else:
        target = parts.writer.encode(answer.strip())
    sides = {
        "source": Side.of([*frame.before, *source, *frame.after], parts.tokenizer),
        "target": Side.of([*frame.begin, *target], parts.writer),
    }
    source_BM, target_BL = (_row(side.ids, parts.model) for side in sides.values())
    wanted: list[int | None] = [*frame.begin[1:], *target, frame.eos]
    return _Read(sides, wanted, lambda: parts.model(source_BM, target_BL), parts.writer.decode(target))


def _onward(parts: ModelParts, text: str, answer: str | None) -> _Read:
    _check_alone(answer)
    ids = first_tokens(parts.tokenizer.encode(text), parts)
    token_BL = _row(ids, parts.model)
    return _Read({"text": Side.of(ids, parts.tokenizer)}, [*ids[1:], None], lambda: parts.model(token_BL), None)


def _both_ways(parts: ModelParts, text: str, answer: str | None) -> _Read:
    _check_alone(answer)
    ids = parts.tokenizer.encode_marked(text)
    row = frame(ids, parts.tokenizer, len(ids) + 2)
    token_BL = _row(row, parts.model)
    run = parts.model if parts.model.word_head is None else parts.model.words
    return _Read({"text": Side.of(row, parts.tokenizer)}, [None] * len(row), lambda: run(token_BL), None)


# what a model is -> how it is called here, and how it reads a text
READ: dict[type[nn.Module], tuple[str, Callable[[ModelParts, str, str | None], _Read]]] = {
    EncoderDecoder: ("encoder-decoder", _pair),
    DecoderOnly: ("decoder", _onward),
    EncoderOnly: ("encoder", _both_ways),
}


def _row(ids: Sequence[int], model: nn.Module) -> Tensor:
    return torch.tensor([list(ids)], device=next(model.parameters()).device)


def _check_alone(answer: str | None) -> None:
    if answer is not None:
        raise DataError("this model reads one text, not a text and its answer: leave the answer out")


def _check_fits(name: str, side: Side, config: Any) -> None:
    if config.positions == "learned" and len(side.ids) > config.length:
        raise DataError(
            f"the {name} has {len(side.ids)} tokens, and this model has positions for {config.length}: shorten it"
        )
