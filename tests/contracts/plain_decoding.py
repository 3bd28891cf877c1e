"""Greedy decoding and beam search once more, a row at a time, without caches: every text is read anew at each step."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from torch import Tensor

Read = Callable[[Sequence[Sequence[int]]], Tensor]  # texts of one length -> log-probabilities of what follows (N, V)


class Answer(NamedTuple):
    """Tokens without `eos`, and the log-probability of each and of `eos` where it came."""

    tokens: list[int]
    scores: list[float]


def plain_greedy(read: Read, prompt: Sequence[int], longest: int, eos: int | None) -> Answer:
    answer = Answer([], [])
    while len(answer.tokens) < longest:
        score_V = read([[*prompt, *answer.tokens]])[0]
        token = int(score_V.argmax())
        answer.scores.append(float(score_V[token]))
        if token == eos:
            break
        answer.tokens.append(token)
    return answer


def plain_beam(
    read: Read,
    prompt: Sequence[int],
    longest: int,
    eos: int | None,
    *,
    beams: int,
    length_penalty: float = 1.0,
    stopping: str = "likely",
) -> list[tuple[float, Answer]]:
    """Every finished hypothesis that is kept, best first, with its score."""
    running, finished = [Answer([], [])], []
    for length in range(1, longest + 1):
        score_NV = read([[*prompt, *one.tokens] for one in running])
        offers = [
            (sum(one.scores) + score, Answer([*one.tokens, token], [*one.scores, score]))
            for one, score_V in zip(running, score_NV.tolist(), strict=True)
            for token, score in enumerate(score_V)
        ]
        offers = sorted(offers, key=lambda offer: -offer[0])[: 2 * beams]
        ends = [length == longest or one.tokens[-1] == eos for _, one in offers]
        finished += [
            (total / length**length_penalty, one)
            for (total, one), end in list(zip(offers, ends, strict=True))[:beams]
            if end
        ]
        finished = sorted(finished, key=lambda pair: -pair[0])[:beams]
        going = [offer for offer, end in zip(offers, ends, strict=True) if not end][:beams]
        if not going:
            break
        running = [one for _, one in going]
        hoped = longest if stopping == "sure" and length_penalty > 0 else length
        hope = going[0][0] / hoped**length_penalty
        if len(finished) == beams and (stopping == "full" or hope <= finished[-1][0]):
            break
    return [(score, _without(one, eos)) for score, one in finished]


def _without(answer: Answer, eos: int | None) -> Answer:
    return Answer(answer.tokens[:-1], answer.scores) if answer.tokens[-1] == eos else answer
