"""A model in the format that somebody else wants: a new folder, whole or not at all."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from clearhead.convert.onnx import save_onnx
from clearhead.convert.save import as_foreign
from clearhead.data.tokenizers import Tokenizer
from clearhead.errors import ConfigError
from clearhead.generate.decoding import ALIASES, STOPPINGS
from clearhead.nn.weights import write_tensors
from clearhead.tasks.directory import IMAGES, ModelParts, describe, save_model
from clearhead.tasks.precision import check_savable
from clearhead.tasks.sentence_files import has_modules, without_modules, write_modules
from clearhead.train.disk import aside

__all__ = ["FORMATS", "save_foreign", "save_graphs"]

# Options of decoding by the names that transformers has for them, and those that are called the same there.
THEIRS = {ours: theirs for theirs, ours in reversed(ALIASES.items())}
SAME = ("length_penalty", "repetition_penalty", "temperature", "top_k", "top_p", "min_p")


def save_foreign(folder: Path, parts: ModelParts) -> Path:
    """Write a folder that `transformers` opens: config, weights, tokenizer, how to write, card.

    That of an encoder made for vectors opens in sentence-transformers too.
    """
    check_savable(parts.model)
    _refuse_existing(folder)
    if parts.target is not None:
        raise ConfigError("a model with two tokenizers cannot be written in Hugging Face's format by this clearhead")
    vectors = has_modules(parts.settings)
    config = without_modules(parts.settings.config) if vectors else parts.settings.config
    about, tensors = as_foreign(parts.model, config)
    about |= _named_labels(parts.settings.labels)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with aside(folder) as temporary:
        temporary.mkdir()
        write_tensors(temporary / "model.safetensors", tensors, {"format": "pt"})
        _write(temporary / "config.json", about)
        _write_reader(temporary, parts)
        if parts.settings.generation:
            _write(temporary / "generation_config.json", _generation(parts, about))
        if vectors:
            write_modules(temporary, parts.settings)
        if parts.chat is not None:
            (temporary / "chat_template.jinja").write_text(parts.chat, encoding="utf-8")
        (temporary / "README.md").write_text(parts.card or f"# A {parts.settings.task} model\n", encoding="utf-8")
    return folder


def save_graphs(folder: Path, parts: ModelParts) -> Path:
    """Write a model directory of ours in which ONNX graphs stand in place of the weights."""
    check_savable(parts.model)
    _refuse_existing(folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with aside(folder) as temporary:
        temporary.mkdir()
        save_onnx(parts.model, temporary)
        describe(temporary, parts)
    return folder


def _save_own(folder: Path, parts: ModelParts) -> Path:
    save_model(folder, parts)
    return folder


# name -> (the new folder, the model) -> the folder
FORMATS: Mapping[str, Callable[[Path, ModelParts], Path]] = MappingProxyType(
    {"clearhead": _save_own, "hf": save_foreign, "onnx": save_graphs}
)


def _refuse_existing(folder: Path) -> None:
    if folder.exists():
        raise ConfigError(f"the output folder {str(folder)!r} exists already; name another, or remove it first")


def _named_labels(labels: tuple[str, ...]) -> dict[str, Any]:
    if not labels:
        return {}
    return {
        "id2label": {str(number): label for number, label in enumerate(labels)},
        "label2id": {label: number for number, label in enumerate(labels)},
    }


def _write_reader(folder: Path, parts: ModelParts) -> None:
    """What reads the model's inputs: of images, the reader as it is; of texts, the tokenizer as others expect it."""
    if parts.settings.task == IMAGES:
        parts.tokenizer.save(folder)
        return
    parts.tokenizer.framed(*_frame(parts)).save(folder)
    _write(folder / "tokenizer_config.json", _about_tokenizer(parts))


def _frame(parts: ModelParts) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The special tokens that the model expects around a text."""
    tokenizer: Tokenizer = parts.tokenizer
    config = parts.settings.config
    if any(tokenizer.around):
        return tokenizer.around
    if parts.settings.task == "translation":
        return (), (config.eos,)
    if tokenizer.cls is not None and tokenizer.sep is not None:
        return (tokenizer.cls,), (tokenizer.sep,)
    return (), ()


def _about_tokenizer(parts: ModelParts) -> dict[str, Any]:
    tokenizer, config = parts.tokenizer, parts.settings.config
    # CTranslate2 begins what it writes with the padding token, which otherwise nobody ever looks at.
    starts = parts.settings.task == "translation" and config.bos not in (config.pad, config.eos)
    roles = {
        "bos_token": tokenizer.bos,
        "eos_token": tokenizer.eos,
        "unk_token": tokenizer.unknown,
        "pad_token": config.bos if starts else tokenizer.pad,
        "mask_token": tokenizer.mask,
        "cls_token": tokenizer.cls,
        "sep_token": tokenizer.sep,
    }
    names = {role: tokenizer.token_of(id) for role, id in roles.items() if id is not None}
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False}
    return {**settings, "model_max_length": config.length, **names}


def _generation(parts: ModelParts, about: Mapping[str, Any]) -> dict[str, Any]:
    """How the model writes, as transformers has it; what that does not know is left out."""
    tokens = {name: value for name, value in about.items() if name.endswith("_token_id") and value is not None}
    said = {ALIASES.get(name, name): value for name, value in parts.settings.generation.items()}
    known = {THEIRS.get(name, name): value for name, value in said.items() if name in {*THEIRS, *SAME}}
    stopping = known.get("early_stopping")
    begin, most = said.get("begin", []), said.get("longest_ever")
    return {
        **tokens,
        **known,
        **({} if stopping is None else {"early_stopping": STOPPINGS.get(stopping, stopping)}),
        **({"forced_bos_token_id": begin[0]} if begin else {}),
        **({} if most is None else {"max_length": most + 1 + len(begin)}),
        "do_sample": bool(said.get("temperature")),
    }


def _write(path: Path, value: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
