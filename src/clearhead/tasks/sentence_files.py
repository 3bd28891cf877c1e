"""Folders of sentence-transformers: what they have beside a model of Hugging Face's, read and written."""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from clearhead.convert.files import read_json
from clearhead.errors import CheckpointError, ConfigError
from clearhead.tasks.checked import as_dataclass
from clearhead.tasks.directory import Reading, Settings

__all__ = ["has_modules", "reading_of", "sentence_vectors", "without_modules", "write_modules"]

Change = Callable[[Any], Any]

MODULES, ABOUT, BOUNDS = "modules.json", "config_sentence_transformers.json", "sentence_bert_config.json"
TOKENIZER = "tokenizer_config.json"
UNBOUNDED = 10**9  # tokenizers that know no longest text say 1e30
UNIT = "unit"  # the pooler that brings vectors to length 1
# Their poolings by name, and by the flag that older versions set instead.
POOLINGS = {"cls": "first", "mean": "mean", "max": "maximum", "lasttoken": "last"}
FLAGS = {"cls": "cls_token", "mean": "mean_tokens", "max": "max_tokens", "lasttoken": "lasttoken"}


def sentence_vectors(folder: Path) -> Change | None:
    """What sentence-transformers makes of the model: how one vector comes from many, and whether it has length 1."""
    if not (folder / MODULES).is_file():
        return None
    pooling, unit = "mean", False
    for module in _modules(folder / MODULES):
        kind = str(module.get("type", "")).rsplit(".", 1)[-1]
        if kind == "Pooling":
            pooling = _pooling(folder, str(module.get("path", "")))
        elif kind == "Normalize":
            unit = True
        elif kind != "Transformer":
            raise CheckpointError(f"{folder / MODULES} asks for {kind}, which this clearhead does not have")
    heads = {"words": False, "next_sentence": False, "classes": 0, "labels": 0}
    return lambda config: replace(config, pooling=pooling, pooler=UNIT if unit else "none", **heads)


def reading_of(folder: Path) -> Reading:
    """What sentence-transformers makes of a text first: cut, made small, put behind the prompt that is usual."""
    about, tokenizer = _asked(folder / ABOUT), _asked(folder / TOKENIZER)
    bounds: Mapping[str, Any] = next((read_json(path) for path in sorted(folder.glob("sentence_*_config.json"))), {})
    usual, prompts = about.get("default_prompt_name"), about.get("prompts") or {}
    most = tokenizer.get("model_max_length")
    if isinstance(most, int | float) and most > UNBOUNDED:
        most = None
    said = {
        "longest": bounds.get("max_seq_length") or most,
        "lower": bounds.get("do_lower_case") or False,
        "prompt": prompts.get(usual, "") if isinstance(prompts, dict) else prompts,
    }
    try:
        return as_dataclass(Reading, said, "what sentence-transformers is told")
    except ConfigError as error:
        raise CheckpointError(f"{folder}: {error}") from error


def _asked(path: Path) -> Mapping[str, Any]:
    return read_json(path) if path.is_file() else {}


def _modules(path: Path) -> list[Mapping[str, Any]]:
    found = read_json(path, list)
    if not all(isinstance(module, dict) for module in found):
        raise CheckpointError(f"{path} should list modules, not {found!r:.60}")
    return found


def _pooling(folder: Path, place: str) -> str:
    if Path(place).name != place or place in ("", ".", ".."):
        raise CheckpointError(f"{folder / MODULES} names the folder {place!r}, which does not lie in its own")
    settings = read_json(folder / place / "config.json")
    flagged = [mode for mode, flag in FLAGS.items() if settings.get(f"pooling_mode_{flag}") is True]
    mode = settings.get("pooling_mode", flagged[0] if len(flagged) == 1 else flagged)
    if not isinstance(mode, str) or mode not in POOLINGS:
        raise CheckpointError(f"{folder / place} asks for the pooling {mode!r}; one of {[*POOLINGS]} is wanted")
    if settings.get("include_prompt") is False:
        raise CheckpointError(f"{folder / place} leaves the prompt out of the mean, which this clearhead cannot do")
    return POOLINGS[mode]


def has_modules(settings: Settings) -> bool:
    """Whether the model's vectors are what sentence-transformers can make: BERT's own, which a layer bends, are not."""
    return settings.task == "sentence_encoder" and settings.config.pooler in ("none", UNIT)


def without_modules(config: Any) -> Any:
    """The config of the encoder alone: bringing vectors to length 1 is a module of its own there."""
    return replace(config, pooler="none") if config.pooler == UNIT else config


def write_modules(folder: Path, settings: Settings) -> None:
    """Beside a model that was written: how one vector comes from many, and what is made of a text first."""
    config, reading = settings.config, settings.reading
    asked = {f"pooling_mode_{FLAGS[mode]}": pooling == config.pooling for mode, pooling in POOLINGS.items()}
    if not any(asked.values()):
        raise ConfigError(
            f"sentence-transformers has no pooling={config.pooling!r}, only {', '.join(POOLINGS.values())}"
        )
    kinds = [("Transformer", ""), ("Pooling", "1_Pooling")]
    kinds += [("Normalize", "2_Normalize")] if config.pooler == UNIT else []
    for _, place in kinds[1:]:
        (folder / place).mkdir()
    modules = [
        {"idx": number, "name": str(number), "path": place, "type": f"sentence_transformers.models.{kind}"}
        for number, (kind, place) in enumerate(kinds)
    ]
    prompt = {"prompts": {"usual": reading.prompt}, "default_prompt_name": "usual"} if reading.prompt else {}
    bounds = {"max_seq_length": reading.longest or config.length, "do_lower_case": reading.lower}
    for path, value in {
        MODULES: modules,
        "1_Pooling/config.json": {"word_embedding_dimension": config.width, **asked},
        ABOUT: prompt,
        BOUNDS: bounds,
    }.items():
        (folder / path).write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
