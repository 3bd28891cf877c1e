"""`clearhead train`: from a recipe to a model directory."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from clearhead.cli.text import naming_encoding

__all__ = ["train"]


def train(
    recipe: Annotated[
        Path,
        typer.Argument(
            metavar="RECIPE", help="YAML file, or the name of a recipe that comes with clearhead, such as phrasebook."
        ),
    ],
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Override a key, such as train.steps=10; can be repeated."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", metavar="DIR", help="New folder for the run. [default: runs/ and the recipe's name]"
        ),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in that folder.")] = False,
    show: Annotated[
        bool, typer.Option("--show", help="Print the recipe with its comments, and train nothing.")
    ] = False,
) -> None:
    """Train a model as a recipe says.

    Progress goes to stderr; the path of the model directory is printed at the end. Ctrl-C finishes the step and
    saves it; --resume goes on from there to the same bits. Under torchrun each process takes its share of a batch.
    """
    from clearhead.tasks.recipe import load_recipe
    from clearhead.tasks.registry import run_recipe
    from clearhead.tasks.shipped import find_recipe
    from clearhead.train.interrupt import InterruptionError

    recipe = find_recipe(recipe)
    wanted = load_recipe(recipe, set_ or ())
    if show:
        typer.echo(recipe.read_text(encoding="utf-8"), nl=False)
        return
    folder = Path("runs") / recipe.stem if out is None else out
    leads = os.environ.get("RANK", "0") == "0"  # as torchrun numbers its processes
    shown = leads and sys.stderr.isatty() and wanted.train.resolved()["progress"] in ("auto", "bar")
    try:
        with _reading(shown=shown) as progress, naming_encoding("--set data.encoding"):
            outcome = run_recipe(wanted, out=folder, resume=resume, progress=progress)
    except InterruptionError as interruption:
        typer.echo(f"clearhead: {interruption}", err=True)
        raise typer.Exit(interruption.exit_code) from interruption
    for name, value in outcome.scores.items():
        typer.echo(
            f"test {name.replace('_', ' ')}: {value if isinstance(value, str) else format(value, '.5g')}", err=True
        )
    if leads:
        typer.echo(outcome.folder)


@contextmanager
def _reading(*, shown: bool) -> Iterator[Callable[[int, int], None] | None]:
    """A bar on the terminal while files are read, to be told of bytes so far and in all; gone when they are read."""
    if not shown:
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    columns = TextColumn("reading"), BarColumn(), DownloadColumn(), TimeRemainingColumn()
    bar = Progress(*columns, console=Console(stderr=True), transient=True)
    task = bar.add_task("")

    def tell(read: int, total: int) -> None:
        bar.start()
        bar.update(task, completed=read, total=total)
        if read >= total:
            bar.stop()

    try:
        yield tell
    finally:
        bar.stop()
