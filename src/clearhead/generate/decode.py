"""The one loop of decoding without search: read, choose a token for each row, read it, until every row has ended."""

from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass, field

import torch
from torch import Tensor

from clearhead.errors import DecodingError
from clearhead.generate.filters import Filter, Row
from clearhead.generate.step import DecodingState, Step

__all__ = ["Choose", "Decoded", "Prompts", "decode", "done", "filtered", "normaliser"]

# scores (B, V), and which rows of the whole these are -> one token for each row (B,)
Choose = Callable[[Tensor, Sequence[int]], Tensor]


@dataclass
class Decoded:
    """What was written for one row, without the prompt and without the token that ended it.

    scores    log-probabilities of the tokens and, where the row ended by itself, of that last one
    end       which one it was
    stopped   set by whoever reads along and has seen enough: the row leaves
    """

    tokens: list[int] = field(default_factory=list)
    scores: list[float] = field(default_factory=list)
    stopped: bool = False
    end: int | None = field(default=None, compare=False)

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


@torch.inference_mode()
def decode(
    model: Step, state: DecodingState, prompts: Prompts, *, choose: Choose, filters: Sequence[Filter] = ()
) -> Iterator[list[Decoded]]:
    """Go on with each prompt, a token at a time; a row that writes `eos` or that is stopped leaves the batch.

    After each step all rows are handed out as they stand.
    """
    written = [Decoded() for _ in range(len(prompts))]
    going, texts = list(range(len(prompts))), prompts.lists() if filters else []
    logits_BTV, state = model.step(prompts.token_BT, state, count_B=prompts.count_B, last=True)
    while True:
        logits_BV = logits_BTV[:, -1].float()
        normaliser_B1 = normaliser(logits_BV)
        score_BV = logits_BV
        if filters:
            score_BV = filtered(score_BV, filters, [Row(texts[row], written[row].tokens) for row in going])
        token_B = choose(score_BV, going)
        score_B = (logits_BV.gather(1, token_B[:, None]) - normaliser_B1)[:, 0]
        for row, token, score in zip(going, token_B.tolist(), score_B.tolist(), strict=True):
            written[row].add(token, score, prompts.ends)
        yield written
        staying = [place for place, row in enumerate(going) if not done(written[row], prompts.longest_B[row])]
        if not staying:
            return
        if len(staying) < len(going):
            going = [going[place] for place in staying]
            staying_B = torch.tensor(staying, device=token_B.device)
            token_B, state = token_B[staying_B], state.select(staying_B)
        logits_BTV, state = model.step(token_B[:, None], state, last=True)


def done(row: Decoded, longest: int) -> bool:
    """Whether nothing more is to be written."""
    return row.ended or row.stopped or len(row.tokens) >= longest
