"""The model directory: a folder that says by itself what it holds and how to use it.

    config.json              format_version, architecture, task, languages and labels where there are any, config
    model.safetensors        the weights, tied ones once
    tokenizer.json
    generation_config.json   where it generates
    README.md                the model card: data, recipe, seed, scores with their signatures

A checkpoint of a run is such a folder too, and a run directory stands for its best checkpoint.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn

from clearhead.data.tokenizers import Tokenizer
from clearhead.errors import CheckpointError, ClearheadError, ConfigError
from clearhead.models.presets import ARCHITECTURES, build
from clearhead.tasks.checked import as_dataclass
from clearhead.tasks.precision import check_savable, for_use
from clearhead.train.disk import aside
from clearhead.train.run import linked
from clearhead.train.weights import load_weights, save_weights

__all__ = ["ModelParts", "Settings", "describe", "load_model", "model_folder", "read_settings", "save_model"]

FORMAT_VERSION = 1
CONFIG, WEIGHTS, TOKENIZER, GENERATION, CARD = (
    "config.json",
    "model.safetensors",
    "tokenizer.json",
    "generation_config.json",
    "README.md",
)


@dataclass(frozen=True)
class Settings:
    """What a model directory says of its model.

    config       the architecture's own frozen config
    generation   how the model is used when it writes: options of `Decoding`, by its names or those of others; for a
                 translator also `longest_ratio`, `longest_extra` and its `alignment_head` (layer, head, reads)
    """

    task: str
    config: Any
    languages: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    generation: Mapping[str, Any] = field(default_factory=dict)

    @property
    def architecture(self) -> str:
        return next(name for name, (config, _) in ARCHITECTURES.items() if type(self.config) is config)


@dataclass(frozen=True)
class ModelParts:
    """A model, and all that is needed to use it."""

    model: Any  # one of the architectures; which of them, the task knows
    tokenizer: Tokenizer
    settings: Settings
    card: str = ""


def save_model(folder: Path, parts: ModelParts) -> None:
    """Write a new model directory, whole or not at all."""
    check_savable(parts.model)
    if folder.exists():
        raise ConfigError(f"the output folder {str(folder)!r} exists already; name another, or remove it first")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with aside(folder) as temporary:
        temporary.mkdir()
        save_weights(parts.model, temporary / WEIGHTS)
        describe(temporary, parts.tokenizer, parts.settings, parts.card)


def describe(folder: Path, tokenizer: Tokenizer, settings: Settings, card: str) -> None:
    """Write everything but the weights."""
    about = {
        "format_version": FORMAT_VERSION,
        "architecture": settings.architecture,
        "task": settings.task,
        "languages": settings.languages,
        "labels": settings.labels,
        "config": asdict(settings.config),
    }
    _write_json(folder / CONFIG, {name: value for name, value in about.items() if value != ()})
    if settings.generation:
        _write_json(folder / GENERATION, settings.generation)
    (folder / CARD).write_text(card or f"# A {settings.task} model\n", encoding="utf-8")
    tokenizer.save(folder / TOKENIZER)


def load_model(folder: Path, task: str = "", *, precision: str = "", threads: int | None = None) -> ModelParts:
    """The model of a directory or of a run, in evaluation mode; where a `task` is asked for, it must be the model's.

    With a `precision` it is made ready for use (`tasks/precision.py`), without one it is as it was trained.
    """
    folder = model_folder(folder)
    settings = read_settings(folder)
    if task and settings.task != task:
        raise CheckpointError(f"{folder} holds a model for {settings.task}, not for {task}")
    for name in (WEIGHTS, TOKENIZER):
        if not (folder / name).is_file():
            raise CheckpointError(f"{folder} is no whole model directory: it has no {name}")
    model = _built(folder, settings.config)
    tokenizer = Tokenizer.load(folder / TOKENIZER)
    if tokenizer.vocabulary_size > settings.config.vocabulary:
        raise CheckpointError(
            f"{folder / TOKENIZER} has {tokenizer.vocabulary_size} tokens, the model knows {settings.config.vocabulary}"
        )
    if precision:
        for_use(model, precision, threads)
    card = folder / CARD
    return ModelParts(model, tokenizer, settings, card.read_text("utf-8") if card.is_file() else "")


def read_settings(folder: Path) -> Settings:
    """What the directory says of its model, checked."""
    about = _read_json(folder / CONFIG)
    if about.get("format_version") != FORMAT_VERSION:
        found = about.get("format_version")
        raise CheckpointError(f"{folder / CONFIG} has format_version {found!r}; this clearhead reads {FORMAT_VERSION}")
    name = about.get("architecture")
    if not isinstance(name, str) or name not in ARCHITECTURES:
        known = ", ".join(ARCHITECTURES)
        raise CheckpointError(f"{folder / CONFIG} names the architecture {name!r}; this clearhead knows {known}")
    generation = _read_json(folder / GENERATION) if (folder / GENERATION).is_file() else {}
    try:
        config = as_dataclass(ARCHITECTURES[name][0], _mapping(about.get("config")), "config")
        values = {"task": about.get("task"), "config": None, "generation": generation}
        values |= {name: about.get(name, ()) for name in ("languages", "labels")}
        checked = as_dataclass(Settings, values, "settings")
    except ConfigError as error:
        raise CheckpointError(f"{folder / CONFIG} cannot be used: {error}") from error
    return Settings(checked.task, config, checked.languages, checked.labels, checked.generation)


def model_folder(folder: Path) -> Path:
    """The folder itself where it is a model's; of a run directory, its best checkpoint, else its last."""
    if (folder / CONFIG).is_file():
        return folder
    if not folder.is_dir():
        raise CheckpointError(f"there is no model directory {str(folder)!r}")
    for name in ("best", "last"):
        if (folder / name).exists():
            return linked(folder, name)
    raise CheckpointError(f"{str(folder)!r} is neither a model directory (no {CONFIG}) nor a run with a checkpoint")


def _built(folder: Path, config: Any) -> nn.Module:
    try:
        model = build(config)
    except ClearheadError as error:
        raise CheckpointError(f"{folder / CONFIG} cannot be built: {error}") from error
    load_weights(model, folder / WEIGHTS)
    for name, tensor in model.state_dict().items():
        if not torch.isfinite(tensor).all():
            raise CheckpointError(f"{folder / WEIGHTS} is broken: {name!r} holds values that are not numbers")
    return model.eval()


def _read_json(path: Path) -> Mapping[str, Any]:
    try:
        return _mapping(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path} cannot be read as a JSON object: {error}") from error


def _mapping(value: object) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise ConfigError(f"a JSON object is wanted, not {value!r:.60}")
    return value


def _write_json(path: Path, value: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
