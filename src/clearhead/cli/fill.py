"""`clearhead fill`: the hidden words of a text."""

from typing import Annotated

import typer

from clearhead.cli.text import (
    JsonOption,
    ModelOption,
    PrecisionOption,
    TextArguments,
    ThreadsOption,
    batches,
    say_json,
    say_line,
)

__all__ = ["fill"]


def fill(
    model: ModelOption,
    text: TextArguments = None,
    top: Annotated[int, typer.Option(min=1, help="So many guesses for each hidden word, in JSON.")] = 5,
    precision: PrecisionOption = "float32",
    threads: ThreadsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Fill in the words that texts, or lines of stdin, hide.

    A hidden word is written <mask>: "the <mask> barks".
    """
    from clearhead.tasks.masked_model import MaskedModel

    filler = MaskedModel.from_pretrained(model, precision=precision, threads=threads)
    top = min(top, filler.tokenizer.vocabulary_size)
    for texts in batches(text):
        for asked in texts:
            if as_json:
                guesses = [[list(guess) for guess in row] for row in filler.guesses(asked, top)]
                say_json({"text": asked, "filled": filler.fill(asked), "guesses": guesses})
            else:
                say_line(filler.fill(asked))
