"""What all tasks do between a recipe and the first step: tokenizer, model, training settings; and after the last."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor, nn

from clearhead import __version__
from clearhead.data.tokenizers import Tokenizer
from clearhead.errors import CheckpointError, ConfigError
from clearhead.models.presets import ARCHITECTURES, PRESETS, build
from clearhead.nn.stack import Stack
from clearhead.nn.weights import distinct, load_tensors
from clearhead.tasks.directory import ModelParts, Settings
from clearhead.tasks.loading import find_model, load_model
from clearhead.tasks.recipe import Recipe, parse_recipe
from clearhead.train.distributed import ALONE, World
from clearhead.train.job import Job
from clearhead.train.loop import Report, train
from clearhead.train.lora import add_lora
from clearhead.train.optim import thaw
from clearhead.train.seed import derive, seed_everything
from clearhead.train.settings import Training

__all__ = [
    "Figures",
    "Prepared",
    "Surroundings",
    "build_model",
    "build_tokenizer",
    "find_layers",
    "fit_parts",
    "model_card",
    "parts_to_train",
    "simple_recipe",
    "start_of",
    "train_prepared",
    "training_settings",
]

Batch = TypeVar("Batch")
Figures = dict[str, float | str]

# What may differ between the model to start from and the one to train: heads, and what only a head reads.
HEADS = ("word_head.*", "next_head.*", "class_head.*", "label_head.*", "pool.*")


@dataclass(frozen=True)
class Surroundings:
    """What a run is given besides its recipe: the other ranks, a resumed run's tokenizer, who is told of progress."""

    world: World = ALONE
    tokenizer: Tokenizer | None = None
    progress: Callable[[int, int], None] | None = None


@dataclass(frozen=True)
class Prepared(Generic[Batch]):
    """All that a run needs; `test` is what the finished model is to be evaluated on, where there is such data."""

    model: nn.Module
    job: Job[Batch]
    training: Training
    tokenizer: Tokenizer
    settings: Settings
    test: Any = None


def simple_recipe(
    task: str, preset: str, steps: int, watched: bool, tokenizer: Mapping[str, Any], training: Mapping[str, Any]
) -> Recipe:
    """The recipe behind `fit` with its few arguments: a tenth of the steps is warm-up, ten times it is validated."""
    usual = {"steps": steps, "warmup": steps // 10, "validate_every": max(1, steps // 10) if watched else 0}
    return parse_recipe(
        {
            "task": task,
            "tokenizer": dict(tokenizer),
            "model": {"preset": preset},
            "train": {**usual, **training},
        }
    )


def start_of(recipe: Recipe) -> ModelParts | None:
    """The model that the recipe starts from: ours or anyone's."""
    return None if recipe.model.init_from is None else load_model(recipe.model.init_from)


def build_tokenizer(
    recipe: Recipe,
    texts: Callable[[], Iterable[str]],
    specials: Sequence[str],
    given: Tokenizer | None,
    start: ModelParts | None = None,
) -> Tokenizer:
    """The tokenizer of a resumed run, of the model to start from, of a file, or one trained on the texts."""
    wanted = recipe.tokenizer
    if given is not None:
        return given
    if start is not None:
        return start.tokenizer
    if wanted.path is not None:
        return Tokenizer.load(wanted.path)
    pad_last = recipe.task == "translation" if wanted.pad_last is None else wanted.pad_last
    return Tokenizer.train(
        wanted.kind,
        texts(),
        wanted.vocabulary,
        specials=specials,
        lower=wanted.lower,
        plain=wanted.plain,
        pad_last=pad_last,
    )


def build_model(
    recipe: Recipe,
    architecture: str,
    tokenizer: Tokenizer,
    start: ModelParts | None = None,
    *,
    heads: Callable[[Any], Mapping[str, Any]] = lambda config: {},
) -> nn.Module:
    """The model at the start of training: fresh, or from existing weights, with adapters where they are asked for.

    The tokenizer decides the sizes and special tokens of a fresh model, the data the sizes of its `heads`.
    """
    seed_everything(derive(recipe.train.seed))
    wanted = recipe.model
    base = PRESETS[wanted.preset or ""] if start is None else start.settings.config
    if type(base) is not ARCHITECTURES[architecture][0]:
        named = wanted.preset or wanted.init_from
        raise ConfigError(f"{recipe.task} needs a model of the architecture {architecture}, and {named} is none")
    config = replace(wanted.config(base), **heads(wanted.config(base)))
    model = build(config if start is not None else _for_tokenizer(config, tokenizer))
    fresh = [] if start is None else _start_from(model, distinct(start.model), str(find_model(wanted.init_from or "")))
    if wanted.lora is not None:
        add_lora(model, rank=wanted.lora.rank, alpha=wanted.lora.alpha, patterns=wanted.lora.names)
        thaw(model, fresh)
    return model


def _for_tokenizer(config: Any, tokenizer: Tokenizer) -> Any:
    named = {"vocabulary": tokenizer.vocabulary_size, "pad": tokenizer.pad, "bos": tokenizer.bos, "eos": tokenizer.eos}
    return replace(config, **{name: value for name, value in named.items() if hasattr(config, name)})


def _start_from(model: nn.Module, found: Mapping[str, Tensor], where: str) -> list[str]:
    """Begin with these weights; heads may come and go. Returns the names of parameters that are not among them."""
    own = distinct(model)
    strange = [name for name in found.keys() ^ own.keys() if not any(fnmatchcase(name, head) for head in HEADS)]
    if strange:
        raise CheckpointError(f"{where} cannot be the start: {sorted(strange)[0]!r} is in one of the two models alone")
    same_shape = {name: tensor for name, tensor in found.items() if name in own and tensor.shape == own[name].shape}
    fresh = own.keys() - same_shape.keys()
    odd = sorted(name for name in fresh & found.keys() if not any(fnmatchcase(name, head) for head in HEADS))
    if odd:
        shapes = f"{tuple(found[odd[0]].shape)} there, {tuple(own[odd[0]].shape)} here"
        raise CheckpointError(f"{where} cannot be the start: {odd[0]!r} has another shape, {shapes}")
    load_tensors(model, {**own, **same_shape}, source=where)
    return sorted(fresh)


def parts_to_train(
    recipe: Recipe, model: nn.Module, tokenizer: Tokenizer, settings: Settings, start: ModelParts | None
) -> ModelParts:
    """The model with all that its folder will say; what the one to start from writes and talks by stays the same."""
    target, chat = (None, None) if start is None else (start.target, start.chat)
    return ModelParts(model, tokenizer, settings, model_card(recipe, settings), target, chat)


def training_settings(recipe: Recipe, model: nn.Module, steps_per_epoch: int) -> Training:
    """The loop's settings; epochs become steps."""
    wanted = recipe.train
    steps = wanted.steps or max(1, math.ceil((wanted.epochs or 1) * steps_per_epoch))
    config: Any = model.config
    return wanted.training(steps=steps, width=config.width, freeze=recipe.model.freeze)


def find_layers(model: nn.Module) -> list[nn.Module]:
    """The layers of a model's stacks, each once: what is recomputed or sharded one at a time."""
    stacks = [module for module in model.modules() if isinstance(module, Stack)]
    return [*dict.fromkeys(layer for stack in stacks for layer in stack.layers)]


def train_prepared(
    prepared: Prepared[Any],
    recipe: Recipe,
    *,
    out: Path,
    resume: bool = False,
    world: World = ALONE,
    fleeting: bool = False,
) -> Report:
    """Train in the run directory `out`, which may be a `fleeting` one."""
    return train(
        prepared.model,
        prepared.job,
        prepared.training,
        run_directory=out,
        recipe=recipe.to_yaml(),
        resume=resume,
        world=world,
        fleeting=fleeting,
    )


def fit_parts(prepared: Prepared[Any], recipe: Recipe, out: Path | None) -> ModelParts:
    """Train, and load the best checkpoint; without `out`, the run directory is gone afterwards."""
    with TemporaryDirectory() as temporary:
        directory = Path(temporary) / "run" if out is None else out
        train_prepared(prepared, recipe, out=directory, fleeting=out is None)
        return load_model(directory)


def model_card(recipe: Recipe, settings: Settings, scores: Mapping[str, float | str] | None = None) -> str:
    """README.md of a model directory."""
    languages = " → ".join(settings.languages)
    data = recipe.data.builtin or recipe.data.train
    named = data if isinstance(data, str) else " and ".join(path.name for path in _paths(data)) or "given in Python"
    lines = [
        f"# {settings.task.replace('_', ' ').capitalize()}{f', {languages}' if languages else ''}",
        "",
        f"- Architecture: {settings.architecture}, trained by clearhead {__version__} on torch {torch.__version__}",
        f"- Data: {named}",
        f"- Seed: {recipe.train.seed}",
        *(f"- {name.replace('_', ' ')}: {_shown(value)}" for name, value in (scores or {}).items()),
        *("", "## Recipe", "", "```yaml", recipe.to_yaml(at_home=False).rstrip(), "```", ""),
    ]
    return "\n".join(lines)


def _paths(files: Path | tuple[Path, Path] | None) -> tuple[Path, ...]:
    return () if files is None else (files,) if isinstance(files, Path) else files


def _shown(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:.4g}"
