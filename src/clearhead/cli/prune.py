"""`clearhead prune`: a model without the heads that matter least."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from clearhead.cli.evaluate import how_to_read, read_file
from clearhead.cli.text import (
    EncodingOption,
    JsonOption,
    ModelOption,
    ReadingOptions,
    ThreadsOption,
    naming_encoding,
    say_json,
)
from clearhead.errors import ConfigError

if TYPE_CHECKING:
    from clearhead.tasks.pruning import Pruned

__all__ = ["prune"]


def prune(
    model: ModelOption,
    on: Annotated[
        list[Path],
        typer.Option(
            "--on", metavar="FILE", help="Data to judge by, of the form that the task learns from; twice for two."
        ),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="DIR", help="New folder for the pruned model.")],
    keep: Annotated[
        float, typer.Option(metavar="SHARE", help="Of all heads; each attention keeps one at least.")
    ] = 0.5,
    by: Annotated[
        Literal["gradient", "ablation", "gates"],
        typer.Option(help="How heads are judged: by the loss's slope, without each in turn, by gates that learn."),
    ] = "gradient",
    encoding: EncodingOption = "utf-8",
    set_: ReadingOptions = None,
    threads: ThreadsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Take the heads that matter least out of a model.

    The matrices become smaller, and so do the folder and the time to decode. Shows which heads are left, and the same
    scores before and after.
    """
    import torch

    from clearhead.tasks.loading import find_model
    from clearhead.tasks.pruning import folder_bytes, prune_task
    from clearhead.tasks.registry import load

    if out.exists():
        raise ConfigError(f"the output folder {str(out)!r} exists already; name another, or remove it first")
    if threads is not None:
        torch.set_num_threads(threads)
    whole = find_model(model)
    task = load(whole, precision="")
    with naming_encoding("--encoding"):
        found = prune_task(task, read_file(task.TASK, on, how_to_read(encoding, set_ or ())), keep=keep, by=by)
    found.task.save_pretrained(out)
    size = folder_bytes(whole) if whole.is_dir() else whole.stat().st_size, folder_bytes(out)
    (_say_as_json if as_json else _say)(found, size)
    typer.echo(f"saved to {out}", err=True)


def _say_as_json(found: "Pruned", size: tuple[int, int]) -> None:
    say_json(
        {
            "kept": {name: list(heads) for name, heads in found.kept.items()},
            "importance": {
                by: {name: value.tolist() for name, value in one.items()} for by, one in found.importance.items()
            },
            "spearman": found.agreement,
            "before": found.before,
            "after": found.after,
            "parameters": list(found.parameters),
            "bytes": list(size),
        }
    )


def _say(found: "Pruned", size: tuple[int, int]) -> None:
    name_room = max(map(len, found.kept))
    for name, heads in found.kept.items():
        typer.echo(f"{name:<{name_room}}  {' '.join(map(str, heads))}")
    if found.agreement is not None:
        typer.echo(f"\ngradient and ablation agree in rank: Spearman {found.agreement:.3f}")
    rows: list[tuple[str, ...]] = [("", "before", "after")]
    rows += [(name, *(_shown(one[name]) for one in (found.before, found.after))) for name in found.before]
    rows += [
        ("parameters", *(f"{count:,}" for count in found.parameters)),
        ("bytes", *(f"{count:,}" for count in size)),
    ]
    told = [row for row in rows if row[1] != row[2]]
    widths = [max(map(len, column)) for column in zip(*told, strict=True)]
    typer.echo()
    for row in told:
        typer.echo("  ".join(map(str.ljust, row, widths)).rstrip())
    for name, same, _ in (row for row in rows if row not in told):
        typer.echo(f"{name}  {same}")


def _shown(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:.6g}"
