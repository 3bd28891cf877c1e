"""Language models: what they learn, how they are measured, and how they go on beyond their context."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from clearhead.data.sources import TextSource
from clearhead.errors import ConfigError, DataError
from clearhead.tasks.language_model import LanguageModel
from clearhead.tasks.prepare import Surroundings
from clearhead.tasks.recipe import Recipe
from clearhead.tasks.registry import load, run_recipe
from clearhead.tasks.text_data import TextParts
from clearhead.train.distributed import World
from tests.unit.tiny_tasks import WRITER, random_writer, tiny_recipe

TEXT = "the cat sat on the mat.\n" * 40
CHARACTERS = {"kind": "character", "vocabulary": 40}


def recipe_of(**sections: Any) -> Recipe:
    return tiny_recipe("language_model", sections.pop("model", WRITER), tokenizer=CHARACTERS, **sections)


@pytest.fixture(scope="module")
def model() -> LanguageModel:
    recipe = recipe_of(train={"steps": 60, "length": 16, "validate_every": 30})
    return LanguageModel.fit([TEXT], valid=[TEXT[:100]], recipe=recipe)


def test_it_goes_on_as_the_text_does(model: LanguageModel) -> None:
    assert model.generate("the c", longest=5) == "at sa"
    assert model.generate(["the c", "on the m"], longest=2) == ["at", "at"]


def test_the_loss_is_that_of_windows_read_one_by_one(model: LanguageModel) -> None:
    ids = [*model.tokenizer.encode(TEXT[:100]), model.tokenizer.eos]
    total, length = 0.0, model.config.length
    with torch.no_grad():
        for start in range(0, len(ids) - 1, length):
            window = torch.tensor(ids[start : start + length + 1])
            total += float(F.cross_entropy(model.model(window[None, :-1])[0], window[1:], reduction="sum"))
    figures = model.evaluate([TEXT[:100]])
    assert figures["tokens"] == len(ids) - 1
    assert figures["loss"] == pytest.approx(total / (len(ids) - 1), rel=1e-5)
    assert figures["perplexity"] == pytest.approx(math.exp(total / (len(ids) - 1)), rel=1e-5)
    assert figures["bits_per_character"] == pytest.approx(total / math.log(2) / 100, rel=1e-5)


def greedy_by_hand(model: LanguageModel, ids: list[int], longest: int) -> list[int]:
    """Every token from a whole new reading, of the context as `generate` says it shifts."""
    seen, new = ids[-model.config.length :], list[int]()
    if len(seen) == model.config.length:
        seen = seen[-model.config.length // 2 :]
    with torch.no_grad():
        while len(new) < longest:
            if len(seen) > model.config.length:
                seen = seen[-model.config.length // 2 :]
            new.append(int(model.model(torch.tensor([seen]))[0, -1].argmax()))
            seen = [*seen, new[-1]]
    return new


@pytest.mark.parametrize("prompt", ["t", TEXT[:15], TEXT[:16], TEXT[:40]])
def test_beyond_its_context_it_goes_on_from_the_second_half(model: LanguageModel, prompt: str) -> None:
    text = model.generate(prompt, longest=50)
    expected = greedy_by_hand(model, model.tokenizer.encode(prompt), 50)
    assert model.tokenizer.encode(text) == expected


def test_drawing_follows_the_seed(model: LanguageModel) -> None:
    drawn = [model.generate("t", longest=20, temperature=2.0, seed=seed) for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]
    assert model.generate(longest=3) == model.generate("", longest=3)
    assert len(model.tokenizer.encode(model.generate("the", longest=5, temperature=1.0))) <= 5


def test_windows_are_a_pure_function_of_seed_and_step() -> None:
    text = ["".join(map(chr, range(97, 123))) * 9]

    def batches(step: int, world: World | None = None, **train: Any) -> list[torch.Tensor]:
        around = Surroundings(world or World())
        recipe = recipe_of(train={"length": 8, **train})
        return LanguageModel.prepare(recipe, TextParts(text), around).job.batches(step)

    assert torch.equal(batches(3)[0], batches(3)[0])
    assert not torch.equal(batches(3)[0], batches(4)[0])
    assert not torch.equal(batches(3)[0], batches(3, seed=1)[0])
    assert batches(3)[0].shape == (8, 9)
    tokens = batches(2)[0]
    assert ((tokens[:, 1:] - tokens[:, :-1]).unique().numel()) <= 4, "windows are stretches of the text"
    both = [batches(2, World(rank, 2), accumulate=2) for rank in range(2)]
    whole = batches(2, accumulate=2)
    for number in range(2):
        assert torch.equal(torch.cat([both[0][number], both[1][number]]), whole[number])


def test_a_file_is_split_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLEARHEAD_CACHE", str(tmp_path / "cache"))
    (tmp_path / "text.txt").write_text(TEXT, encoding="utf-8")
    train = {"steps": 2, "validate_every": 1, "length": 8, "epochs": None}
    recipe = recipe_of(data={"train": str(tmp_path / "text.txt"), "split": 0.9}, train=train)
    outcome = run_recipe(recipe, out=tmp_path / "run")
    assert {"loss", "perplexity"} == {*outcome.report.history[2]}
    model = load(tmp_path / "run")
    assert isinstance(model, LanguageModel)
    ids = [*model.tokenizer.encode(TEXT), model.tokenizer.eos]
    tail = ids[int(0.9 * len(ids)) :]
    watched = model.tokenizer.decode(tail)
    total, count = 0.0, 0
    with torch.no_grad():
        for start in range(0, len(tail) - 1, 8):
            window = torch.tensor(tail[start : start + 9])
            total += float(F.cross_entropy(model.model(window[None, :-1])[0], window[1:], reduction="sum"))
            count += len(window) - 1
    best = outcome.report.history[outcome.report.best or 0]
    assert TEXT.endswith(watched)
    assert best["loss"] == pytest.approx(total / count, rel=1e-5)


def test_the_tokenizer_knows_only_what_is_learned_from() -> None:
    text = TEXT[:200] + "ÄÖÜ" * 10
    whole = LanguageModel.prepare(recipe_of(), TextParts([text], [TEXT])).tokenizer
    split = LanguageModel.prepare(recipe_of(), TextParts([TEXT[:100], text], split=0.6)).tokenizer
    assert whole.unknown not in whole.encode("Ä")
    assert split.encode("Äb") == [split.unknown, split.unknown]
    assert split.unknown not in split.encode(TEXT[:100])


def test_epochs_become_steps() -> None:
    recipe = recipe_of(train={"steps": None, "epochs": 2, "length": 10, "rows": 8})
    prepared = LanguageModel.prepare(recipe, TextParts([TEXT]))
    assert prepared.training.steps == 2 * math.ceil((len(TEXT) + 1) / 80)


def test_fine_tuning_keeps_how_a_model_talks(tmp_path: Path) -> None:
    first = random_writer()
    settings = replace(first.parts.settings, generation={"longest": 3, "ends": [1, 2]})
    template = "{% for message in messages %}{{ message['content'] }}{% endfor %}."
    LanguageModel(replace(first.parts, settings=settings, chat=template)).save_pretrained(tmp_path / "first")
    recipe = recipe_of(model={"init_from": str(tmp_path / "first")}, train={"steps": 1, "validate_every": 1})
    after = LanguageModel.fit([TEXT], valid=[TEXT[:100]], recipe=recipe)
    assert (after.parts.chat, after.parts.settings.generation) == (template, settings.generation)
    assert after.chat("the cat") == after.generate("the cat.").strip()


def test_what_cannot_be_is_refused(model: LanguageModel, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"train\.length is 99, more than the 16"):
        LanguageModel.prepare(recipe_of(train={"length": 99}), TextParts([TEXT]))
    with pytest.raises(ConfigError, match="must fit into the text"):
        LanguageModel.prepare(recipe_of(), TextParts(["abc"])).job.batches(1)
    with pytest.raises(ConfigError, match=r"data\.train: a file or folder"):
        LanguageModel.prepare(recipe_of())
    with pytest.raises(DataError, match="texts are wanted"):
        model.evaluate([])
    with pytest.raises(DataError, match="there is no file"):
        model.evaluate(TextSource(tmp_path / "none.txt"))


def test_saving_and_loading_changes_no_answer(model: LanguageModel, tmp_path: Path) -> None:
    model.save_pretrained(tmp_path / "model")
    again = LanguageModel.from_pretrained(tmp_path / "model")
    assert again.generate("the ", longest=30) == model.generate("the ", longest=30)
    assert np.isclose(float(again.evaluate([TEXT])["loss"]), float(model.evaluate([TEXT])["loss"]))
