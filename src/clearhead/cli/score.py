"""`clearhead score`: how likely given texts are."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import typer

from clearhead.cli.text import (
    SHIPPED,
    JsonOption,
    ModelOption,
    PrecisionOption,
    TextArguments,
    ThreadsOption,
    batches,
    say_json,
)
from clearhead.errors import CheckpointError, DataError

if TYPE_CHECKING:
    from clearhead.tasks.answers import Scored
    from clearhead.tasks.language_model import LanguageModel
    from clearhead.tasks.translator import Translator

__all__ = ["score"]

Result = tuple[dict[str, str], "Scored"]  # what was scored, and how


def score(
    model: ModelOption = SHIPPED,
    text: TextArguments = None,
    precision: PrecisionOption = "float32",
    threads: ThreadsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Say how likely texts are, or lines of stdin.

    A language model is given texts, a translator a source and its target with a tab between them. The answer is the
    natural logarithm of the probability, and behind it the text; JSON has that of each token.
    """
    from clearhead.tasks.registry import load

    judge = load(model, precision=precision, threads=threads)
    if judge.TASK not in RESULTS:
        raise CheckpointError(f"{model} holds a model for {judge.TASK}, not for {' or '.join(RESULTS)}")
    number = 1
    for texts in batches(text):
        for asked, (named, scored) in zip(texts, RESULTS[judge.TASK](judge, texts, number), strict=True):
            if as_json:
                tokens = [[token, one] for token, one in zip(scored.tokens, scored.scores, strict=True)]
                say_json({**named, "score": scored.score, "mean": scored.mean, "tokens": tokens})
            else:
                typer.echo(f"{scored.score:.4f}\t{asked}")
        number += len(texts)


def _of_texts(judge: "LanguageModel", texts: list[str], number: int) -> Iterator[Result]:
    for text, scored in zip(texts, judge.score(texts), strict=True):
        yield {"text": text}, scored


def _of_pairs(judge: "Translator", texts: list[str], number: int) -> Iterator[Result]:
    pairs = [text.split("\t") for text in texts]
    for offset, pair in enumerate(pairs):
        if len(pair) != 2:
            raise DataError(f"text {number + offset}: a source and its target with one tab between them are wanted")
    sources, targets = ([pair[side] for pair in pairs] for side in (0, 1))
    for source, target, scored in zip(sources, targets, judge.score(sources, targets), strict=True):
        yield {"source": source, "target": target}, scored


RESULTS: dict[str, Callable[[Any, list[str], int], Iterator[Result]]] = {
    "language_model": _of_texts,
    "translation": _of_pairs,
}
