"""`clearhead predict`: a table with what a model says of its rows."""

import gzip
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from clearhead.cli.text import ModelOption, ThreadsOption
from clearhead.errors import ConfigError

__all__ = ["predict"]


def predict(
    table: Annotated[
        Path, typer.Argument(metavar="TABLE", help="CSV or Parquet, with the columns that the model knows.")
    ],
    model: ModelOption,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="FILE", help="CSV, or Parquet from Parquet. [default: CSV to stdout]"),
    ] = None,
    threads: ThreadsOption = None,
) -> None:
    """Add what a model says to each row of a table.

    Columns, their order, and the order of rows stay; new columns follow: what is predicted and, for classes, the
    probability of each. The table may be larger than memory.
    """
    import torch

    from clearhead.data.table_files import copy_parquet, copy_text, is_parquet
    from clearhead.data.tables import Cells, Table
    from clearhead.tasks.table_estimators import load_estimator
    from clearhead.tasks.table_report import predicted_columns
    from clearhead.train.disk import aside

    if threads is not None:
        torch.set_num_threads(threads)
    if out is not None and out.exists():
        raise ConfigError(f"the file {str(out)!r} exists already; name another, or remove it first")
    if out is not None and is_parquet(out) and not is_parquet(table):
        raise ConfigError(f"from a text file comes a text file: name it {out.with_suffix('.csv').name!r}")
    estimator = load_estimator(model)

    def added(part: Table) -> dict[str, Cells]:
        return predicted_columns(estimator, part, estimator.target_)

    if out is None:
        copy_text(table, sys.stdout, added)
        return
    with aside(out) as temporary:
        if is_parquet(out):
            copy_parquet(table, temporary, added)
        else:
            packed: Any = gzip.open if out.suffix.lower() == ".gz" else open
            with packed(temporary, "wt", newline="", encoding="utf-8") as file:
                copy_text(table, file, added)
