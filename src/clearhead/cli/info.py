"""`clearhead info`: what a model directory holds."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from clearhead.cli.text import JsonOption, say_figures, say_json

__all__ = ["info"]


def info(
    model: Annotated[
        Path, typer.Argument(metavar="MODEL", help="Model directory, run, other project's folder, GGUF file, hub name.")
    ],
    as_json: JsonOption = False,
) -> None:
    """Show what a model directory holds.

    Its task, architecture and languages, how many parameters each part has, and every setting.
    """
    from clearhead.tasks.loading import find_model, load_model

    found = find_model(model)
    parts = load_model(found)
    table = parts.model.parameters_table()
    about = {
        "folder": str(found),
        "task": parts.settings.task,
        "architecture": parts.settings.architecture,
        "languages": list(parts.settings.languages),
        "labels": list(parts.settings.labels),
        "vocabulary": getattr(parts.tokenizer, "vocabulary_size", ""),  # what reads images has none
        "parameters": table.total,
    }
    settings = asdict(parts.settings.config)
    generation = dict(parts.settings.generation)
    if as_json:
        say_json({**about, "config": settings, "generation": generation, "parts": dict(table.rows)})
        return
    say_figures({name: _shown(value) for name, value in about.items() if value not in ([], "")})
    typer.echo(f"\n{table}\n")
    say_figures({name: _shown(value) for name, value in settings.items()})
    if generation:
        typer.echo("\nwhen it writes")
        say_figures({name: _shown(value) for name, value in generation.items()})


def _shown(value: object) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return " ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
