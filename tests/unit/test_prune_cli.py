"""`clearhead prune`: the model is smaller, its heads are those that matter, and it says so."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from clearhead.errors import CheckpointError, ConfigError
from clearhead.look.ablate import ablate
from clearhead.look.importance import by_ablation
from clearhead.tasks.directory import ModelParts, read_settings, save_model
from clearhead.tasks.image_classifier import ImageClassifier
from clearhead.tasks.language_model import LanguageModel
from clearhead.tasks.masked_model import MaskedModel
from clearhead.tasks.pruning import BY, folder_bytes, importance_by, prune_parts, prune_task
from clearhead.tasks.registry import load
from clearhead.tasks.text_classifier import TextClassifier
from clearhead.tasks.token_classifier import TokenClassifier
from clearhead.tasks.translator import Translator
from clearhead.tasks.word_alignment import AlignmentHead, alignment_errors, attend, chosen_head
from tests.unit.command_line import refusal, run
from tests.unit.tiny_tasks import copy_pairs, random_translator

TEXTS = ["a cat sat on a mat and the dog sat on it", "the dog saw a cat"] * 4
LABELLED = [("good", "+"), ("bad", "-"), ("good good", "+")]
TAGGED = [(["a", "cat"], ["O", "B-X"]), (["the", "dog", "sat"], ["O", "B-X", "O"])]


@pytest.fixture(scope="module")
def translator() -> Translator:
    return random_translator(seed=1, heads=4, encoder_layers=2, decoder_layers=2)


def tiny(kind: str) -> tuple[object, object]:
    """A task that has learned next to nothing, and data for it."""
    if kind == "language_model":
        return LanguageModel.fit(TEXTS, preset="gpt-tiny", steps=1, vocabulary=300, length=8), TEXTS
    if kind == "masked_model":
        return MaskedModel.fit(TEXTS, preset="bert-tiny", steps=1, vocabulary=300), TEXTS
    if kind == "text_classification":
        return TextClassifier.fit(LABELLED, preset="bert-tiny", steps=1, vocabulary=300), LABELLED
    return TokenClassifier.fit(TAGGED, preset="bert-tiny", steps=1, vocabulary=300), TAGGED


@pytest.mark.parametrize("kind", ["language_model", "masked_model", "text_classification", "token_classification"])
def test_any_task_that_learns_from_data(kind: str) -> None:
    task, data = tiny(kind)
    found = prune_task(task, data, keep=0.5)
    heads = sum(len(one) for one in found.kept.values())
    assert heads == sum(len(value) for value in found.importance["gradient"].values()) // 2
    assert found.before == task.evaluate(data)
    assert found.after == found.task.evaluate(data)
    assert found.parameters[1] < found.parameters[0]
    with torch.no_grad():
        total = sum(float(loss(task.model)) for loss in task.losses(data))
    for counted in ("tokens", "texts") if kind != "masked_model" else ():
        if counted in found.before:
            assert total / found.before[counted] == pytest.approx(found.before["loss"], rel=1e-4)
    assert total > 0


def test_losses_are_what_evaluate_adds_up(translator: Translator) -> None:
    pairs = copy_pairs(40)
    scored = translator.score(*map(list, zip(*pairs, strict=True)))
    total = sum(float(loss(translator.model).detach()) for loss in translator.losses(pairs))
    assert total == pytest.approx(-sum(one.score for one in scored), rel=1e-4)
    assert sum(loss.rows for loss in translator.losses(pairs)) == 40


def test_pruned_is_switched_off(translator: Translator) -> None:
    pairs = copy_pairs(20)
    found = prune_task(translator, pairs, keep=0.5, by="ablation")
    off = {name: sorted({0, 1, 2, 3} - set(heads)) for name, heads in found.kept.items()}
    with ablate(translator.model, heads=off):
        loss = translator.evaluate(pairs)["loss"]
    assert found.after["loss"] == pytest.approx(loss, rel=1e-4)
    by_hand = by_ablation(translator.model, next(iter(translator.losses(pairs))))
    for name, value in by_hand.items():
        np.testing.assert_allclose(found.importance["ablation"][name], value, atol=1e-3)
    assert -1 <= found.agreement <= 1
    kept = [float(found.importance["ablation"][name][head]) for name, heads in found.kept.items() for head in heads]
    gone = [float(found.importance["ablation"][name][head]) for name, heads in off.items() for head in heads]
    assert np.mean(kept) > np.mean(gone)


def test_gates_that_learn_leave_no_trace(translator: Translator) -> None:
    losses = list(translator.losses(copy_pairs(8)))
    before = {name: value.clone() for name, value in translator.model.state_dict().items()}
    torch.manual_seed(5)
    drawn = torch.rand(1)
    torch.manual_seed(5)
    openness = importance_by("gates", translator.model, losses)
    assert torch.equal(torch.rand(1), drawn)
    assert all(torch.equal(value, before[name]) for name, value in translator.model.state_dict().items())
    assert all(parameter.grad is None for parameter in translator.model.parameters())
    values = torch.cat(list(openness.values()))
    assert float(values.max() - values.min()) > 0.5
    assert set(BY) == {"gradient", "ablation", "gates"}


def test_the_alignment_head_follows_its_head(translator: Translator) -> None:
    settings = replace(translator.parts.settings, generation={"alignment_head": [1, 2, True], "longest_extra": 3})
    parts = replace(translator.parts, settings=settings)
    kept = prune_parts(parts, {"decoder.1.cross": [0, 2]})
    assert chosen_head(kept.settings) == AlignmentHead(1, 1, True)
    gone = prune_parts(parts, {"decoder.1.cross": [0, 1, 3]})
    assert chosen_head(gone.settings) is None
    assert gone.settings.generation == {"longest_extra": 3}
    elsewhere = prune_parts(parts, {"decoder.0.cross": [3]})
    assert chosen_head(elsewhere.settings) == AlignmentHead(1, 2, True)
    broken = replace(kept.settings, generation={"alignment_head": [1, 2, True]})
    with pytest.raises(CheckpointError, match="alignment_head"):
        chosen_head(broken)


def test_alignments_of_layers_with_different_heads(translator: Translator) -> None:
    pairs = [("a b", "A B"), ("c d e", "C D")]
    kept = {"decoder.0.cross": [1], "decoder.1.cross": [0, 2, 3]}
    smaller = prune_parts(translator.parts, kept)
    with ablate(translator.model, heads={name: sorted({0, 1, 2, 3} - set(heads)) for name, heads in kept.items()}):
        whole = list(attend(translator.parts, pairs))
    for all_heads, some in zip(whole, attend(smaller, pairs), strict=True):
        assert some.weights.shape[:2] == (2, 3)
        np.testing.assert_allclose(some.weights[0, :1], all_heads.weights[0, [1]], atol=1e-5)
        np.testing.assert_allclose(some.weights[1], all_heads.weights[1, [0, 2, 3]], atol=1e-5)
        assert np.isnan(some.weights[0, 1:]).all()

    class Gold:
        source, target, alignment = "a b", "A B", frozenset({(0, 0), (1, 1)})

    errors = alignment_errors(smaller, [Gold()])
    assert {(head.layer, head.head) for head in errors} == {(0, 0), (1, 0), (1, 1), (1, 2)}
    assert Translator(smaller).answers(["a b"], alignments=True)[0][0].links is not None


def write(path: Path, pairs: list[tuple[str, str]]) -> Path:
    path.write_text("".join(f"{source}\t{target}\n" for source, target in pairs), encoding="utf-8")
    return path


def test_the_command(translator: Translator, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save_model(tmp_path / "whole", translator.parts)
    (tmp_path / "whole" / "optimizer.safetensors").write_bytes(b"0" * 1_000_000)
    data = write(tmp_path / "pairs.tsv", copy_pairs(12))
    asked = ("prune", "-m", tmp_path / "whole", "--on", data, "--by", "ablation", "--json")
    done = run(capsys, *asked, "--keep", "0.25", "--out", tmp_path / "half")
    assert done.code == 0, done.err
    said = json.loads(done.out)
    smaller = load(tmp_path / "half")
    assert smaller.evaluate(copy_pairs(12))["loss"] == pytest.approx(said["after"]["loss"], rel=1e-4)
    assert said["parameters"] == [
        translator.model.parameters_table().total,
        smaller.model.parameters_table().total,
    ]
    assert said["bytes"] == [folder_bytes(tmp_path / "whole"), folder_bytes(tmp_path / "half")]
    assert said["bytes"][1] < said["bytes"][0] < 1_000_000
    assert sum(map(len, said["kept"].values())) == 6  # of 24, and one of each attention at least
    pruned = dict(read_settings(tmp_path / "half").config.pruned)
    assert {name: list(heads) for name, heads in pruned.items()} == said["kept"]
    assert "6 of 24 attention heads" in (tmp_path / "half" / "README.md").read_text()
    again = run(capsys, "prune", "-m", tmp_path / "half", "--on", data, "--keep", "1", "--out", tmp_path / "same")
    assert again.code == 0
    assert "loss" in again.out
    assert "Spearman" not in again.out


def test_refusals(translator: Translator, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save_model(tmp_path / "whole", translator.parts)
    data = write(tmp_path / "pairs.tsv", copy_pairs(4))
    asked = ("prune", "-m", tmp_path / "whole", "--on", data)
    assert "exists already" in refusal(run(capsys, *asked, "--out", tmp_path / "whole"))
    assert "above 0 and at most 1" in refusal(run(capsys, *asked, "--keep", "1.5", "--out", tmp_path / "new"))
    assert not (tmp_path / "new").exists()
    images = ImageClassifier.__new__(ImageClassifier)
    with pytest.raises(ConfigError, match="image_classification is not pruned"):
        prune_task(images, [], keep=0.5)
    with pytest.raises(ConfigError, match="'luck'"):
        prune_task(translator, copy_pairs(4), keep=0.5, by="luck")
    assert isinstance(translator.parts, ModelParts)
