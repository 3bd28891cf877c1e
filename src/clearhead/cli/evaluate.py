"""`clearhead evaluate`: how good a model is on a file."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from clearhead.cli.decoding import BeamOption, MoreOptions, options_of
from clearhead.cli.text import (
    SHIPPED,
    EncodingOption,
    JsonOption,
    ModelOption,
    PrecisionOption,
    ReadingOptions,
    ThreadsOption,
    naming_encoding,
    say_figures,
    say_json,
)
from clearhead.errors import ConfigError

if TYPE_CHECKING:
    from clearhead.tasks.recipe import Data

__all__ = ["evaluate", "how_to_read", "read_file"]


def evaluate(
    file: Annotated[
        list[Path],
        typer.Argument(metavar="FILE", help="Of the form that the task learns from; pairs may be two files."),
    ],
    model: ModelOption = SHIPPED,
    encoding: EncodingOption = "utf-8",
    set_: ReadingOptions = None,
    beam: BeamOption = None,
    option: MoreOptions = None,
    precision: PrecisionOption = "float32",
    threads: ThreadsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Measure how good a model is on a file.

    The task decides by what: BLEU and chrF with their signatures, loss and perplexity, accuracy and F1. Options of
    decoding are for translators.
    """
    from clearhead.tasks.registry import load

    options = options_of(option) | ({} if beam is None else {"beams": beam})
    task = load(model, precision=precision, threads=threads)
    if options and task.TASK != "translation":
        raise ConfigError(f"a model for {task.TASK} is measured without decoding: leave {next(iter(options))} out")
    with naming_encoding("--encoding"):
        figures = task.evaluate(read_file(task.TASK, file, how_to_read(encoding, set_ or ())), **options)
    (say_json if as_json else say_figures)(figures)


def how_to_read(encoding: str, sets: Sequence[str]) -> "Data":
    """The data section of a recipe that has this encoding and these keys."""
    import yaml
    from pydantic import ValidationError

    from clearhead.tasks.checked import complaint
    from clearhead.tasks.recipe import Data

    try:
        pairs = [text.removeprefix("data.").split("=", 1) for text in sets]
        return Data.model_validate({"encoding": encoding} | {key: yaml.safe_load(value) for key, value in pairs})
    except (ValueError, yaml.YAMLError) as error:
        if isinstance(error, ValidationError):
            raise ConfigError(complaint(error, place="data", known={"": Data.model_fields})) from error
        raise ConfigError(f"how to read a file is written like data.columns=[1, 0], not {' '.join(sets)!r}") from error


def read_file(task: str, files: Sequence[Path], how: "Data") -> Any:
    """What `evaluate` of that task takes."""
    from clearhead.data.pairs import PairSource
    from clearhead.data.sources import TextSource
    from clearhead.tasks.labelled_data import read_labelled, read_tagged

    most = 2 if task == "translation" else 1
    if len(files) > most:
        raise ConfigError(f"a model for {task} is measured on {most} file{'s' * (most - 1)} at most, not {len(files)}")
    if task == "translation":
        return PairSource(files[0], files[1] if files[1:] else None, how.fields, how.columns, how.encoding)
    if task == "text_classification":
        return read_labelled(files[0], how)
    if task == "token_classification":
        return read_tagged(files[0], how)
    return TextSource(files[0], how.text, how.encoding, how.unit)
