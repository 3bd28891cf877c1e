"""Recipes and data at a size for tests: models that learn something plain in a few dozen steps."""

import random
from typing import Any

from clearhead.tasks.recipe import Recipe, parse_recipe

__all__ = ["ENCODER", "PAIR", "WRITER", "copy_pairs", "tiny_recipe"]

STILL: dict[str, Any] = {"dropout": 0.0, "width": 32, "heads": 2, "hidden": 64}
PAIR: dict[str, Any] = {"preset": "transformer-tiny", "encoder_layers": 1, "decoder_layers": 1, **STILL}
WRITER: dict[str, Any] = {"preset": "gpt-tiny", "layers": 1, "length": 16, **STILL}
ENCODER: dict[str, Any] = {"preset": "bert-tiny", "layers": 1, "length": 32, "attention_dropout": 0.0, **STILL}

TOKENIZER: dict[str, Any] = {"kind": "word", "vocabulary": 60}
TRAIN: dict[str, Any] = {"steps": 4, "learning_rate": 1e-2, "tokens": 256, "rows": 8, "progress": "quiet"}


def tiny_recipe(task: str, model: dict[str, Any], **sections: Any) -> Recipe:
    """A recipe for `task`; `train=`, `tokenizer=` and `data=` change what is usual here."""
    return parse_recipe(
        {
            "task": task,
            "model": model,
            "data": sections.get("data", {}),
            "tokenizer": {**TOKENIZER, **sections.get("tokenizer", {})},
            "train": {**TRAIN, **sections.get("train", {})},
        }
    )


def copy_pairs(count: int, seed: int = 0) -> list[tuple[str, str]]:
    """Sentences of one to four letters, to be said again in capitals."""
    draw = random.Random(seed)
    rows = [" ".join(draw.choices("abcdef", k=draw.randint(1, 4))) for _ in range(count)]
    return [(row, row.upper()) for row in rows]
