"""Recipes: everything checked before anything starts, and every refusal in one sentence that names the place."""

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import yaml

from clearhead.errors import ConfigError
from clearhead.models.presets import PRESETS
from clearhead.tasks.recipe import Recipe, TrainSettings, load_recipe, parse_recipe
from clearhead.train.settings import Training

PLAIN: dict[str, Any] = {
    "task": "translation",
    "data": {"train": "train.tsv"},
    "model": {"preset": "transformer-tiny"},
    "train": {"steps": 10},
}


def changed(**sections: Any) -> dict[str, Any]:
    """The plain recipe, some keys of its sections changed."""
    values = {**PLAIN}
    for name, section in sections.items():
        values[name] = {**PLAIN.get(name, {}), **section} if isinstance(section, dict) else section
    return values


@pytest.mark.parametrize(
    ("sections", "sentence"),
    [
        ({"train": {"stpes": 3}}, "train.stpes: unknown key, did you mean 'steps'?"),
        ({"train": {"learnin_rate": 3}}, "train.learnin_rate: unknown key, did you mean 'learning_rate'?"),
        ({"train": {"width": 3}}, "train.width: unknown key, there are "),
        ({"data": {"trian": "x"}}, "data.trian: unknown key, did you mean 'train'?"),
        ({"tokenizer": {"vocab": 5}}, "tokenizer.vocab: unknown key, did you mean 'vocabulary'?"),
        ({"model": {"widht": 64}}, "model.widht: unknown key, did you mean 'width'?"),
        ({"model": {"lora": {"rnk": 3}}}, "model.lora.rnk: unknown key, did you mean 'rank'?"),
        ({"trian": {}}, "trian: unknown key, did you mean 'train'?"),
        ({"task": "translaton"}, "task: input should be 'translation'"),
        ({"model": {"preset": "gpt3"}}, "unknown model.preset 'gpt3': did you mean 'gpt2'?"),
        ({"tokenizer": {"kind": "bp"}}, "unknown tokenizer.kind 'bp': did you mean 'bpe'?"),
        ({"train": {"steps": "many"}}, "train.steps: input should be a valid integer"),
        ({"train": {"steps": -3}}, "train.steps: input should be greater than or equal to 1, not -3"),
        ({"train": {"clip": -1}}, "clip must not be negative: clip=-1"),
        ({"train": {"schedule": "cosin"}}, "schedule must be one of constant, cosine"),
        ({"train": {"betas": 0.9}}, "train.betas: input should be a valid tuple, not 0.9"),
        ({"train": {"epochs": 3}}, "either steps or epochs"),
        ({"train": {"tokens": 0}}, "train.tokens: input should be greater than or equal to 1, not 0"),
        ({"model": {"width": "wide"}}, "model.width: input should be a valid integer"),
        ({"model": {"width": -4}}, "width must be at least 1: width=-4"),
        ({"model": {"width": 30}}, "width must divide into heads: width=30, heads=4"),
        ({"model": {"positions": "sinusoid"}}, "unknown positions 'sinusoid': did you mean 'sinusoidal'?"),
        ({"model": {"init_from": "x"}}, "either a preset or init_from"),
        ({"data": {"builtin": "phrasebook"}}, "data.builtin: a built-in corpus takes the place of train"),
        ({"data": {"valid": "v.tsv", "split": 0.9}}, "data.split: there is a valid file already"),
        ({"data": {"split": 1.5}}, "data.split: input should be less than 1, not 1.5"),
        ({"data": {"train": ["a", "b", "c"]}}, "data.train: "),
        ({"train": 3}, "train: input should be a valid dictionary"),
    ],
    ids=str,
)
def test_what_cannot_be_is_refused_in_one_sentence(sections: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        parse_recipe(changed(**sections))
    assert sentence in str(refusal.value)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("missing", ["task", "model", "train"])
def test_a_missing_section_is_named(missing: str) -> None:
    with pytest.raises(ConfigError, match=f"{missing}: this key is needed"):
        parse_recipe({name: section for name, section in PLAIN.items() if name != missing})


def test_every_setting_of_training_can_be_given() -> None:
    settings = {field.name: field.default for field in fields(Training)}
    for name in settings.keys() - {"steps", "width", "freeze"}:
        section = changed(train={name: settings[name]})["train"]
        assert getattr(parse_recipe(changed(train=section)).train.training(steps=10, width=8), name) == settings[name]
    assert parse_recipe(changed(train={"learning_rate": "1e-3"})).train.training(steps=1, width=1).learning_rate == 1e-3


def test_the_model_s_own_width_goes_to_the_schedule_that_asks_for_it() -> None:
    train = TrainSettings(steps=5, schedule="noam")
    assert train.training(steps=5, width=64).timing.width == 64


@pytest.mark.parametrize("preset", ["transformer-tiny", "bert-tiny", "gpt-tiny"])
def test_any_field_of_a_preset_s_config_can_be_set(preset: str) -> None:
    recipe = parse_recipe(changed(model={"preset": preset, "dropout": 0.25, "heads": 2}))
    config = recipe.model.config(PRESETS[preset])
    assert (config.dropout, config.heads) == (0.25, 2)
    assert config.width == PRESETS[preset].width


def test_a_recipe_as_text_is_the_same_recipe() -> None:
    recipe = parse_recipe(
        changed(
            data={"train": ["a.de", "a.en"], "languages": ["de", "en"]},
            model={"lora": {"rank": 2}, "freeze": ["encoder.*"], "dropout": 0.3},
            train={"betas": [0.9, 0.99], "learning_rate": "3e-4"},
        )
    )
    again = parse_recipe(yaml.safe_load(recipe.to_yaml()))
    assert again.to_yaml() == recipe.to_yaml()
    assert again.data == recipe.data
    assert again.train.training(steps=1, width=1) == recipe.train.training(steps=1, width=1)
    assert "weight_decay: 0.0" in recipe.to_yaml(), "defaults are resolved"


def written(folder: Path, text: str) -> Path:
    path = folder / "recipe.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_overrides_are_read_as_yaml(tmp_path: Path) -> None:
    path = written(tmp_path, yaml.safe_dump(PLAIN))
    sets = ["train.steps=7", "train.betas=[0.9, 0.95]", "model.dropout=0.5", "data.valid=v.tsv", "tokenizer.lower=true"]
    recipe: Recipe = load_recipe(path, [*sets, "model.lora.rank=4"])
    assert recipe.train.steps == 7
    assert recipe.train.training(steps=7, width=1).betas == (0.9, 0.95)
    assert recipe.model.changes == {"dropout": 0.5}
    assert recipe.data.valid == Path("v.tsv")
    assert recipe.tokenizer.lower
    assert recipe.model.lora is not None
    assert recipe.model.lora.rank == 4


@pytest.mark.parametrize(
    ("override", "sentence"),
    [
        ("train.steps", "like train.steps=10"),
        ("train.stesp=3", "did you mean 'steps'"),
        ("task.x=3", "'task' is a value"),
        ("train.steps=[1", "not YAML"),
        ("train.steps=", "either steps or epochs"),
    ],
)
def test_overrides_that_cannot_be(override: str, sentence: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as refusal:
        load_recipe(written(tmp_path, yaml.safe_dump(PLAIN)), [override])
    assert sentence in str(refusal.value)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("task: [", "is not YAML"),
        ("- a\n- b", "no mapping"),
        ("", "no mapping"),
        ("a: !!python/object:x {}", "not YAML"),
    ],
)
def test_files_that_hold_no_recipe(text: str, sentence: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as refusal:
        load_recipe(written(tmp_path, text))
    assert sentence in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        load_recipe(tmp_path / "none.yaml")
    (tmp_path / "latin.yaml").write_bytes("task: é".encode("latin-1"))
    with pytest.raises(ConfigError, match="not YAML"):
        load_recipe(tmp_path / "latin.yaml")
