"""`clearhead embed`: the vector of a text."""

import json

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

__all__ = ["embed"]


def embed(
    model: ModelOption,
    text: TextArguments = None,
    precision: PrecisionOption = "float32",
    threads: ThreadsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Give the vectors of texts, or of lines of stdin.

    Each is a line with a JSON list of numbers. Texts that mean alike have vectors that point alike. Of a text longer
    than the model's context, its beginning counts.
    """
    from clearhead.tasks.sentence_encoder import SentenceEncoder

    encoder = SentenceEncoder.from_pretrained(model, precision=precision, threads=threads)
    for texts in batches(text):
        for asked, vector in zip(texts, encoder.encode(texts).tolist(), strict=True):
            if as_json:
                say_json({"text": asked, "vector": vector})
            else:
                typer.echo(json.dumps(vector))
