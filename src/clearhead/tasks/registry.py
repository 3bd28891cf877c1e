"""All tasks by name: running a recipe, and loading whatever a model directory holds."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol, Self

import yaml

from clearhead.data.pairs import PairSource
from clearhead.data.sources import TextSource
from clearhead.data.tokenizers import Tokenizer
from clearhead.errors import CheckpointError, ConfigError
from clearhead.nn.tables import pick
from clearhead.tasks.directory import model_folder
from clearhead.tasks.image_classifier import ImageClassifier
from clearhead.tasks.language_model import LanguageModel
from clearhead.tasks.loading import load_model
from clearhead.tasks.masked_model import MaskedModel
from clearhead.tasks.prepare import Figures, Prepared, Surroundings, model_card, train_prepared
from clearhead.tasks.recipe import Recipe, load_recipe
from clearhead.tasks.sentence_encoder import SentenceEncoder
from clearhead.tasks.text_classifier import TextClassifier
from clearhead.tasks.token_classifier import TokenClassifier
from clearhead.tasks.translator import Translator
from clearhead.train.disk import aside
from clearhead.train.distributed import join
from clearhead.train.loop import Report
from clearhead.train.run import Run

__all__ = ["TASKS", "Outcome", "Task", "load", "run_recipe"]


class Task(Protocol):
    """What every task's class can do."""

    @classmethod
    def from_pretrained(cls, folder: str | Path, *, precision: str = "float32", threads: int | None = None) -> Self: ...

    @classmethod
    def prepare(cls, recipe: Recipe, data: Any = None, around: Surroundings | None = None) -> Prepared[Any]: ...

    def save_pretrained(self, folder: str | Path) -> None: ...

    def evaluate(self, data: Any) -> Figures: ...


TASKS: Mapping[str, type[Any]] = MappingProxyType(
    {task.TASK: task for task in (Translator, LanguageModel, MaskedModel, TextClassifier, TokenClassifier)}
)

# Tasks that no recipe names: their models are made in Python, or come from elsewhere.
WITHOUT_RECIPE: Mapping[str, type[Any]] = MappingProxyType(
    {task.TASK: task for task in (ImageClassifier, SentenceEncoder)}
)

# Settings of training that a resumed run may change without becoming another run.
FREE = frozenset(
    f"train.{name}"
    for name in "steps epochs progress log_every tensorboard keep patience checkpoint_every validate_every scored "
    "device".split()
)


@dataclass(frozen=True)
class Outcome:
    """How a run ended: the loop's report, the model directory to use, and its scores on the test data."""

    report: Report
    folder: Path
    scores: Figures


def run_recipe(
    recipe: Recipe, *, out: Path, resume: bool = False, progress: Callable[[int, int], None] | None = None
) -> Outcome:
    """Train what the recipe says in the run directory `out`, as one of the processes that torchrun started.

    With `resume` a run goes on with the tokenizer it has; its recipe must agree. Where there is test data, the best
    checkpoint is evaluated on it, and its card says so. `progress` is told of bytes read, of so many in all.
    """
    task: type[Task] = pick(TASKS, recipe.task, "task")
    with join(str(recipe.train.resolved()["device"])) as world:
        if resume:
            _check_agreement(recipe, out / "recipe.yaml")
        elif world.leads and out.is_dir() and any(out.iterdir()):
            raise ConfigError(f"the output folder {out} exists and is not empty; name another, or resume the run")
        tokenizer = _tokenizer_of(out) if resume else None
        prepared = task.prepare(recipe, None, Surroundings(world, tokenizer, progress))
        if world.leads:
            _read_through(prepared.test)
        report = train_prepared(prepared, recipe, out=out, resume=resume, world=world)
        folder = model_folder(out)
        scores = _judge(task, recipe, prepared, folder, report) if world.leads else {}
    return Outcome(report, folder, scores)


def load(folder: str | Path, *, precision: str = "float32", threads: int | None = None) -> Any:
    """The task object (a `Translator`, a `LanguageModel`, …) of whatever model is there."""
    parts = load_model(folder, precision=precision, threads=threads)
    task = parts.settings.task
    known = {**TASKS, **WITHOUT_RECIPE}
    if task not in known:
        raise CheckpointError(f"{folder} holds a model for {task!r}; this clearhead knows {', '.join(known)}")
    return known[task](parts)


def _tokenizer_of(out: Path) -> Tokenizer | None:
    """The tokenizer of a run's last checkpoint, where it has come so far."""
    steps = Run(out).steps() if out.is_dir() else []
    return Tokenizer.load(Run(out).folder(steps[-1])) if steps else None


def _read_through(test: Any) -> None:
    """Read the test data once: a file that cannot be read is refused now, not after the training."""
    source = test.pairs() if isinstance(test, PairSource) else test.stretches() if isinstance(test, TextSource) else ()
    for _ in source:
        pass


def _judge(task: type[Task], recipe: Recipe, prepared: Prepared[Any], folder: Path, report: Report) -> Figures:
    """Evaluate the best checkpoint on the test data, and put what is known of it on its card."""
    scores = {} if prepared.test is None else task.from_pretrained(folder).evaluate(prepared.test)
    watched = report.history.get(report.best or 0, {})
    shown = {f"test_{name}": value for name, value in scores.items()}
    shown |= {f"validation_{name}": value for name, value in watched.items()}
    with aside(folder / "README.md") as temporary:
        temporary.write_text(model_card(recipe, prepared.settings, shown), encoding="utf-8")
    return scores


def _check_agreement(recipe: Recipe, path: Path) -> None:
    """Refuse to resume what is not there, or a run under a recipe that would make it another."""
    if not path.parent.is_dir():
        raise CheckpointError(f"there is no run to resume at {path.parent}")
    if not path.is_file():
        return  # killed before its recipe was written, or no run at all: the loop knows
    ours, theirs = _flat(recipe), _flat(load_recipe(path))
    for name in {**ours, **theirs}:
        if ours.get(name) != theirs.get(name):
            raise ConfigError(
                f"{name} is {ours.get(name)!r} here and {theirs.get(name)!r} in {path}: "
                "a resumed run keeps its recipe, another one needs its own folder"
            )


def _flat(recipe: Recipe) -> dict[str, Any]:
    """All that makes a run what it is, by the full names of the keys."""
    sections = yaml.safe_load(recipe.to_yaml())
    values = {"task": sections.pop("task")}
    for section, inner in sections.items():
        values |= {f"{section}.{name}": value for name, value in inner.items()}
    return {name: value for name, value in values.items() if name not in FREE}
