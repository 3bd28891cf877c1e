"""Recipes: everything that decides a training run, as YAML that is checked before anything starts.

    task: translation
    data: {train: train.tsv, valid: valid.tsv, languages: [fr, en]}
    tokenizer: {kind: bpe, vocabulary: 8000}
    model: {preset: transformer-small, dropout: 0.2}
    train: {steps: 20000, tokens: 4096, learning_rate: 1e-3}

Paths are relative to the current directory.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

import torch
import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from clearhead.data.tokenizer_kinds import KINDS
from clearhead.errors import ConfigError
from clearhead.models.presets import PRESETS, build
from clearhead.nn.tables import pick
from clearhead.tasks.checked import as_dataclass, complaint, line_of, unknown_key
from clearhead.train.settings import Training

__all__ = [
    "Data",
    "Files",
    "Lora",
    "ModelSettings",
    "Recipe",
    "TokenizerSettings",
    "TrainSettings",
    "load_recipe",
    "parse_recipe",
]

Files = Path | tuple[Path, Path]
Count = Annotated[int, Field(ge=1)]
Amount = Annotated[int, Field(ge=0)]
# Fields of `Training` that a recipe has in a form of its own, or that follow from the model.
OWN = frozenset({"steps", "seed", "accumulate", "width", "freeze"})
TaskName = Literal["translation", "language_model", "masked_model", "text_classification", "token_classification"]


class Data(BaseModel):
    """What to learn from.

    train, valid, test   a file, or for pairs two parallel files; in their place
    builtin              a corpus that needs no file (phrasebook), with so many `sentences`, and `held_out` for
                         validation and for the test each
    split                this share of `train` is learned from and the rest is for validation, where there is no `valid`
    languages            of source and target
    columns, fields      where a pair stands in a tab-separated file, and in JSON lines
    label, text          where a labelled text stands in CSV and JSON lines; `text` also for plain text in JSON lines
    unit                 what one document is in a text file: the whole `file` or each `line`
    longest              longer examples, in tokens, are left out of training; 0 for no limit
    as_typed             this share of the pairs to learn from comes once more, its source without capitals or last mark
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    train: Files | None = None
    valid: Files | None = None
    test: Files | None = None
    builtin: Literal["phrasebook"] | None = None
    sentences: Count = 60_000
    held_out: Count = 1_000
    seed: Amount = 0
    split: Annotated[float, Field(gt=0, lt=1)] | None = None
    languages: tuple[str, str] | None = None
    columns: tuple[Amount, Amount] = (0, 1)
    fields: tuple[str, str] = ("source", "target")
    label: str = "label"
    text: str = "text"
    unit: Literal["file", "line"] = "file"
    encoding: str = "utf-8"
    longest: Amount = 0
    as_typed: Annotated[float, Field(ge=0, le=1)] = 0.0

    @model_validator(mode="after")
    def _one_origin(self) -> Self:
        if self.builtin and (self.train or self.valid or self.test):
            raise ConfigError(
                "data.builtin: a built-in corpus takes the place of train, valid and test; leave them out"
            )
        if self.valid and self.split:
            raise ConfigError("data.split: there is a valid file already; leave one of the two out")
        return self


class TokenizerSettings(BaseModel):
    """How text becomes tokens; with `path`, an existing `tokenizer.json` is used and the rest does not matter.

    plain      marks of other keyboards are read as the usual ones (’ as ', a narrow space as a space), and a word that
               begins a text or follows an elision (l'eau) as it would be read anywhere else
    pad_last   `<pad>` stands behind all other tokens, where Marian's format wants it; None: for translation alone
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: str = "bpe"
    vocabulary: Count = 8_000
    lower: bool = False
    plain: bool = False
    pad_last: bool | None = None
    path: Path | None = None

    @model_validator(mode="after")
    def _known_kind(self) -> Self:
        pick(KINDS, self.kind, "tokenizer.kind")
        return self


class Lora(BaseModel):
    """Low-rank adapters on the linear layers whose names match; the rest stays as it was."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    rank: Count = 8
    alpha: Annotated[float, Field(gt=0)] = 16.0
    names: tuple[str, ...] = ("*.qkv", "*.q", "*.kv", "*.out")


class ModelSettings(BaseModel):
    """Which architecture; besides these keys, every field of the preset's config can be set.

    init_from   a model directory: its architecture, tokenizer and weights are the start
    freeze      patterns of parameter names that do not learn, such as `encoder.*`
    """

    model_config = ConfigDict(frozen=True, extra="allow", protected_namespaces=())

    preset: str | None = None
    init_from: Path | None = None
    freeze: tuple[str, ...] = ()
    lora: Lora | None = None

    @property
    def changes(self) -> dict[str, Any]:
        """The fields of the config that this recipe sets."""
        return dict(self.model_extra or {})

    @model_validator(mode="after")
    def _known_architecture(self) -> Self:
        if (self.preset is None) == (self.init_from is None):
            raise ConfigError("model: either a preset or init_from is needed, and not both")
        if self.preset is not None:
            with torch.device("meta"):  # sizes that cannot be are found now, without any weights
                build(self.config(pick(PRESETS, self.preset, "model.preset")))
        return self

    def config(self, base: Any) -> Any:
        """The config `base` with this recipe's changes."""
        own = {field.name: getattr(base, field.name) for field in fields(base)}
        for name in self.changes.keys() - own.keys():
            raise ConfigError(unknown_key(f"model.{name}", [*own, *type(self).model_fields]))
        return as_dataclass(type(base), {**own, **self.changes}, "model")


class TrainSettings(BaseModel):
    """How to train; besides these keys, every field of `train.settings.Training` can be set.

    steps, epochs   how long: one of the two
    accumulate      so many batches make up a step
    tokens          the most tokens that a batch of sentences holds, padding included
    rows, length    for texts without sentences: how many windows a batch has, and how long each is (None: the
                    model's own length)
    smoothing       of the labels, in training alone
    scored          how many validation examples are decoded for the task's score, 0 for none
    """

    model_config = ConfigDict(frozen=True, extra="allow")
    FURTHER: ClassVar[frozenset[str]] = frozenset(field.name for field in fields(Training)) - OWN

    steps: Count | None = None
    epochs: Annotated[float, Field(gt=0)] | None = None
    seed: Amount = 0
    accumulate: Count = 1
    tokens: Count = 4_096
    rows: Count = 32
    length: Annotated[int, Field(ge=2)] | None = None
    smoothing: Annotated[float, Field(ge=0, lt=1)] = 0.0
    scored: Amount = 200

    @model_validator(mode="after")
    def _trains(self) -> Self:
        if (self.steps is None) == (self.epochs is None):
            raise ConfigError("train: either steps or epochs is needed, and not both")
        extra = self.model_extra or {}
        for name in extra.keys() - self.FURTHER:
            raise ConfigError(unknown_key(f"train.{name}", [*self.FURTHER, *type(self).model_fields]))
        self.training(steps=self.steps or 1, width=1)
        return self

    def training(self, *, steps: int, width: int, freeze: tuple[str, ...] = ()) -> Training:
        """What the training loop takes; `width` is the model's, which one of the schedules asks for."""
        own = {"steps": steps, "seed": self.seed, "accumulate": self.accumulate, "width": width, "freeze": freeze}
        return as_dataclass(Training, {**(self.model_extra or {}), **own}, "train")

    def resolved(self) -> dict[str, Any]:
        """All settings of `Training`'s, as given here or by default."""
        training = self.training(steps=self.steps or 1, width=1)
        resolved = {field.name: getattr(training, field.name) for field in fields(training)}
        return {name: value for name, value in resolved.items() if name in self.FURTHER} | {"betas": [*training.betas]}


class Recipe(BaseModel):
    """Everything that decides a run."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    task: TaskName
    data: Data = Data()
    tokenizer: TokenizerSettings = TokenizerSettings()
    model: ModelSettings
    train: TrainSettings

    def to_yaml(self, *, at_home: bool = True) -> str:
        """The whole recipe, defaults of training included; for others, without where files lie on this machine."""
        values = (self if at_home else self._for_others()).model_dump(mode="json")
        values["train"] |= self.train.resolved()
        return yaml.safe_dump(values, sort_keys=False, allow_unicode=True, default_flow_style=None, width=120)

    def _for_others(self) -> "Recipe":
        sections = {name: section for name, section in self if isinstance(section, BaseModel)}
        update = {name: of.model_copy(update={key: _bare(value) for key, value in of}) for name, of in sections.items()}
        return self.model_copy(update=update)


def _bare(value: Any) -> Any:
    """Of an absolute path its name, of several each one's; anything else as it is."""
    if isinstance(value, tuple):
        return tuple(map(_bare, value))
    return Path(value.name) if isinstance(value, Path) and value.is_absolute() else value


SECTIONS: dict[str, type[BaseModel]] = {
    "": Recipe,
    "data": Data,
    "tokenizer": TokenizerSettings,
    "model": ModelSettings,
    "model.lora": Lora,
    "train": TrainSettings,
}


def parse_recipe(values: Mapping[str, Any]) -> Recipe:
    """A recipe from plain values, all of them checked."""
    try:
        return Recipe.model_validate(dict(values))
    except ValidationError as error:
        known = {place: section.model_fields.keys() for place, section in SECTIONS.items()}
        raise ConfigError(complaint(error, known=known)) from error


def load_recipe(path: Path, sets: Sequence[str] = ()) -> Recipe:
    """Read a recipe file; each of `sets` (`train.steps=10`, the value as in YAML) overrides one of its keys."""
    try:
        text = path.read_text(encoding="utf-8")
        values = yaml.safe_load(text)
    except OSError as error:
        raise ConfigError(f"the recipe {str(path)!r} cannot be read: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"the recipe {str(path)!r} is not YAML: {_one_line(error)}") from error
    if not isinstance(values, dict):
        raise ConfigError(f"the recipe {str(path)!r} is no mapping of task, data, tokenizer, model and train")
    for override in sets:
        _override(values, override)
    try:
        return parse_recipe(values)
    except ConfigError as error:
        keys = _keys(str(error))
        if any(override.partition("=")[0].strip() in keys for override in sets):
            raise
        line = next(filter(None, (line_of(text, key) for key in keys)), None)
        raise ConfigError(f"{path}{f', line {line}' if line else ''}: {error}") from error


def _keys(message: str) -> list[str]:
    """The keys that a message is about: it begins with one, or shows the values of some as `name=…`."""
    names = re.findall(r"\b(\w+)=", message)
    shown = [f"{'train' if name in TrainSettings.FURTHER else 'model'}.{name}" for name in names]
    return [message.partition(":")[0], *shown]


def _override(values: dict[str, Any], text: str) -> None:
    key, equals, value = text.partition("=")
    *sections, name = key.strip().split(".")
    if not equals or not name:
        raise ConfigError(f"an override is written like train.steps=10, not {text!r}")
    for section in sections:
        if values.get(section) is None:
            values[section] = {}
        values = values[section]
        if not isinstance(values, dict):
            raise ConfigError(f"{key}: {section!r} is a value and has no keys of its own")
    try:
        values[name] = yaml.safe_load(value)
    except yaml.YAMLError as error:
        raise ConfigError(f"the value of {key} is not YAML: {_one_line(error)}") from error


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
