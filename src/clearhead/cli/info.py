"""`clearhead info`: what a model directory holds."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from clearhead.cli.text import SHIPPED, JsonOption, say_figures, say_json

__all__ = ["info"]


class _About(NamedTuple):
    """What is to be said of a model, the model itself, its config, and how it writes."""

    words: dict[str, Any]
    model: Any
    config: Any
    generation: dict[str, Any]


def info(
    model: Annotated[
        Path, typer.Argument(metavar="MODEL", help="Model directory, run, other project's folder, GGUF file, hub name.")
    ] = SHIPPED,
    as_json: JsonOption = False,
) -> None:
    """Show what a model directory holds.

    Its task, architecture and languages, how many parameters each part has, and every setting.
    """
    from clearhead.nn.account import parameters_table
    from clearhead.tasks.loading import find_model

    found = find_model(model)
    words, network, config, generation = (_of_table if (found / "table.json").is_file() else _of_model)(found)
    table, settings = parameters_table(network), asdict(config)
    about = {"folder": str(found), **words, "parameters": table.total}
    if as_json:
        say_json({**about, "config": settings, "generation": generation, "parts": dict(table.rows)})
        return
    say_figures({name: _shown(value) for name, value in about.items() if value not in ([], "")})
    typer.echo(f"\n{table}\n")
    say_figures({name: _shown(value) for name, value in settings.items()})
    if generation:
        typer.echo("\nwhen it writes")
        say_figures({name: _shown(value) for name, value in generation.items()})


def _of_model(found: Path) -> _About:
    from clearhead.tasks.loading import load_model

    parts = load_model(found)
    words = {
        "task": parts.settings.task,
        "architecture": parts.settings.architecture,
        "languages": list(parts.settings.languages),
        "labels": list(parts.settings.labels),
        "vocabulary": getattr(parts.tokenizer, "vocabulary_size", ""),  # what reads images has none
    }
    return _About(words, parts.model, parts.settings.config, dict(parts.settings.generation))


def _of_table(found: Path) -> _About:
    from clearhead.tasks.directory import read_settings
    from clearhead.tasks.table_estimators import load_estimator

    estimator = load_estimator(found)
    fitted = estimator.fitted_
    words = {
        "task": estimator.TASK,
        "architecture": read_settings(found).architecture,
        "predicts": estimator.target_,
        "labels": [str(label) for label in getattr(estimator, "classes_", ())],
        "columns": list(fitted.schema.used),
        "members": fitted.members,
    }
    return _About(words, fitted.model, fitted.config, {})


def _shown(value: object) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return " ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
