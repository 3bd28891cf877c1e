"""BLEU and chrF by sacrebleu, with the signature without which neither figure means anything [post2018]."""

from collections.abc import Sequence
from dataclasses import dataclass

from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF

from clearhead.errors import DataError

__all__ = ["Score", "bleu", "chrf"]


@dataclass(frozen=True)
class Score:
    """A figure between 0 and 100, and how it was computed."""

    value: float
    signature: str

    def __str__(self) -> str:
        return f"{self.value:.2f} ({self.signature})"


def bleu(hypotheses: Sequence[str], references: Sequence[str], *, lowercase: bool = False) -> Score:
    """BLEU [papineni2002] of a corpus against one reference for each sentence, tokenized by 13a."""
    return _score(BLEU(lowercase=lowercase), hypotheses, references)


def chrf(hypotheses: Sequence[str], references: Sequence[str], *, lowercase: bool = False) -> Score:
    """chrF [popovic2015]: the F₂ score of character n-grams up to 6."""
    return _score(CHRF(lowercase=lowercase), hypotheses, references)


def _score(metric: BLEU | CHRF, hypotheses: Sequence[str], references: Sequence[str]) -> Score:
    if not hypotheses or len(hypotheses) != len(references):
        raise DataError(
            f"as many references as hypotheses are wanted: {len(hypotheses)} hypotheses, {len(references)} references"
        )
    value = metric.corpus_score(list(hypotheses), [list(references)]).score
    return Score(float(value), str(metric.get_signature()))
