"""Decoding step by step, with what was not chosen: the rivals of each word, and the whole tree of a beam."""

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from clearhead.draw.beam import Node as Drawn
from clearhead.errors import DataError
from clearhead.generate.beam import Found, Node, beam
from clearhead.generate.decode import Prompts, filtered, normaliser
from clearhead.generate.decoding import Decoding
from clearhead.generate.filters import Row, history_filters, narrowing
from clearhead.look.ablate import ablate
from clearhead.tasks.directory import ModelParts
from clearhead.tasks.overview import vocabulary_of
from clearhead.tasks.translating import Translating
from clearhead.tasks.viewing import Off, Viewer, shown
from clearhead.tasks.writing import Writing, first_tokens

__all__ = ["Asking", "Rival", "Step", "Tree", "Written", "beam_nodes", "step_by_step"]

OUTSIDE = "its continuations fell out of the beam"
BEATEN = "the search ended with better ones"
BEHIND = "ended with a lower score"
LONGEST = 512  # tokens that an answer may have where positions have no end


@dataclass(frozen=True)
class Asking:
    """How to decode: tokens that the answer is made to begin with, and what the filters keep.

    temperature   above 0; divides the logits, and with it the filters see what sampling would see
    beams         above 1: the tree of a beam search as well
    """

    forced: Sequence[int] = ()
    longest: int = 40
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    beams: int = 1
    rivals: int = 10


@dataclass(frozen=True)
class Rival:
    """A word that could have come: its logit, that over the temperature, and its probability among what is kept."""

    token: str
    id: int
    logit: float
    scaled: float
    kept: bool
    probability: float


@dataclass(frozen=True)
class Step:
    """The word that came, whether it was forced, and the best that could have."""

    token: str
    id: int
    forced: bool
    rivals: list[Rival]


@dataclass(frozen=True)
class Tree:
    """A beam search: what it answered, and every token that it went on with or ended at."""

    answer: str
    nodes: list[Drawn]


@dataclass(frozen=True)
class Written:
    """What was written, the best that the filters keep at each step, and the beam where one was asked for."""

    answer: str
    ended: bool
    steps: list[Step]
    beam: Tree | None

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class _Begun:
    """What decoding goes on from: `start` reads the text anew; then comes the prompt, and room for so much more."""

    start: Callable[[int], Any]
    prompt: list[int]
    ends: Set[int]
    room: int
    decoding: Callable[[Mapping[str, Any]], Decoding]


def step_by_step(viewer: Viewer, text: str, asking: Asking, *, off: Off | None = None) -> Written:
    """Write the best word that the filters keep, again and again, and say what its rivals were."""
    off, begun = off or Off(), BEGUN[viewer.mode](viewer.parts, text)
    _check(viewer, asking)
    if len(asking.forced) >= begun.room:
        raise DataError(f"there is room for {begun.room} tokens, and {len(asking.forced)} are forced: force fewer")
    with ablate(viewer.model, heads=off.heads, layers=off.layers):
        steps, ended = _steps(viewer, begun, asking)
        tree = _tree(viewer, begun, asking) if asking.beams > 1 else None
    ids = [step.id for step in steps]
    return Written(viewer.writer.decode(ids[:-1] if ended else ids), ended, steps, tree)


def _check(viewer: Viewer, asking: Asking) -> None:
    if not asking.temperature > 0:
        raise DataError(f"logits are divided by the temperature, which must be above 0: {asking.temperature}")
    size = vocabulary_of(viewer)
    odd = next((id for id in asking.forced if not 0 <= id < size), None)
    if odd is not None:
        raise DataError(f"the vocabulary has the ids 0 to {size - 1}, and none of them is {odd}, which is forced")


@torch.inference_mode()
def _steps(viewer: Viewer, begun: _Begun, asking: Asking) -> tuple[list[Step], bool]:
    names = ("temperature", "top_k", "top_p", "min_p")
    decoding = begun.decoding({name: getattr(asking, name) for name in names})
    filters, cuts = history_filters(decoding, begun.ends), narrowing(decoding)
    steps: list[Step] = []
    written: list[int] = []
    longest = min(asking.longest, begun.room)
    token_BT, state = _row(begun.prompt, viewer), begun.start(longest)
    while len(written) < longest:
        logits_BTV, state = viewer.model.step(token_BT, state, last=True)
        logits_BV = logits_BTV[:, -1].float()
        normaliser(logits_BV)
        kept_BV = scaled_BV = filtered(logits_BV, filters, [Row(begun.prompt, written)])
        scaled_BV = torch.where(scaled_BV.isfinite(), scaled_BV, logits_BV) / decoding.temperature
        for cut in cuts:
            kept_BV = cut(kept_BV)
        forced = len(written) < len(asking.forced)
        chosen = asking.forced[len(written)] if forced else int(kept_BV[0].argmax())
        rivals = _rivals(viewer, logits_BV[0], scaled_BV[0], kept_BV[0], asking.rivals)
        steps.append(Step(shown(chosen, viewer.writer), chosen, forced, rivals))
        written.append(chosen)
        if chosen in begun.ends:
            return steps, True
        token_BT = _row([chosen], viewer)
    return steps, False


def _rivals(viewer: Viewer, logits_V: Tensor, scaled_V: Tensor, kept_V: Tensor, count: int) -> list[Rival]:
    best = scaled_V.topk(min(count, len(scaled_V))).indices.tolist()
    probability_V = kept_V.softmax(-1)
    return [
        Rival(
            token=shown(id, viewer.writer),
            id=id,
            logit=float(logits_V[id]),
            scaled=float(scaled_V[id]),
            kept=bool(kept_V[id].isfinite()),
            probability=float(probability_V[id]),
        )
        for id in best
    ]


def _tree(viewer: Viewer, begun: _Begun, asking: Asking) -> Tree:
    longest = min(asking.longest, begun.room) - len(asking.forced)
    if longest < 1:
        raise DataError(f"a beam has no room: {len(asking.forced)} tokens are forced of at most {asking.longest}")
    decoding = begun.decoding({"beams": asking.beams, "longest": longest})
    token_BT = _row([*begun.prompt, *asking.forced], viewer)
    prompts = Prompts(token_BT, [longest], begun.ends)
    (found,) = beam(viewer.model, begun.start(longest), prompts, decoding=decoding)
    tokens = [*asking.forced, *found.best[0].tokens]
    return Tree(viewer.writer.decode(tokens), beam_nodes(found, begun.ends, lambda id: shown(id, viewer.writer)))


def beam_nodes(found: Found, ends: Set[int], name: Callable[[int], str]) -> list[Drawn]:
    """The record of a search as a tree: who lived on, who won, and why the others did not."""
    every = [node for step in found.steps for node in step]
    number = {id(node): at for at, node in enumerate(every)}
    parents = {id(node.parent) for node in every}
    best = found.best[0]
    said = [*best.tokens, *([] if best.end is None else [best.end])]
    winners = next({id(one) for one in node.path()} for node in every if node.tokens == said)
    last = {id(node) for node in found.steps[-1]}

    def drawn(node: Node) -> Drawn:
        wins = id(node) in winners
        lives = wins or id(node) in parents
        why = BEHIND if node.token in ends else BEATEN if id(node) in last else OUTSIDE
        parent = number.get(id(node.parent))
        return Drawn(number[id(node)], parent, name(node.token), node.total, lives, "" if lives else why, wins)

    return [drawn(node) for node in every]


def _pair(parts: ModelParts, text: str) -> _Begun:
    working = Translating([parts])
    source = parts.tokenizer.encode(text.strip())
    begin, positions = list(working.frame.begin), working.positions
    room = LONGEST if positions is None else positions - len(begin) + 1
    return _Begun(
        start=lambda longest: working.start([source], room=len(begin) + longest),
        prompt=begin,
        ends=frozenset({working.config.eos}),
        room=room,
        decoding=lambda options: working.request(options).decoding,
    )


def _onward(parts: ModelParts, text: str) -> _Begun:
    config = parts.settings.config
    prompt = first_tokens(parts.tokenizer.encode(text), parts)
    room = config.length - len(prompt) + 1
    if room < 1:
        raise DataError(f"the text has {len(prompt)} tokens, and this model reads {config.length}: shorten it")
    return _Begun(
        start=lambda longest: parts.model.start(room=len(prompt) + longest),
        prompt=prompt,
        ends=Writing(parts, {}).ends,
        room=room,
        decoding=lambda options: Writing(parts, options).decoding,
    )


def _never(parts: ModelParts, text: str) -> _Begun:
    raise DataError("an encoder reads and does not write: there is nothing to decode")


# the mode of a model -> how its decoding begins
BEGUN: dict[str, Callable[[ModelParts, str], _Begun]] = {
    "encoder-decoder": _pair,
    "decoder": _onward,
    "encoder": _never,
}


def _row(ids: Sequence[int], viewer: Viewer) -> Tensor:
    return torch.tensor([list(ids)], device=next(viewer.model.parameters()).device)
