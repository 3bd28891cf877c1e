"""Other projects' models as ours: everything about them but the weights."""

from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import torch

from clearhead.convert.family import class_names
from clearhead.convert.files import read_json
from clearhead.convert.gguf import GgufFile
from clearhead.convert.load import Foreign, load_foreign, model_of
from clearhead.data.chat import chat_template_of
from clearhead.data.tokenizer_files import read_tokenizers
from clearhead.data.tokenizers import Tokenizer
from clearhead.errors import CheckpointError
from clearhead.generate.decoding import ALIASES, Decoding
from clearhead.models.decoder_only import DecoderOnlyConfig
from clearhead.models.encoder_decoder import EncoderDecoderConfig
from clearhead.models.encoder_only import EncoderOnlyConfig
from clearhead.tasks.directory import IMAGES, ModelParts, Settings, image_reader
from clearhead.tasks.sentence_files import reading_of, sentence_vectors

__all__ = ["foreign_parts", "gguf_parts"]

# What of a generation_config.json means the same here, and what of that counts only where tokens are drawn.
MEANT = {*ALIASES, *(field.name for field in fields(Decoding))} - {"do_sample", "seed", "stopping", "longest"}
DRAWN = {"temperature", "top_k", "top_p", "min_p", "typical"}


def foreign_parts(folder: Path, *, stored: bool = False) -> ModelParts:
    """The model of a folder as Hugging Face lays it out, or sentence-transformers does; its numbers as `stored`."""
    change = sentence_vectors(folder)
    found = load_foreign(folder, dtype=None if stored else torch.float32, change=change)
    settings = _settings(found, _asked(folder / "generation_config.json"))
    if change is not None:
        settings = replace(settings, task="sentence_encoder", reading=reading_of(folder))
    source, target = _readers(folder, settings)
    card = folder / "README.md"
    return ModelParts(
        found.model,
        source,
        settings,
        card.read_text("utf-8", errors="replace") if card.is_file() else "",
        target,
        chat_template_of(folder),
    )


def _readers(folder: Path, settings: Settings) -> tuple[Any, Tokenizer | None]:
    """What reads the model's inputs and, where it is another, the tokenizer of what it writes."""
    if settings.task == IMAGES:
        return image_reader(folder, settings.config), None
    readers = read_tokenizers(folder)
    return readers.source, None if readers.target is readers.source else readers.target


def gguf_parts(file: Path) -> ModelParts:
    """The model of a GGUF file; its weights are numbers of full width again."""
    opened = GgufFile(file)
    found = model_of(opened.config, opened, source=file)
    return ModelParts(found.model, opened.tokenizer(), _settings(found, {}), chat=opened.chat_template)


def _asked(path: Path) -> Mapping[str, Any]:
    return read_json(path) if path.is_file() else {}


def _settings(found: Foreign, generation: Mapping[str, Any]) -> Settings:
    task = _task(found.config)
    return Settings(task, found.config, labels=_labels(found), generation=_generation(found, generation, task))


def _task(config: Any) -> str:
    """What the model is for."""
    if isinstance(config, DecoderOnlyConfig):
        return "language_model"
    if isinstance(config, EncoderDecoderConfig):
        return "translation"
    if isinstance(config, EncoderOnlyConfig):
        if config.classes:
            return "text_classification"
        if config.labels:
            return "token_classification"
        return "masked_model" if config.words else "sentence_encoder"
    return IMAGES


def _labels(found: Foreign) -> tuple[str, ...]:
    """The names of the model's classes; where a config.json has none, as it may of two, those that they give."""
    classes = getattr(found.config, "classes", 0)
    problem = found.about.get("problem_type")
    if classes and problem not in (None, "single_label_classification"):
        raise CheckpointError(f"problem_type={problem!r}: only models that choose one of several classes are used here")
    if classes == 1:
        raise CheckpointError("a model with one class chooses nothing; only those that choose one of several are used")
    count = classes or getattr(found.config, "labels", 0)
    names = (found.about.get("id2label") or class_names(count)["id2label"]) if count else {}
    try:
        return tuple(str(names[key]) for key in sorted(names, key=int))
    except (TypeError, ValueError) as error:
        raise CheckpointError(f"id2label should name the classes by number, not {names!r:.60}") from error


def _generation(found: Foreign, asked: Mapping[str, Any], task: str) -> dict[str, Any]:
    """How the model is meant to write; older models say so in their config.json."""
    if task not in ("language_model", "translation"):
        return {}
    said = {name: value for name, value in {**found.about, **asked}.items() if value is not None}
    meant = {_our_name(name): value for name, value in said.items() if name in MEANT}
    if not said.get("do_sample"):
        meant = {name: value for name, value in meant.items() if name not in DRAWN}
    elif "temperature" not in meant:
        meant["temperature"] = 1.0
    if task == "translation":
        first = said.get("forced_bos_token_id")
        begin = [] if first is None else [first]
        return meant | ({"begin": begin} if begin else {}) | _lengths(said, 1 + len(begin))
    ends = said.get("eos_token_id")
    return meant | ({"ends": ends} if isinstance(ends, list) and len(ends) > 1 else {})


def _lengths(said: Mapping[str, Any], before: int) -> dict[str, Any]:
    """Bounds on what a translator writes, which they count from the token that it begins with; here, `before` it."""
    for name in ("min_length", "max_length"):
        if not isinstance(said.get(name, 0), int):
            raise CheckpointError(f"{name} should be a whole number, not {said[name]!r:.60}")
    least, most = said.get("min_length", 0) - before, said.get("max_length", 0) - before
    shortest = {"shortest": least} if least > 0 and "min_new_tokens" not in said else {}
    return shortest | ({"longest_ever": most} if most > 0 else {})


def _our_name(name: str) -> str:
    """Except where others have other values, too, which `decoding_of` knows by their name."""
    return name if name == "early_stopping" else ALIASES.get(name, name)
