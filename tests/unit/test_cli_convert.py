"""`clearhead convert` and `embed`: there and back again, and nothing written where something is wrong."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from clearhead.convert.hub import is_hub_name
from clearhead.data.tokenizers import Tokenizer
from clearhead.models.vit import VitConfig
from clearhead.tasks.directory import save_model
from clearhead.tasks.exchange import save_graphs
from clearhead.tasks.image_classifier import ImageClassifier
from clearhead.tasks.masked_model import MaskedModel
from clearhead.tasks.registry import load
from tests.unit.command_line import refusal, run
from tests.unit.tiny_tasks import ENCODER, random_translator, random_writer, tiny_recipe

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def translator(tmp_path: Path) -> Path:
    random_translator(1, tied=True).save_pretrained(tmp_path / "ours")
    return tmp_path / "ours"


def test_there_and_back_again(translator: Path, tmp_path: Path, capsys: Capture) -> None:
    done = run(capsys, "convert", translator, tmp_path / "theirs", "--format", "hf")
    assert (done.code, done.out) == (0, f"{tmp_path / 'theirs'}\n")
    assert json.loads((tmp_path / "theirs" / "config.json").read_text())["model_type"] == "pegasus"
    assert run(capsys, "convert", tmp_path / "theirs", tmp_path / "back").code == 0
    texts = ["a b c", "f e d"]
    expected = load(translator).translate(texts, beams=3)
    for folder in ("theirs", "back"):
        assert load(tmp_path / folder).translate(texts, beams=3) == expected


def test_numbers_stay_as_they_are_stored(translator: Path, tmp_path: Path, capsys: Capture) -> None:
    run(capsys, "convert", translator, tmp_path / "theirs", "--format", "hf")
    file = tmp_path / "theirs" / "model.safetensors"
    save_file({name: tensor.bfloat16() for name, tensor in load_file(file).items()}, file, {"format": "pt"})
    for form in ("hf", "clearhead"):
        assert run(capsys, "convert", tmp_path / "theirs", tmp_path / form, "--format", form).code == 0
        stored = load_file(tmp_path / form / "model.safetensors")
        assert {tensor.dtype for name, tensor in stored.items() if "positions" not in name} == {torch.bfloat16}


def test_a_folder_that_exists_is_left_alone(translator: Path, tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "there").mkdir()
    for form in ("hf", "clearhead", "onnx"):
        assert "exists already" in refusal(run(capsys, "convert", translator, tmp_path / "there", "--format", form))
    assert [*(tmp_path / "there").iterdir()] == []


def test_what_no_other_model_has_is_named(tmp_path: Path, capsys: Capture) -> None:
    random_writer(1, positions="alibi").save_pretrained(tmp_path / "ours")
    said = refusal(run(capsys, "convert", tmp_path / "ours", tmp_path / "there", "--format", "hf"))
    assert "positions='alibi'" in said
    assert not (tmp_path / "there").exists()


def test_a_broken_source_leaves_nothing(translator: Path, tmp_path: Path, capsys: Capture) -> None:
    run(capsys, "convert", translator, tmp_path / "theirs", "--format", "hf")
    file = tmp_path / "theirs" / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-5])
    assert "cut short" in refusal(run(capsys, "convert", tmp_path / "theirs", tmp_path / "there"))
    (tmp_path / "theirs" / "config.json").write_text('{"model_type": "mamba"}')
    assert "'mamba'" in refusal(run(capsys, "convert", tmp_path / "theirs", tmp_path / "there"))
    assert not (tmp_path / "there").exists()


def test_graphs_have_beside_them_all_that_a_model_directory_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("clearhead.tasks.exchange.save_onnx", lambda model, folder: (folder / "x.onnx").touch())
    letters = Tokenizer.train("character", ["A B C"], 20)
    parts = replace(random_translator(1).parts, target=letters, chat="{{ messages }}", card="# A card")
    save_graphs(tmp_path / "graphs", parts)
    save_model(tmp_path / "whole", parts)
    names = {path.name for path in (tmp_path / "whole").iterdir()}
    assert {path.name for path in (tmp_path / "graphs").iterdir()} == names - {"model.safetensors"} | {"x.onnx"}
    for name in names - {"model.safetensors"}:
        assert (tmp_path / "graphs" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    assert Tokenizer.load(tmp_path / "graphs" / "target_tokenizer.json").encode("C A") == letters.encode("C A")


@pytest.mark.parametrize("name", ["my--model", "a/b.git", "a/-b"])
def test_names_that_the_hub_does_not_allow(
    name: str, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("huggingface_hub")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.chdir(tmp_path)
    assert f"no folder {name!r}, and no model of that name on the hub" in refusal(run(capsys, "info", name))


def test_a_model_that_is_not_given_to_everybody(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub = pytest.importorskip("huggingface_hub")

    def gated(*arguments: object, **settings: object) -> None:
        raise hub.errors.GatedRepoError.__new__(hub.errors.GatedRepoError)  # as it is without an answer

    monkeypatch.setattr(hub, "snapshot_download", gated)
    monkeypatch.chdir(tmp_path)
    said = refusal(run(capsys, "info", "owner/model"))
    assert "'owner/model'" in said
    assert "accept the terms" in said
    assert "log in" in said


@pytest.mark.parametrize("name", ["no/such", "no-such-model"])
def test_names_that_cannot_be_found(
    name: str, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.chdir(tmp_path)
    assert repr(name) in refusal(run(capsys, "info", name))


def test_paths_are_no_names() -> None:
    assert not any(map(is_hub_name, ["./x", "../x", "/x", "a/b/c", "-x", "a/../b", ""]))


def test_embed(tmp_path: Path, capsys: Capture) -> None:
    MaskedModel.fit(["a b c d"] * 4, recipe=tiny_recipe("masked_model", ENCODER)).save_pretrained(tmp_path / "m")
    done = run(capsys, "embed", "a b", "c", "-m", tmp_path / "m")
    first, second = map(json.loads, done.out.splitlines())
    assert len(first) == len(second) == ENCODER["width"]
    done = run(capsys, "embed", "-m", tmp_path / "m", "--json", stdin=b"c\na b\n")
    again = [json.loads(line) for line in done.out.splitlines()]
    assert [one["text"] for one in again] == ["c", "a b"]
    np.testing.assert_allclose([one["vector"] for one in again], [second, first], atol=1e-6)


def test_embed_wants_an_encoder(translator: Path, capsys: Capture) -> None:
    assert "need an encoder" in refusal(run(capsys, "embed", "a", "-m", translator))


def test_info_of_a_model_that_reads_images(tmp_path: Path, capsys: Capture) -> None:
    pictures = [np.full((8, 8, 3), shade, np.uint8) for shade in (0, 255)]
    config = VitConfig(image=8, patch=4, width=8, heads=2, layers=1, hidden=8)
    ImageClassifier.fit(pictures, ["dark", "light"], preset=config, steps=1).save_pretrained(tmp_path / "m")
    done = run(capsys, "info", tmp_path / "m")
    assert done.code == 0
    assert "dark light" in done.out
