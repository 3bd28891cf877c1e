"""The one loop of decoding without search: read, choose a token for each row, read it, until every row has ended."""

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from clearhead.errors import DecodingError
from clearhead.generate.step import DecodingState, Step

__all__ = ["Decoded", "decode"]

Choose = Callable[[Tensor], Tensor]  # log-probabilities (B, V) -> one token for each row (B,)


@dataclass(frozen=True)
class Decoded:
    """What was written for one row, without the prompt and without `eos`.

    scores   log-probabilities of the tokens and, where the row ended by itself, of `eos`
    """

    tokens: list[int] = field(default_factory=list)
    scores: list[float] = field(default_factory=list)

    @property
    def ended(self) -> bool:
        return len(self.scores) > len(self.tokens)

    @property
    def score(self) -> float:
        return sum(self.scores)


@torch.inference_mode()
def decode(
    model: Step,
    state: DecodingState,
    token_BT: Tensor,
    *,
    choose: Choose,
    eos: int | None,
    longest: int,
    count_B: Tensor | None = None,
) -> list[Decoded]:
    """Write at most `longest` tokens after each prompt; a row that writes `eos` leaves the batch.

    Of row b of `token_BT` only the first `count_B[b]` tokens are real.
    """
    if longest < 1:
        raise DecodingError(f"at least one token must be asked for: {longest=}")
    written = [Decoded() for _ in token_BT]
    rows = written
    logits_BTV, state = model.step(token_BT, state, count_B=count_B, last=True)
    for left in reversed(range(longest)):
        score_BV = logits_BTV[:, -1].float().log_softmax(-1)
        token_B = choose(score_BV)
        score_B = score_BV.gather(1, token_B[:, None])[:, 0]
        for row, token, score in zip(rows, token_B.tolist(), score_B.tolist(), strict=True):
            row.scores.append(score)
            if token != eos:
                row.tokens.append(token)
        going = [number for number, row in enumerate(rows) if not row.ended]
        if not going or not left:
            break
        if len(going) < len(rows):
            rows = [rows[number] for number in going]
            going_B = torch.tensor(going, device=token_B.device)
            token_B, state = token_B[going_B], state.select(going_B)
        logits_BTV, state = model.step(token_B[:, None], state, last=True)
    return written
