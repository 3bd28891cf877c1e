"""`clearhead convert`: models from and to other projects' formats."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal

import typer

from clearhead.errors import ConfigError

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
    store: Annotated[
        Literal["float32", "float16", "int8"] | None,
        typer.Option(
            help="Bits of the weights in a file of our format; int8 takes little room. "
            "[default: float32, another project's as they are]"
        ),
    ] = None,
) -> None:
    """Turn a model into another format, or another's into ours.

    The tokenizer comes along. The path of the new folder is printed. A model that the other project cannot express is
    refused, and nothing is written.
    """
    from clearhead.tasks.directory import save_model
    from clearhead.tasks.exchange import FORMATS
    from clearhead.tasks.loading import load_model

    if store is not None and form is not Format.clearhead:
        raise ConfigError(f"--store {store} is for our own format: leave it out, or --format {form}")
    parts = load_model(source, stored=True)
    if store is None:
        FORMATS[form.value](target, parts)
    else:
        save_model(target, parts, store=store)
    typer.echo(target)
