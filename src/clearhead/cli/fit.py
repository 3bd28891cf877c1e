"""`clearhead fit`: from a table to a model that predicts one of its columns."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from clearhead.cli.text import JsonOption, ThreadsOption, say_json

if TYPE_CHECKING:
    from clearhead.data.table_columns import Column
    from clearhead.tasks.table_report import Report

__all__ = ["fit"]

BAR = 30


def fit(
    table: Annotated[Path, typer.Argument(metavar="TABLE", help="CSV, with the names of columns on top, or Parquet.")],
    target: Annotated[str, typer.Option("--target", "-t", metavar="COLUMN", help="The column to predict.")],
    kind: Annotated[
        Literal["ft", "tab"], typer.Option(help="ft: FT-Transformer; tab: TabTransformer, for many categories.")
    ] = "ft",
    aim: Annotated[
        Literal["auto", "classification", "regression"],
        typer.Option(help="auto: text and a few whole numbers are classes."),
    ] = "auto",
    numbers: Annotated[
        Literal["linear", "quantiles", "trees", "periodic"], typer.Option(help="How numbers become tokens.")
    ] = "linear",
    ensemble: Annotated[int, typer.Option(min=1, metavar="N", help="Members, trained side by side.")] = 1,
    layers: Annotated[int | None, typer.Option(min=1, metavar="N", help="[default: the paper's]")] = None,
    width: Annotated[int | None, typer.Option(min=1, metavar="N", help="[default: the paper's]")] = None,
    epochs: Annotated[int, typer.Option(min=1, metavar="N", help="At most.")] = 200,
    category: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN", help="Holds categories, whatever it looks like; can be repeated."),
    ] = None,
    test: Annotated[float, typer.Option(metavar="SHARE", help="Of the rows, kept for the test.")] = 0.2,
    seed: Annotated[int, typer.Option(min=0, max=2**32 - 1, metavar="N")] = 0,
    out: Annotated[Path | None, typer.Option("--out", "-o", metavar="DIR", help="New folder for the model.")] = None,
    threads: ThreadsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Learn to predict a column of a table.

    Shows what each column was taken for, the scores on rows kept for the test beside those of simpler models, and
    how much each column matters. With --out the model is kept, for `clearhead predict`.
    """
    import torch

    from clearhead.errors import ConfigError
    from clearhead.tasks.table_report import FileToFit, fit_file

    if out is not None and out.exists():
        raise ConfigError(f"the output folder {str(out)!r} exists already; name another, or remove it first")
    if out is not None and not _has_room(out):
        raise ConfigError(f"the output folder {str(out)!r} cannot be made where it is wanted; name another")
    if threads is not None:
        torch.set_num_threads(threads)
    options = {
        "kind": kind, "numbers": numbers, "n_ensemble": ensemble, "layers": layers, "width": width, "epochs": epochs,
        "categories": category,
    }  # fmt: skip
    report = fit_file(FileToFit(table, target, aim, test, seed), options)
    if out is not None:
        report.estimator.save_pretrained(out, target=target)
    (_say_as_json if as_json else _say)(report, target)
    if out is not None:
        typer.echo(f"saved to {out}", err=True)


def _has_room(out: Path) -> bool:
    """Whether a folder can be made there: better asked before the training than after it."""
    above = next(parent for parent in out.absolute().parents if parent.exists())
    return above.is_dir() and os.access(above, os.W_OK)


def _say_as_json(report: "Report", target: str) -> None:
    columns = [{"name": c.name, "kind": c.kind, "distinct": c.distinct, "missing": c.missing} for c in report.columns]
    say_json(
        {
            "target": target,
            "task": report.estimator.TASK,
            "rows": dict(report.rows),
            "columns": columns,
            "epochs": report.estimator.n_iter_,
            "validation": report.validation,
            "scores": {name: dict(scores) for name, scores in report.scores.items()},
            "importance": {name: dict(found) for name, found in report.importance.items()},
        }
    )


def _say(report: "Report", target: str) -> None:
    typer.echo(_columns(report.columns))
    rows = ", ".join(f"{count:,} to {'learn from' if part == 'train' else part}" for part, count in report.rows.items())
    typer.echo(f"\n{report.estimator.TASK.replace('_', ' ')} of {target}: {rows}; {report.estimator.n_iter_} epochs")
    typer.echo(
        f"validation ({'error' if 'classes_' in vars(report.estimator) else 'RMSE / σ'}): {report.validation:.4f}\n"
    )
    names = list(next(iter(report.scores.values())))
    typer.echo(_aligned([["test", *names], *_score_rows(report.scores, names)]))
    typer.echo("\n" + _importance(report.importance, names[0]))


def _importance(importance: "Mapping[str, Mapping[str, float]]", score: str) -> str:
    """What shuffling each column costs, as bars, and beside it how much the model looks at the column."""
    largest = max([1e-12, *(found["permutation"] for found in importance.values())])
    attended = any("attention" in found for found in importance.values())
    lost = "R²" if score == "rmse" else score
    rows = [["column", f"{lost} lost when shuffled", "attention" if attended else "", ""]]
    for name, found in importance.items():
        bar = "█" * max(0, round(BAR * found["permutation"] / largest))
        share = f"{found['attention']:.3f}" if attended else ""
        rows.append([name, f"{found['permutation']:+.4f}", share, bar])
    return _aligned(rows)


def _columns(columns: "Sequence[Column]") -> str:
    shown = [[c.name, c.kind + ("" if c.used else ": left out"), f"{c.distinct:,}", f"{c.missing:,}"] for c in columns]
    return _aligned([["column", "kind", "distinct", "missing"], *shown])


def _score_rows(scores: Mapping[str, Mapping[str, float]], names: Sequence[str]) -> list[list[Any]]:
    return [
        [model, *(f"{figures[name]:.4f}" if name in figures else "" for name in names)]
        for model, figures in scores.items()
    ]


def _aligned(rows: list[list[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)
