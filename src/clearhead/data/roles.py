"""Special tokens: what they are for, what they are called, and the file beside a tokenizer that says so.

`tokenizer_config.json` is other projects' file as much as ours; of it, this reads and writes the names of the special
tokens alone (`"eos_token": "</s>"`; null where there is none).
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer as Engine

from clearhead.errors import DataError

__all__ = ["CONFIG", "SPELLINGS", "known_roles", "read_object", "read_roles", "write_roles"]

CONFIG = "tokenizer_config.json"
OLD_CONFIG = "special_tokens_map.json"

# What each role is called, ours first, then other projects' tokenizer files; the first that a vocabulary has counts.
SPELLINGS: dict[str, tuple[str, ...]] = {
    "pad": ("<pad>", "[PAD]"),
    "bos": ("<bos>", "<s>", "<|begin_of_text|>", "<|im_start|>", "<|endoftext|>"),
    "eos": ("<eos>", "</s>", "<|end_of_text|>", "<|im_end|>", "<|endoftext|>"),
    "unknown": ("<unk>", "[UNK]"),
    "mask": ("<mask>", "[MASK]"),
    "cls": ("<cls>", "[CLS]"),
    "sep": ("<sep>", "[SEP]"),
}

KEYS = {role: f"{role}_token" for role in SPELLINGS} | {"unknown": "unk_token"}


def read_roles(folder: Path) -> dict[str, str | None]:
    """Which token plays which role, as far as the files of the folder say; None where they say that none does."""
    said = read_object(folder / OLD_CONFIG) | read_object(folder / CONFIG)
    return {role: _content(said[key]) for role, key in KEYS.items() if key in said}


def known_roles(engine: Engine, names: Mapping[str, str | None]) -> dict[str, str | None]:
    """The names without those that the engine's vocabulary lacks."""
    return {role: name for role, name in names.items() if name is None or engine.token_to_id(name) is not None}


def write_roles(folder: Path, names: Mapping[str, str | None]) -> None:
    """Write the names where `read_roles` finds them."""
    said = {KEYS[role]: token for role, token in names.items()}
    (folder / CONFIG).write_text(json.dumps(said, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def read_object(path: Path) -> dict[str, Any]:
    """The JSON object in a file, empty where there is no such file."""
    if not path.is_file():
        return {}
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"{str(path)!r} cannot be read as JSON: {error}") from error
    if not isinstance(value, dict):
        raise DataError(f"{str(path)!r} must hold a JSON object, not {value!r:.60}")
    return value


def _content(token: object) -> str | None:
    """A token is written as its name, or as an object with its name and how it is found."""
    content = token.get("content") if isinstance(token, dict) else token
    return content if isinstance(content, str) else None
