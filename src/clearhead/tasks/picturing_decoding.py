"""Pictures of decoding: word by word with its rivals, and the search as a tree, from generate's own record."""

import torch

from clearhead.draw.beam import Choice, Node, beam_tree, decoding_steps
from clearhead.draw.figure import Figure
from clearhead.draw.words import number
from clearhead.errors import ConfigError
from clearhead.generate.beam import Found
from clearhead.generate.decode import Prompts
from clearhead.generate.write import search
from clearhead.look.anatomy import anatomy
from clearhead.tasks.spots import Asked
from clearhead.tasks.translating import Sentence, Translating
from clearhead.tasks.viewing import View, shown
from clearhead.tasks.writing import Writing

__all__ = ["beam", "choices", "decoding", "searched", "tree"]

RIVALS = 5
BEAMS = 4
LONGEST = 10  # tokens with which a text is gone on
STEPS = 60  # of decoding in one picture
FATES = {True: "falls out", False: "stops"}  # of what does not go on: before the last step, and there


def choices(view: View, count: int = RIVALS) -> list[Choice]:
    """At each position the likeliest words, and which one is said: what stands there, or else the likeliest."""
    anatomy(view.viewer.model)  # refuses a model that says no words
    probability_LV = view.run()[0].softmax(-1)
    found = []
    for place, given in enumerate(view.wanted):
        best = probability_LV[place].topk(count).indices.tolist()
        word = best[0] if given is None else given
        words = best if word in best else [*best[:-1], word]
        tokens = [shown(id, view.viewer.writer) for id in words]
        found.append(Choice(tokens, probability_LV[place, words].tolist(), words.index(word)))
    return found


def decoding(view: View, asked: Asked) -> Figure:
    """Word by word, each with its best rivals; of a long text its beginning."""
    steps = choices(view)
    heading = "" if len(steps) <= STEPS else f"the first {STEPS} of {len(steps)} steps"
    return decoding_steps(steps[:STEPS], heading=heading, on=asked.on)


def searched(view: View, beams: int = BEAMS) -> Found:
    """Beam search on this text, with the record of what it tried."""
    parts = view.viewer.parts
    with view.without(), torch.inference_mode():
        if view.viewer.mode == "encoder-decoder":
            working = Translating([parts])
            (found,) = working.decode([Sentence(view.text.strip())], working.request({"beams": beams}))
            return found
        if view.viewer.mode == "encoder":
            raise ConfigError("an encoder alone writes nothing: there is no search to draw")
        ids = view.sides[view.side].ids
        room = min(LONGEST, parts.settings.config.length - len(ids) + 1)
        if room < 1:
            raise ConfigError(f"a text of {len(ids)} tokens fills the model's context: there is nothing to search")
        writing = Writing(parts, {"beams": beams, "longest": room})
        token_BT = torch.tensor([list(ids)], device=next(parts.model.parameters()).device)
        state = parts.model.start(room=len(ids) + room)
        prompts = Prompts(token_BT, [room], writing.ends)
        return search(parts.model, state, prompts, writing.decoding)[0]


def tree(found: Found, view: View, first: str) -> list[Node]:
    """The tokens that a search tried, with the sum of their log-probabilities, and what became of each."""
    if not found.steps:
        raise ConfigError("there was nothing to search for: give a text that is not empty")
    best = found.best[0]
    path = [*best.tokens, *([] if best.end is None else [best.end])]
    winner = next(node for step in found.steps for node in step if node.tokens == path)
    won = {id(node) for node in winner.path()}
    went_on = {id(node.parent) for step in found.steps for node in step}
    ends = {best.end, view.viewer.parts.settings.config.eos}
    numbers: dict[int, int] = {}
    nodes = [Node(0, None, first, 0.0, winner=True)]
    for at, step in enumerate(found.steps):
        for node in step:
            numbers[id(node)] = len(nodes)
            parent = 0 if node.parent is None or node.parent.parent is None else numbers[id(node.parent)]
            reason = "" if id(node) in went_on else "ends" if node.token in ends else FATES[at < len(found.steps) - 1]
            token = shown(node.token, view.viewer.writer)
            nodes.append(Node(len(nodes), parent, token, node.total, not reason, reason, id(node) in won))
    return nodes


def beam(view: View, asked: Asked) -> Figure:
    """The search as a tree: every token that was kept, with its score, and the path that won."""
    found = searched(view)
    first = view.sides[view.side].tokens[0 if view.viewer.mode == "encoder-decoder" else -1]
    ranks = f"the best of {len(found.best)}" if len(found.best) > 1 else f"won with {number(found.ranks[0])}"
    return beam_tree(tree(found, view, first), heading=f"{BEAMS} beams, {ranks}", on=asked.on)
