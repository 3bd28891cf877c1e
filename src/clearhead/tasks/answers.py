"""What a decoding answers, for people: text, score, tokens, and which words translate which."""

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import nlargest

from clearhead.data.tokenizers import Tokenizer
from clearhead.generate.decode import Decoded

__all__ = ["Answer", "Scored", "best_together", "names_of"]


@dataclass(frozen=True)
class Answer:
    """One of the answers to a text.

    score    by which the answers are ordered: the log-probability, in beam search after its penalties
    tokens   what was written, by its names in the vocabulary, the end included where it was written
    scores   the log-probability of each token
    links    (place in the source, place in the answer) of words that translate each other, where they were asked for;
             words as `clearhead.data.phrasebook.corpus.words` counts them
    """

    text: str
    score: float
    tokens: tuple[str, ...] = ()
    scores: tuple[float, ...] = ()
    links: tuple[tuple[int, int], ...] | None = None


@dataclass(frozen=True)
class Scored:
    """How likely a given text is: its tokens by name, and the log-probability of each."""

    tokens: tuple[str, ...]
    scores: tuple[float, ...]

    @property
    def score(self) -> float:
        """The log-probability of the whole."""
        return sum(self.scores)

    @property
    def mean(self) -> float:
        """Per token; 0 where there is none."""
        return self.score / max(1, len(self.scores))


def names_of(decoded: Decoded, tokenizer: Tokenizer) -> tuple[str, ...]:
    """The tokens by name, the end included where it was written."""
    ids = decoded.tokens if decoded.end is None else [*decoded.tokens, decoded.end]
    return tuple(tokenizer.token_of(id) for id in ids)


def best_together(parts: Sequence[Sequence[Answer]], count: int) -> list[tuple[Answer, ...]]:
    """The best `count` ways to choose an answer for each part, by the sum of their scores, best first.

    >>> a, b = [Answer("a", -1.0), Answer("A", -3.0)], [Answer("b", -1.0), Answer("B", -2.0)]
    >>> ["".join(one.text for one in way) for way in best_together([a, b], 3)]
    ['ab', 'aB', 'Ab']
    """
    ways: list[tuple[Answer, ...]] = [()]
    for answers in parts:
        longer = ((*way, answer) for way in ways for answer in answers)
        ways = nlargest(count, longer, key=lambda way: sum(one.score for one in way))
    return ways
