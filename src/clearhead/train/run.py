"""The run directory: `checkpoint-<step>/`, the links `best` and `last`, `recipe.yaml`, `metrics.jsonl`.

Folders appear by renaming and disappear by renaming, so that every `checkpoint-<step>` that is there is whole.
The links are for people and scripts; resuming goes by the folders.
"""

import os
import re
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from clearhead.errors import CheckpointError, ConfigError
from clearhead.train.disk import aside, explained, remove

__all__ = ["Run", "linked", "open_run"]

FOLDER = re.compile(r"checkpoint-(\d+)")
RECIPE = "recipe.yaml"
TEMPORARY = re.compile(
    r"\.(checkpoint-\d+|best|last|recipe(-before-\d+)?\.yaml|metrics\.jsonl)\.tmp"
)  # as `aside` names them


@dataclass(frozen=True)
class Run:
    """A directory in which one training run lives; a `fleeting` one is gone when the run has ended."""

    directory: Path
    fleeting: bool = False

    @property
    def metrics(self) -> Path:
        return self.directory / "metrics.jsonl"

    def note_recipe(self, recipe: str) -> None:
        """Keep the recipe as `recipe.yaml`; a former one that differs stays as `recipe-before-<step>.yaml`."""
        path = self.directory / RECIPE
        former = path.read_text("utf-8") if path.exists() else recipe
        if former != recipe:
            self._write(self.directory / f"recipe-before-{max(self.steps(), default=0)}.yaml", former)
        self._write(path, recipe)

    def folder(self, step: int) -> Path:
        return self.directory / f"checkpoint-{step}"

    def steps(self) -> list[int]:
        """The steps that have a checkpoint, rising."""
        names = [FOLDER.fullmatch(path.name) for path in self.directory.iterdir() if path.is_dir()]
        return sorted(int(name[1]) for name in names if name)

    def link(self, name: str, step: int) -> None:
        """Let `best` or `last` be the checkpoint of that step; a text file with its name where links do not exist."""
        with aside(self.directory / name) as temporary:
            try:
                os.symlink(self.folder(step).name, temporary, target_is_directory=True)
            except (OSError, NotImplementedError):
                temporary.write_text(self.folder(step).name + "\n", encoding="utf-8")

    def prune(self, keep: Collection[int]) -> None:
        """Remove all other checkpoints, each renamed first so that none is ever seen half gone."""
        for step in self.steps():
            if step not in keep:
                condemned = self.directory / f".{self.folder(step).name}.tmp"
                os.replace(self.folder(step), condemned)
                remove(condemned)

    def _write(self, path: Path, text: str) -> None:
        with aside(path) as temporary:
            temporary.write_text(text, encoding="utf-8")

    def clean(self) -> None:
        """Remove what a killed process left half written."""
        for path in [*self.directory.iterdir()]:
            if TEMPORARY.fullmatch(path.name):
                remove(path)


def open_run(directory: Path, *, resume: bool) -> Run:
    """A new directory, or with `resume` an existing run's, cleaned of leftovers; never another's folder."""
    run = Run(directory)
    if resume and not directory.is_dir():
        raise CheckpointError(f"there is no run to resume at {directory}")
    if directory.exists() and not directory.is_dir():
        raise ConfigError(f"the output folder {directory} is a file; name another")
    with explained(directory):
        directory.mkdir(parents=True, exist_ok=True)
    names = {path.name for path in directory.iterdir() if not TEMPORARY.fullmatch(path.name)}
    if names and not resume:
        raise ConfigError(f"the output folder {directory} exists and is not empty; name another, or resume the run")
    if names and RECIPE not in names:
        raise CheckpointError(f"{directory} is not a run directory: it has no {RECIPE}, so nothing can be resumed")
    run.clean()
    return run


def linked(directory: Path, name: str = "best") -> Path:
    """The checkpoint folder that `best` or `last` of a run directory stands for."""
    link = directory / name
    target = link.resolve().name if link.is_symlink() else link.read_text("utf-8").strip() if link.is_file() else ""
    if not FOLDER.fullmatch(target) or not (directory / target).is_dir():
        raise CheckpointError(f"{directory} has no {name!r} checkpoint")
    return directory / target
