"""Model directories: whole or not at all, and checked before they are used."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from clearhead.data.tokenizers import Tokenizer
from clearhead.errors import CheckpointError, ConfigError
from clearhead.nn.weights import read_tensors, write_tensors
from clearhead.tasks.directory import ModelParts, Settings, model_folder, save_model
from clearhead.tasks.loading import load_model
from clearhead.train.run import Run
from tests.unit.small import MODES, VOCABULARY, read, small_model, tokens

TOKENIZER = Tokenizer.train("word", ["a b c d e f g"], VOCABULARY)


def parts_of(mode: str) -> ModelParts:
    torch.manual_seed(1)
    model = small_model(mode)
    settings = Settings("translation", model.config, ("fr", "en"), ("x", "y"), {"longest_extra": 3})
    return ModelParts(model, TOKENIZER, settings, "# A card\n")


@pytest.mark.parametrize("mode", sorted(MODES))
def test_what_is_saved_is_loaded(mode: str, tmp_path: Path) -> None:
    parts = parts_of(mode)
    save_model(tmp_path / "new" / "model", parts)
    again = load_model(tmp_path / "new" / "model", "translation")
    assert again.settings == parts.settings
    assert again.settings.architecture == mode
    assert again.card == "# A card\n"
    assert again.tokenizer.fingerprint == TOKENIZER.fingerprint
    assert torch.equal(read(again.model, tokens()), read(parts.model, tokens()))
    names = {path.name for path in (tmp_path / "new" / "model").iterdir()}
    assert names == {"config.json", "model.safetensors", "tokenizer.json", "generation_config.json", "README.md"}
    stored = read_tensors(tmp_path / "new" / "model" / "model.safetensors")
    pointers = [parameter.data_ptr() for parameter in parts.model.parameters()]
    assert sum(tensor.numel() for tensor in stored.values()) == sum(p.numel() for p in parts.model.parameters())
    assert len(pointers) == len(set(pointers))


def test_a_folder_that_exists_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    with pytest.raises(ConfigError, match="exists already"):
        save_model(tmp_path / "model", parts_of("decoder_only"))
    assert [*(tmp_path / "model").iterdir()] == []


def test_a_write_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: Tokenizer, path: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Tokenizer, "save", full)
    with pytest.raises(CheckpointError, match="the disk is full"):
        save_model(tmp_path / "model", parts_of("decoder_only"))
    assert [*tmp_path.iterdir()] == []


def edit(change: Callable[[dict[str, object]], object]) -> Callable[[Path], None]:
    def edited(folder: Path) -> None:
        about = json.loads((folder / "config.json").read_text("utf-8"))
        change(about)
        (folder / "config.json").write_text(json.dumps(about), encoding="utf-8")

    return edited


def with_nan(folder: Path) -> None:
    tensors = read_tensors(folder / "model.safetensors")
    tensors["decoder.norm.weight"][0] = float("nan")
    write_tensors(folder / "model.safetensors", tensors)


def larger_tokenizer(folder: Path) -> None:
    Tokenizer.train("word", ["a b c d e f g h i j k l m n o p"], 2 * VOCABULARY).save(folder)


BREAKAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "no weights": (lambda folder: (folder / "model.safetensors").unlink(), "it has no model.safetensors"),
    "no tokenizer": (lambda folder: (folder / "tokenizer.json").unlink(), "it has no tokenizer.json"),
    "no config": (lambda folder: (folder / "config.json").unlink(), "neither a model directory"),
    "torn config": (lambda folder: (folder / "config.json").write_text('{"a'), "JSON"),
    "list as config": (lambda folder: (folder / "config.json").write_text("[1]"), "JSON"),
    "torn weights": (lambda folder: (folder / "model.safetensors").write_bytes(b"x" * 20), "as safetensors"),
    "NaN": (with_nan, "'decoder.norm.weight' holds values that are not numbers"),
    "version": (edit(lambda about: about.update(format_version=99)), "format_version 99; this clearhead reads 1"),
    "architecture": (edit(lambda about: about.update(architecture="lstm")), "'lstm'; this clearhead knows encoder_dec"),
    "another architecture": (
        edit(lambda about: about.update(config={**about["config"], "width": 8})),  # type: ignore[dict-item]
        "of another architecture",
    ),
    "unknown field": (
        edit(lambda about: about.update(config={**about["config"], "widht": 8})),  # type: ignore[dict-item]
        "did you mean 'width'?",
    ),
    "impossible size": (
        edit(lambda about: about.update(config={**about["config"], "heads": 3})),  # type: ignore[dict-item]
        "width must divide into heads",
    ),
    "no task": (edit(lambda about: about.pop("task")), "settings.task"),
    "labels": (edit(lambda about: about.update(labels=3)), "settings.labels"),
    "tokenizer too large": (larger_tokenizer, "the model knows 13"),
}


@pytest.mark.parametrize("name", sorted(BREAKAGES))
def test_a_broken_directory_is_refused_in_one_sentence(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    save_model(folder, parts_of("decoder_only"))
    breakage, sentence = BREAKAGES[name]
    breakage(folder)
    with pytest.raises(CheckpointError) as refusal:
        load_model(folder)
    assert sentence in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_another_task_s_model_is_refused(tmp_path: Path) -> None:
    save_model(tmp_path / "model", parts_of("decoder_only"))
    with pytest.raises(CheckpointError, match="a model for translation, not for language_model"):
        load_model(tmp_path / "model", "language_model")


def test_a_run_stands_for_its_best_checkpoint_else_its_last(tmp_path: Path) -> None:
    run = Run(tmp_path / "run")
    run.directory.mkdir()
    for step in (3, 5):
        save_model(run.folder(step), parts_of("decoder_only"))
    with pytest.raises(CheckpointError, match="neither a model directory"):
        model_folder(run.directory)
    run.link("last", 5)
    assert model_folder(run.directory) == run.folder(5)
    run.link("best", 3)
    assert model_folder(run.directory) == run.folder(3)
    assert load_model(run.directory).settings.architecture == "decoder_only"
    with pytest.raises(CheckpointError, match="there is no model directory"):
        load_model(tmp_path / "nowhere")
