"""The bar that a fit shows on a terminal."""

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from clearhead.errors import ConfigError

__all__ = ["SHOWN", "epochs_bar"]

SHOWN = ("auto", "bar", "quiet")


@contextmanager
def epochs_bar(progress: str, epochs: int) -> Iterator[Callable[[Mapping[str, float]], None]]:
    """What is to be told of the figures of each epoch: a bar on stderr, with "auto" only where that is a terminal."""
    if progress not in SHOWN:
        raise ConfigError(f"progress must be one of {', '.join(SHOWN)}: {progress=}")
    if progress == "quiet" or (progress == "auto" and not sys.stderr.isatty()):
        yield lambda figures: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    said = TextColumn("{task.description}", markup=False)
    columns = TextColumn("epoch"), MofNCompleteColumn(), BarColumn(bar_width=8), said, TimeElapsedColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=epochs)

        def tell(figures: Mapping[str, float]) -> None:
            bar.update(task, advance=1, description="  ".join(f"{name} {value:.4g}" for name, value in figures.items()))

        yield tell
