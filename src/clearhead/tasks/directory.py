"""The model directory: a folder that says by itself what it holds and how to use it.

    config.json              format_version, architecture, task, languages and labels where there are any, config
    model.safetensors        the weights, tied ones once; in 32, 16 or 8 bits
    tokenizer.json           where it reads texts
    preprocessor_config.json where it reads images: how they become numbers
    tokenizer_config.json    which special token plays which role, where their names do not say it
    target_tokenizer.json    where what it writes is cut otherwise than what it reads
    generation_config.json   where it generates
    chat_template.jinja      where it talks
    README.md                the model card: data, recipe, seed, scores with their signatures

A checkpoint of a run is such a folder too, and a run directory stands for its best checkpoint.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol

from torch import nn

from clearhead.convert.files import read_json
from clearhead.data.images import ImageReader
from clearhead.data.tokenizers import Tokenizer
from clearhead.errors import CheckpointError, ClearheadError, ConfigError
from clearhead.models.presets import ARCHITECTURES, build
from clearhead.models.vit import VitConfig
from clearhead.nn.tables import check_sizes
from clearhead.nn.weights import load_weights, save_weights, unfilled
from clearhead.tasks.checked import as_dataclass
from clearhead.tasks.precision import check_savable
from clearhead.train.disk import aside
from clearhead.train.run import linked

__all__ = [
    "IMAGES",
    "TABLES",
    "ModelParts",
    "Reader",
    "Reading",
    "Settings",
    "describe",
    "image_reader",
    "model_folder",
    "own_parts",
    "read_settings",
    "save_model",
]

FORMAT_VERSION = 1
CONFIG, WEIGHTS, GENERATION, CARD = "config.json", "model.safetensors", "generation_config.json", "README.md"
TOKENIZER, TARGET_TOKENIZER, CHAT = "tokenizer.json", "target_tokenizer.json", "chat_template.jinja"
PREPROCESSOR = "preprocessor_config.json"
IMAGES = "image_classification"  # the task that reads images
TABLES = ("table_classification", "table_regression")  # the tasks that read tables; all others read texts


class Reader(Protocol):
    """What reads a model's inputs can be written: to the file `path`, or beside it under the name that it has."""

    def save(self, path: str | Path) -> None: ...


@dataclass(frozen=True)
class Reading:
    """What a model that gives vectors of texts makes of a text before it reads it.

    longest   tokens that are read, special ones among them; None for as many as it has positions for
    prompt    what is put before each text
    lower     whether capitals are made small first
    """

    longest: int | None = None
    prompt: str = ""
    lower: bool = False

    def __post_init__(self) -> None:
        check_sizes(self, "longest", least=3)


@dataclass(frozen=True)
class Settings:
    """What a model directory says of its model.

    config       the architecture's own frozen config
    generation   how the model is used when it writes: options of `Decoding`, by its names or those of others; for a
                 translator also `longest_ratio`, `longest_extra`, `longest_ever` (tokens at most) and its
                 `alignment_head` (layer, head, reads)
    """

    task: str
    config: Any
    languages: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    generation: Mapping[str, Any] = field(default_factory=dict)
    reading: Reading = Reading()

    @property
    def architecture(self) -> str:
        return next(name for name, (config, _) in ARCHITECTURES.items() if type(self.config) is config)


@dataclass(frozen=True)
class ModelParts:
    """A model, and all that is needed to use it.

    target   the tokenizer of what is written, where it is not that of what is read
    chat     the template by which a talk becomes a text
    """

    model: Any  # one of the architectures; which of them, the task knows
    tokenizer: Any  # a Tokenizer; for images, the ImageReader
    settings: Settings
    card: str = ""
    target: Tokenizer | None = None
    chat: str | None = None

    @property
    def writer(self) -> Tokenizer:
        """The tokenizer of what is written."""
        source: Tokenizer = self.tokenizer
        return source if self.target is None else self.target


def save_model(folder: Path, parts: ModelParts, *, store: str | None = None) -> None:
    """Write a new model directory, whole or not at all; its weights as they are, or in fewer bits (`nn/stored.py`)."""
    check_savable(parts.model)
    if folder.exists():
        raise ConfigError(f"the output folder {str(folder)!r} exists already; name another, or remove it first")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with aside(folder) as temporary:
        temporary.mkdir()
        save_weights(parts.model, temporary / WEIGHTS, store)
        describe(temporary, parts)


def describe(folder: Path, parts: ModelParts) -> None:
    """Write everything but the weights."""
    settings = parts.settings
    about = {
        "format_version": FORMAT_VERSION,
        "architecture": settings.architecture,
        "task": settings.task,
        "languages": settings.languages,
        "labels": settings.labels,
        "reading": () if settings.reading == Reading() else asdict(settings.reading),
        "config": asdict(settings.config),
    }
    _write_json(folder / CONFIG, {name: value for name, value in about.items() if value != ()})
    if settings.generation:
        _write_json(folder / GENERATION, settings.generation)
    (folder / CARD).write_text(parts.card or f"# A {settings.task} model\n", encoding="utf-8")
    parts.tokenizer.save(folder / TOKENIZER)
    if parts.target is not None:
        parts.target.save(folder / TARGET_TOKENIZER)
    if parts.chat is not None:
        (folder / CHAT).write_text(parts.chat, encoding="utf-8")


def own_parts(folder: Path) -> ModelParts:
    """The model of a model directory of ours, in evaluation mode."""
    settings = read_settings(folder)
    if settings.task in TABLES:
        raise CheckpointError(f"{folder} holds a model for tables: use it with `clearhead predict TABLE -m {folder}`")
    file, read = READERS.get(settings.task, (TOKENIZER, _tokenizer))
    for name in (WEIGHTS, file):
        if not (folder / name).is_file():
            raise CheckpointError(f"{folder} is no whole model directory: it has no {name}")
    model = _built(folder, settings.config)
    tokenizer = read(folder, settings.config)
    target = Tokenizer.load(folder / TARGET_TOKENIZER) if (folder / TARGET_TOKENIZER).is_file() else None
    card, chat = (path.read_text("utf-8") if path.is_file() else None for path in (folder / CARD, folder / CHAT))
    return ModelParts(model, tokenizer, settings, card or "", target, chat)


def image_reader(folder: Path, config: Any) -> ImageReader:
    """What reads the images of a model, as the folder says or, where it says nothing, in the usual way."""
    if not isinstance(config, VitConfig):
        raise CheckpointError(f"{folder} is said to hold a model for images, and {type(config).__name__} is for none")
    reader = ImageReader.load(folder, size=config.image, channels=config.channels)
    sides = reader.crop or reader.size
    if sides not in (None, (config.image, config.image)):
        raise CheckpointError(f"{folder / PREPROCESSOR} makes images of {sides} pixels, the model reads {config.image}")
    return reader


def _tokenizer(folder: Path, config: Any) -> Tokenizer:
    known = getattr(config, "vocabulary", None)
    if known is None:
        raise CheckpointError(f"{folder} is said to hold a model for texts, and {type(config).__name__} is for none")
    tokenizer = Tokenizer.load(folder / TOKENIZER)
    if tokenizer.vocabulary_size > known:
        raise CheckpointError(f"{folder / TOKENIZER} has {tokenizer.vocabulary_size} tokens, the model knows {known}")
    return tokenizer


# task -> the file that says how its inputs are read, and what makes a reader of it; where there is none, it is texts
READERS: Mapping[str, tuple[str, Callable[[Path, Any], Reader]]] = MappingProxyType(
    {IMAGES: (PREPROCESSOR, image_reader)}
)


def read_settings(folder: Path) -> Settings:
    """What the directory says of its model, checked."""
    about = read_json(folder / CONFIG)
    if about.get("format_version") != FORMAT_VERSION:
        found = about.get("format_version")
        raise CheckpointError(f"{folder / CONFIG} has format_version {found!r}; this clearhead reads {FORMAT_VERSION}")
    name = about.get("architecture")
    if not isinstance(name, str) or name not in ARCHITECTURES:
        known = ", ".join(ARCHITECTURES)
        raise CheckpointError(f"{folder / CONFIG} names the architecture {name!r}; this clearhead knows {known}")
    generation = read_json(folder / GENERATION) if (folder / GENERATION).is_file() else {}
    try:
        config = as_dataclass(ARCHITECTURES[name][0], _mapping(about.get("config")), "config")
        values = {"task": about.get("task"), "config": None, "generation": generation}
        values |= {name: about.get(name, ()) for name in ("languages", "labels")}
        values["reading"] = as_dataclass(Reading, _mapping(about.get("reading", {})), "reading")
        checked = as_dataclass(Settings, values, "settings")
    except ConfigError as error:
        raise CheckpointError(f"{folder / CONFIG} cannot be used: {error}") from error
    return replace(checked, config=config)


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
        with unfilled():
            model = build(config)
    except ClearheadError as error:
        raise CheckpointError(f"{folder / CONFIG} cannot be built: {error}") from error
    load_weights(model, folder / WEIGHTS)
    return model.eval()


def _mapping(value: object) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise ConfigError(f"a JSON object is wanted, not {value!r:.60}")
    return value


def _write_json(path: Path, value: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
