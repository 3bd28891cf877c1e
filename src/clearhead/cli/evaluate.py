"""`clearhead evaluate`: how good a model is on a file."""

from pathlib import Path
from typing import Annotated

import typer

from clearhead.cli.text import JsonOption, ModelOption, say_figures, say_json

__all__ = ["evaluate"]


def evaluate(
    file: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE", help="Data of the form that the model learned from; two parallel files for pairs."
        ),
    ],
    model: ModelOption,
    as_json: JsonOption = False,
) -> None:
    """Measure how good a model is on a file.

    The task decides by what: BLEU and chrF with their signatures, loss and perplexity, accuracy and F1.
    """
    from clearhead.errors import ConfigError
    from clearhead.tasks.registry import load

    if len(file) > 2:
        raise ConfigError(f"one file or two parallel ones are wanted, not {len(file)}")
    figures = load(model).evaluate(file[0] if len(file) == 1 else (file[0], file[1]))
    (say_json if as_json else say_figures)(figures)
