"""`clearhead classify`: the class of a text or of an image, or the label of each word of a text."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import typer

from clearhead.cli.text import (
    JsonOption,
    ModelOption,
    PrecisionOption,
    TextArguments,
    ThreadsOption,
    batches,
    say_json,
)
from clearhead.errors import CheckpointError

if TYPE_CHECKING:
    from clearhead.tasks.image_classifier import ImageClassifier
    from clearhead.tasks.text_classifier import TextClassifier
    from clearhead.tasks.token_classifier import TokenClassifier

__all__ = ["classify"]

Answer = tuple[str, dict[str, Any]]  # for the eye, and for programs


def classify(
    model: ModelOption,
    text: TextArguments = None,
    precision: PrecisionOption = "float32",
    threads: ThreadsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Say of which class texts are, or lines of stdin.

    Each answer is the likeliest class and its probability; JSON has all of them. A model that labels words (named
    entities) answers with a line for each word, its label behind it, and an empty line after each text. For a model
    that reads images, the texts are paths of image files.
    """
    from clearhead.tasks.registry import load

    classifier = load(model, precision=precision, threads=threads)
    if classifier.TASK not in ANSWERS:
        raise CheckpointError(f"{model} holds a model for {classifier.TASK}, not for {' or '.join(ANSWERS)}")
    for texts in batches(text):
        for asked, (shown, values) in zip(texts, ANSWERS[classifier.TASK](classifier, texts), strict=True):
            if as_json:
                say_json({"text": asked, **values})
            else:
                typer.echo(shown)


def _of_texts(classifier: "TextClassifier | ImageClassifier", texts: list[str]) -> Iterator[Answer]:
    for probabilities in classifier.predict(texts):
        label = max(probabilities, key=probabilities.__getitem__)
        yield f"{label}\t{probabilities[label]:.4f}", {"label": label, "probabilities": probabilities}


def _of_words(classifier: "TokenClassifier", texts: list[str]) -> Iterator[Answer]:
    for words in classifier.label(texts):
        yield "".join(f"{word}\t{tag}\n" for word, tag in words), {"words": [[word, tag] for word, tag in words]}


ANSWERS: dict[str, Callable[[Any, list[str]], Iterator[Answer]]] = {
    "text_classification": _of_texts,
    "image_classification": _of_texts,
    "token_classification": _of_words,
}
