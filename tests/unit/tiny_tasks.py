"""Recipes and data at a size for tests: models that learn something plain in a few dozen steps."""

import random
from typing import Any

import torch

from clearhead.tasks.directory import ModelParts
from clearhead.tasks.language_model import LanguageModel
from clearhead.tasks.pair_data import PairParts
from clearhead.tasks.recipe import Recipe, parse_recipe
from clearhead.tasks.text_data import TextParts
from clearhead.tasks.translator import Translator

__all__ = ["ENCODER", "PAIR", "WRITER", "copy_pairs", "random_translator", "random_writer", "tiny_recipe"]

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


def random_translator(seed: int = 0, **model: Any) -> Translator:
    """A translator that has learned nothing, and says it at random: two sides of letters, a word each."""
    recipe = tiny_recipe("translation", {**PAIR, "tied": False, **model})
    prepared = Translator.prepare(recipe, PairParts([("a b c d e f .", "A B C D E F .")]))
    return Translator(ModelParts(_shuffled(prepared.model, seed), prepared.tokenizer, prepared.settings))


def random_writer(seed: int = 0, **model: Any) -> LanguageModel:
    """A language model of characters that has learned nothing, with a context of 16."""
    recipe = tiny_recipe("language_model", {**WRITER, "tied": False, **model}, tokenizer={"kind": "character"})
    prepared = LanguageModel.prepare(recipe, TextParts(["the cat sat on the mat.\n" * 4]))
    return LanguageModel(ModelParts(_shuffled(prepared.model, seed), prepared.tokenizer, prepared.settings))


@torch.no_grad()
def _shuffled(model: torch.nn.Module, seed: int) -> torch.nn.Module:
    """Weights so large that what comes next depends on what came before."""
    chance = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        if parameter.dim() > 1:
            parameter.copy_(torch.randn(parameter.shape, generator=chance) / 2)
    return model.eval()
