"""The models that a server has: loaded once, found by name."""

import re
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, final

from clearhead.errors import CheckpointError, ConfigError
from clearhead.models.encoder_only import EncoderOnlyConfig
from clearhead.serve.encoders import ServedEncoder, ServedTable
from clearhead.serve.guards import RefusedError
from clearhead.serve.limits import Limits
from clearhead.serve.translators import ServedTranslator
from clearhead.serve.work import Budget
from clearhead.serve.writers import ServedWriter
from clearhead.tasks.directory import TABLES, read_settings
from clearhead.tasks.language_model import LanguageModel
from clearhead.tasks.loading import find_model
from clearhead.tasks.registry import load
from clearhead.tasks.sentence_encoder import SentenceEncoder
from clearhead.tasks.translator import Translator

__all__ = ["Models", "Served", "Wanted", "load_models", "served", "wanted"]

Served = ServedTranslator | ServedWriter | ServedEncoder | ServedTable
Kind = TypeVar("Kind", ServedTranslator, ServedWriter, ServedEncoder, ServedTable)

NAME = re.compile(r"[\w.-]{1,100}")
# What a model is called where it is asked for something that it cannot do, and where it is to be asked.
USES = {
    ServedTranslator: "a translator: ask it at /translate",
    ServedWriter: "a language model: ask it at /v1/completions",
    ServedEncoder: "an encoder: ask it at /v1/embeddings",
    ServedTable: "a table model: ask it at /v1/tables/{model}/predict",
}


@dataclass(frozen=True)
class Wanted:
    """A model to be served under a name."""

    name: str
    where: str


def wanted(argument: str) -> Wanted:
    """What `-m` was given: NAME=PATH, or a path whose last part is the name.

    >>> wanted("runs/demo"), wanted("fr-en=runs/demo")
    (Wanted(name='demo', where='runs/demo'), Wanted(name='fr-en', where='runs/demo'))
    """
    name, equals, where = argument.partition("=")
    if not equals or not where or not NAME.fullmatch(name):
        name, where = Path(argument).resolve().name, argument
    if not NAME.fullmatch(name):
        raise ConfigError(f"a model's name is made of letters, digits, '.', '_' and '-': give it one, NAME={argument}")
    return Wanted(name, where)


@final
class Models:
    """All models by name."""

    def __init__(self, each: Iterable[Served]) -> None:
        self.by_name: dict[str, Served] = {}
        self.created = int(time.time())
        for one in each:
            if one.name in self.by_name:
                raise ConfigError(f"two models are called {one.name!r}: give one of them another name, NAME=PATH")
            self.by_name[one.name] = one

    def __iter__(self) -> Iterator[Served]:
        return iter(self.by_name.values())

    def pick(self, name: str, kind: type[Kind]) -> Kind:
        """The model of that name, where it is of that kind."""
        found = self.by_name.get(name)
        if found is None:
            known = ", ".join(sorted(self.by_name))
            raise RefusedError(404, f"there is no model {name!r:.60} here; there are {known}", "model_not_found")
        if not isinstance(found, kind):
            raise RefusedError(400, f"{name} is {USES[type(found)].format(model=name)}", "wrong_model")
        return found

    def close(self) -> None:
        """Finish what was accepted, and end."""
        for one in self:
            one.engine.close()


def served(name: str, task: Any, budget: Budget, limits: Limits) -> Served:
    """Whatever was loaded, ready for many requests."""
    match task:
        case Translator():
            return ServedTranslator(name, task, budget, limits)
        case LanguageModel():
            return ServedWriter(name, task, budget, limits)
        case SentenceEncoder():
            return ServedEncoder(name, task, budget)
    if getattr(task, "TASK", None) in TABLES:
        return ServedTable(name, task, budget)
    if isinstance(getattr(task, "config", None), EncoderOnlyConfig):
        return ServedEncoder(name, SentenceEncoder(task.parts), budget)
    raise CheckpointError(f"{name} is a model for {type(task).__name__}, which cannot be served")


def load_models(
    each: Sequence[Wanted], budget: Budget, limits: Limits, *, precision: str = "float32", threads: int | None = None
) -> Models:
    """Load every model that is wanted."""
    return Models([served(one.name, _loaded(one.where, precision, threads), budget, limits) for one in each])


def _loaded(where: str, precision: str, threads: int | None) -> Any:
    found = find_model(where)
    if (found / "table.json").is_file() and read_settings(found).task in TABLES:
        from clearhead.tasks.table_estimators import load_estimator  # scikit-learn is needed for tables alone

        return load_estimator(found)
    return load(where, precision=precision, threads=threads)
