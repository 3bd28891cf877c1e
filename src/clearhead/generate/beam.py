"""Beam search: the best few hypotheses of each row go on at every step, until those that have ended cannot be beaten.

    score(Y) = log p(Y) / |Y|^α + coverage(Y)           |Y| counts the tokens written, `eos` among them

The rules are those of transformers, so that the same weights give the same words: of the 2 · beams best candidates
(more where several tokens end), those among the first `beams` that end are finished, and the first `beams` that do not
end go on.
"""

from collections import Counter
from collections.abc import Callable, Container, Sequence, Set
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import NamedTuple

import torch
from torch import Tensor

from clearhead.errors import DecodingError
from clearhead.generate.best import best
from clearhead.generate.branches import branches_of
from clearhead.generate.constraints import NOTHING, Constraints
from clearhead.generate.coverage import Coverage
from clearhead.generate.decode import Decoded, Prompts, normaliser
from clearhead.generate.decoding import Decoding
from clearhead.generate.filters import Filter, Row, history_filters
from clearhead.generate.step import DecodingState, Step

__all__ = ["Candidate", "Found", "Node", "beam"]


class Candidate(NamedTuple):
    """A token that may follow the hypothesis of that number."""

    total: float
    score: float
    token: int
    parent: int


@dataclass(frozen=True, eq=False, slots=True)
class Node:
    """A token of the search's tree: what it says, how likely it is, and after which one it stands."""

    token: int
    score: float  # log-probability of this token
    total: float  # of all tokens up to this one
    parent: "Node | None" = None
    required: Constraints = NOTHING

    def child(self, candidate: Candidate) -> "Node":
        required = self.required.after(candidate.token)
        return Node(candidate.token, candidate.score, candidate.total, self, required)

    def path(self) -> list["Node"]:
        """From the first written token to this one."""
        nodes: list[Node] = []
        node = self
        while node.parent is not None:
            nodes.append(node)
            node = node.parent
        return nodes[::-1]

    @property
    def tokens(self) -> list[int]:
        return [node.token for node in self.path()]


def _enough(beams: int, ends: Set[int]) -> int:
    """So many candidates that `beams` of them go on, though every hypothesis may end in every way."""
    return max(2, 1 + len(ends)) * beams


def _in_banks(offer: Sequence[Candidate], before: Sequence[Node], ends: Set[int], steps_left: int) -> list[Candidate]:
    """The candidates of a beam with required words, in the order in which it keeps them [post2018].

    Those that can no longer meet the requirements leave. The others are sorted into banks by how much is left to meet;
    each bank in turn names its best one, those with the least left first, so that the beam is divided among them.
    """
    banks: dict[int, list[Candidate]] = {}
    for one in sorted(offer, key=lambda one: -one.total):
        left = before[one.parent].required.after(one.token).left
        if left <= (0 if one.token in ends else steps_left):
            banks.setdefault(left, []).append(one)
    ordered = [banks[left] for left in sorted(banks)]
    return [one for turn in zip_longest(*ordered) for one in turn if one is not None]


@dataclass
class Found:
    """What a search found for one row.

    best    the answers, best first (those that were drawn, in the order of drawing)
    ranks   their scores
    steps   the record of the search: the nodes that went on at each step, and those that were finished there
    """

    best: list[Decoded] = field(default_factory=list)
    ranks: list[float] = field(default_factory=list)
    steps: list[list[Node]] = field(default_factory=list)


@torch.inference_mode()
def beam(
    model: Step,
    state: DecodingState,
    prompts: Prompts,
    *,
    decoding: Decoding,
    attention: Callable[[], Tensor] | None = None,
) -> list[Found]:
    """Search on from each prompt; `attention` tells what the last step looked at, as (B, T, source)."""
    device = prompts.token_BT.device
    searches = [
        _Search(prompt, decoding, prompts.ends, longest)
        for prompt, longest in zip(prompts.lists(), prompts.longest_B, strict=True)
    ]
    filters = history_filters(decoding, prompts.ends)
    coverage = Coverage(decoding.coverage_penalty, attention, prompts.count_B)
    logits_BTV, state = model.step(prompts.token_BT, state, count_B=prompts.count_B, last=True)
    _check_required(decoding, logits_BTV.shape[-1])
    branches, going = branches_of(model, state), searches
    while True:
        penalties = coverage.add(logits_BTV.shape[:2])
        offers = _offers(logits_BTV, going, filters, decoding)
        for search, offer, penalty in zip(going, offers, penalties, strict=True):
            search.advance(offer, penalty)
        staying = [number for number, search in enumerate(going) if not search.done]
        if not staying:
            return [search.found() for search in searches]
        if len(staying) < len(going):
            going = [going[number] for number in staying]
            row_B = torch.tensor(staying, device=device)
            branches.select(row_B)
            coverage.select(row_B)
        parent_BT, next_BT = (
            torch.tensor([getattr(search, name) for search in going], device=device) for name in ("parents", "tokens")
        )
        coverage.descend(parent_BT)
        logits_BTV = branches.advance(parent_BT, next_BT)


def _check_required(decoding: Decoding, vocabulary: int) -> None:
    for token in (token for phrase in decoding.required for token in phrase):
        if not 0 <= token < vocabulary:
            raise DecodingError(f"the vocabulary of {vocabulary} tokens has no id {token} that is required")


def _offers(
    logits_BTV: Tensor, searches: Sequence["_Search"], filters: Sequence[Filter], decoding: Decoding
) -> list[list[Candidate]]:
    """What may follow the hypotheses of each row, best first: all that any rule of choosing could want."""
    most = _enough(decoding.beams, searches[0].ends)
    normaliser_BT1 = normaliser(logits_BTV)
    if decoding.required or filters:
        score_BTV = _filtered(logits_BTV - normaliser_BT1, searches, filters)
        score_BTK, token_BTK = best(score_BTV, most)
    else:
        score_BTV = logits_BTV
        score_BTK, token_BTK = best(score_BTV.float(), most)
        score_BTK = score_BTK - normaliser_BT1
    total_BT1 = torch.tensor([search.totals for search in searches], device=logits_BTV.device)[..., None]
    total_BX = (total_BT1 + score_BTK).flatten(1)
    # One beam of all is chosen from the best few; groups and required words choose from all that was found.
    kept = total_BX.shape[1] if decoding.groups > 1 or decoding.required else min(most, total_BX.shape[1])
    total_BK, place_BK = total_BX.topk(kept)
    columns = (x.flatten(1).gather(1, place_BK).tolist() for x in (score_BTK, token_BTK))
    rows = zip(total_BK.tolist(), *columns, (place_BK // score_BTK.shape[2]).tolist(), strict=True)
    offers = [[Candidate(*one) for one in zip(*row, strict=True) if one[0] > float("-inf")] for row in rows]
    if decoding.required:
        for search, offer, score_TV in zip(searches, offers, score_BTV, strict=True):
            offer += search.wanted(score_TV, {(one.parent, one.token) for one in offer})
    return offers


def _filtered(score_BTV: Tensor, searches: Sequence["_Search"], filters: Sequence[Filter]) -> Tensor:
    """The log-probabilities, with −∞ where a token may not come."""
    rows = [Row(search.prompt, written) for search in searches for written in search.written()]
    score_NV = score_BTV.flatten(0, 1)
    for change in filters:
        score_NV = change(score_NV, rows)
    return score_NV.view(score_BTV.shape)


class _Search:
    """The search of one row: its running hypotheses, and those that have ended.

    The beam always has its full width: where fewer can go on, dead ones fill it up, which nothing follows.
    """

    def __init__(self, prompt: Sequence[int], decoding: Decoding, ends: Set[int], longest: int) -> None:
        self.prompt, self.decoding, self.ends, self.longest = prompt, decoding, ends, longest
        self.running = [Node(-1, 0.0, 0.0, required=Constraints.of(decoding.required))]
        self.finished: list[tuple[float, Node]] = []
        self.parents: list[int] = []
        self.steps: list[list[Node]] = []
        self.done = False
        self.keep = max(decoding.best, round(decoding.beams * decoding.patience))

    @property
    def totals(self) -> list[float]:
        return [node.total for node in self.running]

    @property
    def tokens(self) -> list[int]:
        return [node.token for node in self.running]

    def written(self) -> list[list[int]]:
        return [node.tokens for node in self.running]

    def wanted(self, score_TV: Tensor, known: Container[tuple[int, int]]) -> list[Candidate]:
        """The candidates that bring a required word nearer, however unlikely, as far as they are not known yet."""
        found = []
        for parent, node in enumerate(self.running):
            for token in node.required.wanted:
                score = float(score_TV[parent, token])
                if (parent, token) not in known and node.total + score > float("-inf"):
                    found.append(Candidate(node.total + score, score, token, parent))
        return found

    def advance(self, offer: Sequence[Candidate], penalty: Sequence[float]) -> None:
        """One step: what has ended is finished, the best of the rest goes on."""
        before, length = self.running, len(self.steps) + 1
        decoding, in_group = self.decoding, self.decoding.beams // self.decoding.groups
        self.running, self.parents = [], []
        ended: list[Node] = []
        for group in range(decoding.groups):
            room, most = in_group, _enough(in_group, self.ends)
            for rank, one in enumerate(self._ranked(offer, before, group)[:most]):
                node = before[one.parent].child(one)
                if one.token in self.ends or length == self.longest:
                    if rank < in_group and not self._known(node):
                        ended.append(node)
                        score = node.total / length**decoding.length_penalty + penalty[one.parent]
                        self.finished.append((score, node))
                elif room:
                    room -= 1
                    self.running.append(node)
                    self.parents.append(one.parent)
            self.running += [Node(0, float("-inf"), float("-inf"), before[0])] * room
            self.parents += [0] * room
        alive = [node for node in self.running if node.total > float("-inf")]
        self.steps.append(alive + ended)
        self.finished = sorted(self.finished, key=lambda one: -one[0])[: self.keep]
        self.done = not alive or self._beaten(max(node.total for node in alive), length)

    def _ranked(self, offer: Sequence[Candidate], before: Sequence[Node], group: int) -> Sequence[Candidate]:
        """The candidates in the order in which this group of hypotheses takes them."""
        if self.decoding.required:
            return _in_banks(offer, before, self.ends, self.longest - len(self.steps) - 1)
        if self.decoding.groups == 1:
            return offer
        in_group = self.decoding.beams // self.decoding.groups
        own = [one for one in offer if len(before) == 1 or one.parent // in_group == group]
        taken = Counter(node.token for node in self.running if node.total > float("-inf"))
        return sorted(own, key=lambda one: self.decoding.diversity * taken[one.token] - one.total)

    def _known(self, node: Node) -> bool:
        """Whether another group has finished the same: within a group no two hypotheses are alike."""
        return self.decoding.groups > 1 and any(node.tokens == other.tokens for _, other in self.finished)

    def _beaten(self, running: float, length: int) -> bool:
        """Whether the best running hypothesis cannot, or is not likely to, come before those that are finished."""
        if len(self.finished) < self.keep:
            return False
        if self.decoding.stopping == "full":
            return True
        penalty = self.decoding.length_penalty
        hoped = self.longest if self.decoding.stopping == "sure" and penalty > 0 else length
        return running / hoped**penalty <= self.finished[-1][0]

    def found(self) -> Found:
        if not self.finished:
            raise DecodingError("nothing that is allowed can follow: allow more words, or a greater length")
        chosen = self.finished[: self.decoding.best]
        return Found([_decoded(node, self.ends) for _, node in chosen], [score for score, _ in chosen], self.steps)


def _decoded(node: Node, ends: Set[int]) -> Decoded:
    tokens = node.tokens
    scores = [one.score for one in node.path()]
    return Decoded(tokens[:-1], scores, end=tokens[-1]) if tokens[-1] in ends else Decoded(tokens, scores)
