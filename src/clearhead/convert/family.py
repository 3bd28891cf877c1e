"""A family: how one architecture of Hugging Face's is written there, and as a config of ours.

Both directions are tables. What a config.json says and our parts cannot do is refused by name, and so is what our
config says and their model cannot do. Rates of dropout are no reason to refuse: they change nothing of what a model
answers. Where ours has one rate for several of theirs, that of the residual is taken.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any, TypeVar

from torch import Tensor, nn

from clearhead.convert.mapping import Row, Tensors, shapes_of, spill
from clearhead.errors import ConfigError

__all__ = [
    "ACTIVATIONS",
    "PLAIN",
    "Family",
    "class_names",
    "classes_of",
    "first_token",
    "of_kind",
    "ours_of",
    "refuse_ours",
    "refuse_theirs",
    "said",
    "theirs_of",
]

Kind = TypeVar("Kind")

# Our settings that only we have, at the values that all of theirs have.
PLAIN: Mapping[str, Any] = {"combination": "latest", "persistent": 0, "temperature": 1.0, "pruned": ()}

# Their names of activations -> ours; of several names for the same, the first is written.
ACTIVATIONS: Mapping[str, str] = {
    "relu": "relu",
    "gelu": "gelu",
    "gelu_python": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "silu": "silu",
    "swish": "silu",
}


@dataclass(frozen=True)
class Family:
    """One `model_type`.

    read       their config.json, and the names of the tensors there (as `spelled` has them), to our config: which heads
               there are is decided by the tensors
    write      the way back, with `model_type` and `architectures`; refuses what their model cannot express
    rows       the map of a config's tensors, in the names of the model with a head
    prefix     of the body's tensors in a model with a head; files of a bare body lack it
    ignored    regular expressions of tensors that carry nothing, or nothing that a config's rows ask for
    twins      names of one tensor: of each pair a file may have the first besides the second, which is the one taken
    spellings  older or newer names of the same tensors: a regular expression, and what it becomes
    besides    what they want written otherwise, or besides the rows, given a config and the tensors of its rows
    """

    name: str
    read: Callable[[Mapping[str, Any], AbstractSet[str]], Any]
    write: Callable[[Any], dict[str, Any]]
    rows: Callable[[Any], list[Row]]
    prefix: str
    ignored: tuple[str, ...] = ()
    twins: tuple[tuple[str, str], ...] = ()
    spellings: tuple[tuple[str, str], ...] = ()
    besides: Callable[[Any, Mapping[str, Tensor]], dict[str, Tensor]] = lambda config, tensors: {}

    def tensors(self, model: nn.Module, config: Any) -> dict[str, Tensor]:
        """All tensors of a model of ours, as they want them."""
        tensors = spill(model, self.rows(config))
        return {**tensors, **self.besides(config, tensors)}

    def spelled(self, tensors: Tensors) -> Tensors:
        """The same checkpoint, its tensors named as `rows` names them."""
        bare = not any(name.startswith(self.prefix) for name in tensors)
        return _Renamed(tensors, {self._spelled(name, bare): name for name in tensors})

    def _spelled(self, name: str, bare: bool) -> str:
        name = self.prefix + name if bare else name
        for old, new in self.spellings:
            name = re.sub(old, new, name)
        return name


class _Renamed(Mapping[str, Tensor]):
    """A checkpoint under other names."""

    def __init__(self, tensors: Tensors, origin: Mapping[str, str]) -> None:
        self.tensors, self.origin = tensors, origin

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        shapes = shapes_of(self.tensors)
        return {name: shapes[origin] for name, origin in self.origin.items()}

    def __getitem__(self, name: str) -> Tensor:
        return self.tensors[self.origin[name]]

    def __iter__(self) -> Iterator[str]:
        return iter(self.origin)

    def __len__(self) -> int:
        return len(self.origin)


def said(config: Mapping[str, Any], defaults: Mapping[str, Any], aliases: Mapping[str, str]) -> dict[str, Any]:
    """What a config.json says on top of their defaults; where it says a setting by another name, that one counts."""
    own = {name: config[alias] for alias, name in aliases.items() if config.get(alias) is not None}
    return {**defaults, **config, **own}


def refuse_theirs(family: str, config: Mapping[str, Any], able: Mapping[str, Any]) -> None:
    """Refuse a config.json in which one of these settings is said and has another value than the one given."""
    for name, value in able.items():
        if config.get(name) not in (None, value):
            raise ConfigError(f"{family} with {name}={config[name]!r} cannot be built here, only with {value!r}")


def of_kind(family: str, config: Any, kind: type[Kind]) -> Kind:
    """Our config as one of that kind."""
    if not isinstance(config, kind):
        raise ConfigError(f"{family} is not made of a {type(config).__name__} but of a {kind.__name__}")
    return config


def refuse_ours(family: str, config: Any, able: Mapping[str, Any]) -> None:
    """Refuse a config of ours in which one of these settings has another value than the one (or those) given."""
    for name, values in able.items():
        value, known = getattr(config, name), values if isinstance(values, list) else [values]
        if value not in known:
            raise ConfigError(f"{family} has no {name}={value!r}, only {' or '.join(map(repr, known))}")


def ours_of(family: str, setting: str, theirs: Any, table: Mapping[Any, str]) -> str:
    """Our name of what this setting of theirs says."""
    if theirs not in table:
        known = " or ".join(map(repr, table))
        raise ConfigError(f"{family} with {setting}={theirs!r} cannot be built here, only with {known}")
    return table[theirs]


def theirs_of(family: str, setting: str, ours: str, table: Mapping[Any, str]) -> Any:
    """Their name of what this setting of ours says."""
    for theirs, name in table.items():
        if name == ours:
            return theirs
    known = " or ".join(map(repr, dict.fromkeys(table.values())))
    raise ConfigError(f"{family} has no {setting}={ours!r}, only {known}")


def first_token(token: Any) -> Any:
    """One token where they may name several that end a text: the first."""
    return next(iter(token), None) if isinstance(token, list) else token


def classes_of(config: Mapping[str, Any]) -> int:
    """How many classes a config.json has names for; two where it says nothing."""
    names = config.get("id2label")
    return len(names) if names else int(config.get("num_labels", 2))


def class_names(count: int) -> dict[str, Any]:
    """As many class names as a config.json needs."""
    if not count:
        return {}
    names = [f"LABEL_{i}" for i in range(count)]
    return {"id2label": {str(i): name for i, name in enumerate(names)}, "label2id": {n: i for i, n in enumerate(names)}}
