"""Decoding without search: read, choose a token for each row, read it, until every row has ended.

`Running` is the one loop, as a batch that rows can join and leave; `decode` is that loop for rows that come together.
"""

from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass, field
from typing import Any, final

import torch
from torch import Tensor

from clearhead.errors import DecodingError
from clearhead.generate.best import best
from clearhead.generate.filters import Filter, Row
from clearhead.generate.step import DecodingState, Step

__all__ = [
    "Choose",
    "Decoded",
    "Going",
    "Manner",
    "Prompts",
    "Running",
    "decode",
    "done",
    "filtered",
    "normaliser",
]

# scores (B, V), and which rows of the whole these are -> one token for each row (B,)
Choose = Callable[[Tensor, Sequence[int]], Tensor]


@dataclass
class Decoded:
    """What was written for one row, without the prompt and without the token that ended it.

    scores    log-probabilities of the tokens and, where the row ended by itself, of that last one
    end       which one it was
    rivals    the likeliest tokens of each step and their log-probabilities, where they were asked for
    stopped   set by whoever reads along and has seen enough: the row leaves
    """

    tokens: list[int] = field(default_factory=list)
    scores: list[float] = field(default_factory=list)
    stopped: bool = False
    end: int | None = field(default=None, compare=False)
    rivals: list[list[tuple[int, float]]] = field(default_factory=list, compare=False)

    @property
    def ended(self) -> bool:
        return len(self.scores) > len(self.tokens)

    @property
    def score(self) -> float:
        return sum(self.scores)

    def add(self, token: int, score: float, ends: Set[int]) -> None:
        self.scores.append(score)
        if token in ends:
            self.end = token
        else:
            self.tokens.append(token)


@dataclass(frozen=True)
class Prompts:
    """What is gone on with: of row b of `token_BT` the first `count_B[b]` tokens, by at most `longest_B[b]` more.

    eos   the token that ends a row, or each of several that do
    """

    token_BT: Tensor
    longest_B: Sequence[int]
    eos: int | Set[int] | None
    count_B: Tensor | None = None

    def __post_init__(self) -> None:
        if min(self.longest_B, default=1) < 1:
            raise DecodingError(f"at least one token must be asked for: longest={min(self.longest_B)}")
        shortest = self.token_BT.shape[1] if self.count_B is None else min(self.count_B.tolist(), default=1)
        if shortest < 1:
            raise DecodingError("an empty prompt cannot be gone on with: give at least one token")

    def __len__(self) -> int:
        return len(self.token_BT)

    @property
    def ends(self) -> Set[int]:
        """The tokens that end a row."""
        return self.eos if isinstance(self.eos, Set) else frozenset() if self.eos is None else frozenset({self.eos})

    def lists(self) -> list[list[int]]:
        """The prompts without padding."""
        rows: list[list[int]] = self.token_BT.tolist()
        return rows if self.count_B is None else [row[:n] for row, n in zip(rows, self.count_B.tolist(), strict=True)]

    def repeated(self, times: int) -> "Prompts":
        """Each prompt so many times, one after the other."""
        longest = [limit for limit in self.longest_B for _ in range(times)]
        count_B = None if self.count_B is None else self.count_B.repeat_interleave(times)
        return Prompts(self.token_BT.repeat_interleave(times, 0), longest, self.eos, count_B)


def normaliser(logits: Tensor) -> Tensor:
    """log Σ exp over the vocabulary, which makes log-probabilities of logits; refused where these are no numbers."""
    total = logits.float().logsumexp(-1, keepdim=True)
    if not total.isfinite().all():
        raise DecodingError("the model's scores are not numbers (NaN or infinite): its weights are broken")
    return total


def filtered(score_BV: Tensor, filters: Sequence[Filter], rows: Sequence[Row]) -> Tensor:
    """The scores with −∞ where a token may not come; refused where none may."""
    for change in filters:
        score_BV = change(score_BV, rows)
    if not (score_BV.amax(-1) > float("-inf")).all():
        raise DecodingError("nothing that is allowed can follow: allow more words, or a smaller length")
    return score_BV


@dataclass(frozen=True)
class Manner:
    """How the next token of a row is chosen: by `choose`, from what the filters let pass.

    rivals   so many of the likeliest tokens are noted at each step, as they were before the filters
    """

    choose: Choose
    filters: tuple[Filter, ...] = ()
    rivals: int = 0


@dataclass(eq=False)
class Going:
    """A row of a running batch.

    number   what `Manner.choose` knows it by
    prompt   what it goes on with, which filters may ask for
    error    why it can go no further; then it is done
    """

    longest: int
    ends: Set[int]
    manner: Manner
    number: int = 0
    prompt: Sequence[int] = ()
    written: Decoded = field(default_factory=Decoded)
    error: DecodingError | None = None

    @property
    def done(self) -> bool:
        return self.error is not None or done(self.written, self.longest)


Group = tuple[Manner, list[Going], Tensor]  # rows of one manner, and their places in the batch


@final
class Running:
    """A batch of rows that each write a token at every step; more can join at any time, and those that are done leave.

    Rows of the same manner are chosen for together. A row is written alike alone and in company.
    """

    def __init__(self, model: Step) -> None:
        self.model = model
        self.rows: list[Going] = []
        self._groups: list[Group] = []
        self._token_B: Tensor
        self._state: Any = None

    def join(self, rows: Sequence[Going], state: DecodingState, token_BT: Tensor, count_B: Tensor | None) -> None:
        """Read the prompts of these rows, which stand after `state`, and write the first token of each."""
        logits_BTV, state = self.model.step(token_BT, state, count_B=count_B, last=True)
        token_B = _write(logits_BTV, rows, _grouped(rows, token_BT.device))
        if self.rows:
            token_B, state = torch.cat([self._token_B, token_B]), self._state.join(state)
        self._hold([*self.rows, *rows], token_B, state)

    def step(self) -> None:
        """Write one more token of every row."""
        logits_BTV, self._state = self.model.step(self._token_B[:, None], self._state, last=True)
        self._token_B = _write(logits_BTV, self.rows, self._groups)

    def part(self) -> list[Going]:
        """Let those leave that are done, and say which they are."""
        staying = [place for place, row in enumerate(self.rows) if not row.done]
        if len(staying) == len(self.rows):
            return []
        leaving = [row for row in self.rows if row.done]
        if staying:
            row_B = torch.tensor(staying, device=self._token_B.device)
            self._hold([self.rows[place] for place in staying], self._token_B[row_B], self._state.select(row_B))
        else:
            self.rows, self._groups, self._state = [], [], None
        return leaving

    def _hold(self, rows: list[Going], token_B: Tensor, state: DecodingState) -> None:
        self.rows, self._token_B, self._state = rows, token_B, state
        self._groups = _grouped(rows, token_B.device)


def _grouped(rows: Sequence[Going], device: torch.device) -> list[Group]:
    """The rows of each manner, with their places."""
    places: dict[Manner, list[int]] = {}
    for place, row in enumerate(rows):
        places.setdefault(row.manner, []).append(place)
    return [
        (manner, [rows[place] for place in found], torch.tensor(found, device=device))
        for manner, found in places.items()
    ]


def _write(logits_BTV: Tensor, rows: Sequence[Going], groups: Sequence[Group]) -> Tensor:
    """Choose a token for each row and write it down."""
    logits_BV = logits_BTV[:, -1].float()
    normaliser_B1 = normaliser(logits_BV)
    if len(groups) == 1:
        token_B = _chosen(logits_BV, normaliser_B1, *groups[0][:2])
    else:
        token_B = _chosen_apart(logits_BV, normaliser_B1, groups)
    score_B = (logits_BV.gather(1, token_B[:, None]) - normaliser_B1)[:, 0]
    for row, token, score in zip(rows, token_B.tolist(), score_B.tolist(), strict=True):
        if row.error is None:
            row.written.add(token, score, row.ends)
    return token_B


def _chosen_apart(logits_BV: Tensor, normaliser_B1: Tensor, groups: Sequence[Group]) -> Tensor:
    """One token for each row, each group by itself; where one can go no further, the others do."""
    token_B = torch.zeros(len(logits_BV), dtype=torch.long, device=logits_BV.device)
    for manner, rows, place_N in groups:
        try:
            token_B[place_N] = _chosen(logits_BV[place_N], normaliser_B1[place_N], manner, rows)
        except DecodingError as error:
            for row in rows:
                row.error = error
    return token_B


def _chosen(logits_BV: Tensor, normaliser_B1: Tensor, manner: Manner, rows: Sequence[Going]) -> Tensor:
    """One token for each of these rows, all of one manner."""
    score_BV = logits_BV
    if manner.filters:
        score_BV = filtered(score_BV, manner.filters, [Row(row.prompt, row.written.tokens) for row in rows])
    if manner.rivals:
        value_BK, place_BK = best(logits_BV, manner.rivals)
        for row, *pairs in zip(rows, place_BK.tolist(), (value_BK - normaliser_B1).tolist(), strict=True):
            row.written.rivals.append([*zip(*pairs, strict=True)])
    return manner.choose(score_BV, [row.number for row in rows])


@torch.inference_mode()
def decode(
    model: Step, state: DecodingState, prompts: Prompts, *, choose: Choose, filters: Sequence[Filter] = ()
) -> Iterator[list[Decoded]]:
    """Go on with each prompt, a token at a time; a row that writes `eos` or that is stopped leaves the batch.

    After each step all rows are handed out as they stand.
    """
    manner = Manner(choose, tuple(filters))
    texts = prompts.lists() if filters else [[]] * len(prompts)
    rows = [
        Going(longest, prompts.ends, manner, number, text)
        for number, (longest, text) in enumerate(zip(prompts.longest_B, texts, strict=True))
    ]
    written, running = [row.written for row in rows], Running(model)
    running.join(rows, state, prompts.token_BT, prompts.count_B)
    while True:
        yield written
        running.part()
        if not running.rows:
            return
        running.step()


def done(row: Decoded, longest: int) -> bool:
    """Whether nothing more is to be written."""
    return row.ended or row.stopped or len(row.tokens) >= longest
