"""`clearhead average`: one model from several checkpoints of a run."""

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["average"]


def average(
    checkpoints: Annotated[
        list[Path],
        typer.Argument(metavar="CHECKPOINT", help="Checkpoints; a run's folder stands for all that it kept."),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="DIR", help="New model directory.")],
) -> None:
    """Average the weights of several checkpoints.

    The mean of the last or best few checkpoints of a run is often better than each of them. Everything but the
    weights is as in the last checkpoint named. The path of the new model directory is printed.
    """
    from clearhead.convert.load import is_foreign
    from clearhead.errors import CheckpointError, ConfigError
    from clearhead.nn.weights import load_tensors
    from clearhead.tasks.directory import read_settings, save_model
    from clearhead.tasks.loading import find_model, load_model
    from clearhead.train.average import average as mean_of
    from clearhead.train.run import Run

    if out.exists():
        raise ConfigError(f"the output folder {str(out)!r} exists already; name another, or remove it first")
    folders = [
        folder
        for path in checkpoints
        for folder in ([Run(path).folder(step) for step in Run(path).steps()] if path.is_dir() else [])
        or [find_model(path)]
    ]
    other = next((folder for folder in folders if folder.is_file() or is_foreign(folder)), None)
    if other is not None:
        raise CheckpointError(f"{other} is another project's model: `clearhead convert` makes one of ours of it first")
    parts = load_model(folders[-1])
    odd = next((folder for folder in folders if read_settings(folder) != parts.settings), None)
    if odd is not None:
        raise CheckpointError(f"{odd} is of another architecture than {folders[-1]}: they cannot be averaged")
    load_tensors(parts.model, mean_of(folders), source=folders[-1])
    save_model(out, parts)
    typer.echo(f"The mean of {len(folders)} checkpoints.", err=True)
    typer.echo(out)
