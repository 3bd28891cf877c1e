"""`clearhead convert`: models from and to other projects' formats."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

__all__ = ["Format", "convert"]


class Format(StrEnum):
    hf = "hf"
    clearhead = "clearhead"
    onnx = "onnx"


def convert(
    source: Annotated[
        str, typer.Argument(metavar="FROM", help="Model directory, Hugging Face folder, GGUF file, or hub name.")
    ],
    target: Annotated[Path, typer.Argument(metavar="TO", help="The new folder; it must not exist.")],
    form: Annotated[
        Format, typer.Option("--format", help="What TO becomes: ours, Hugging Face's, or ONNX graphs.")
    ] = Format.clearhead,
) -> None:
    """Turn a model into another format, or another project's into ours.

    The tokenizer comes along. The path of the new folder is printed. A model that the other project cannot express is
    refused, and nothing is written.
    """
    from clearhead.tasks.exchange import FORMATS
    from clearhead.tasks.loading import load_model

    save = FORMATS[form.value]
    typer.echo(save(target, load_model(source, stored=True)))
