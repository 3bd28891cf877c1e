"""Image classification: digits of 8 × 8 pixels, and everything around them."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from sklearn.metrics import accuracy_score, f1_score

from clearhead.data.images import ImageReader
from clearhead.errors import CheckpointError, ConfigError, DataError
from clearhead.models.presets import build
from clearhead.models.vit import VitConfig
from clearhead.tasks.directory import ModelParts, Settings
from clearhead.tasks.exchange import save_foreign
from clearhead.tasks.image_classifier import ImageClassifier
from clearhead.tasks.recipe import parse_recipe
from clearhead.tasks.registry import load
from clearhead.train.settings import Training
from tests.unit.command_line import refusal, run

Image = pytest.importorskip("PIL.Image")

CONFIG = VitConfig(
    image=8, patch=2, channels=1, classes=10, width=32, heads=2, layers=1, hidden=64, dropout=0.0, init="xavier"
)
DIGITS = load_digits()
IMAGES, LABELS = (DIGITS.images / 16).astype(np.float32), [str(label) for label in DIGITS.target]
TRAIN, TEST = slice(0, 1400), slice(1400, 1797)
EXAMPLES = list(zip(IMAGES[TEST], LABELS[TEST], strict=True))
QUIET = Training(150, warmup=15, learning_rate=4e-3, validate_every=75, progress="quiet")


@pytest.fixture(scope="module")
def classifier() -> ImageClassifier:
    return ImageClassifier.fit(IMAGES[TRAIN], LABELS[TRAIN], valid=EXAMPLES[:100], preset=CONFIG, training=QUIET)


def random_classifier(**changes: Any) -> ImageClassifier:
    """One that has learned nothing."""
    config = replace(CONFIG, **{"classes": 3, **changes})
    reader = ImageReader(config.channels, (8, 8), mean=(0.5,) * config.channels, std=(0.5,) * config.channels)
    model = build(config).eval()
    return ImageClassifier(ModelParts(model, reader, Settings("image_classification", config, labels=("a", "b", "c"))))


def test_it_learns_digits(classifier: ImageClassifier) -> None:
    assert float(classifier.evaluate(EXAMPLES)["accuracy"]) > 0.5  # chance: 0.1
    assert classifier.labels == tuple("0123456789")


def test_probabilities_belong_to_the_answers(classifier: ImageClassifier) -> None:
    images = list(IMAGES[TEST][:20])
    for image, label, shares in zip(images, classifier.classify(images), classifier.predict(images), strict=True):
        assert sum(shares.values()) == pytest.approx(1, abs=1e-5)
        assert max(shares, key=lambda name: shares[name]) == label == classifier.classify(image)
        assert classifier.predict(image) == pytest.approx(shares, abs=1e-5)
    assert classifier.classify([]) == []
    assert classifier.predict([]) == []


def test_figures_are_scikit_learn_s(classifier: ImageClassifier) -> None:
    gold, found = LABELS[TEST], classifier.classify(list(IMAGES[TEST]))
    figures = classifier.evaluate(EXAMPLES)
    assert figures["images"] == len(gold)
    assert figures["accuracy"] == pytest.approx(accuracy_score(gold, found))
    assert figures["macro_f1"] == pytest.approx(f1_score(gold, found, average="macro"))
    shares = [row[label] for row, label in zip(classifier.predict(list(IMAGES[TEST])), gold, strict=True)]
    assert figures["loss"] == pytest.approx(-float(torch.tensor(shares).double().log().mean()), rel=1e-4)


def test_a_file_is_what_is_in_it(classifier: ImageClassifier, tmp_path: Path) -> None:
    pixels = (IMAGES[0] * 255).astype(np.uint8)
    Image.fromarray(pixels).save(tmp_path / "digit.png")
    assert classifier.predict(tmp_path / "digit.png") == classifier.predict(pixels)
    large = Image.fromarray(pixels).resize((24, 24), resample=0).convert("RGBA")
    assert classifier.classify(large) == classifier.classify(pixels)


def test_paths_are_learned_from(tmp_path: Path) -> None:
    for name, shade in (("dark", 20), ("bright", 230)):
        Image.new("RGB", (11, 9), (shade,) * 3).save(tmp_path / f"{name}.png")
    paths = [tmp_path / "dark.png", tmp_path / "bright.png"]
    small = replace(CONFIG, width=16, hidden=16)
    training = Training(30, learning_rate=1e-2, progress="quiet")
    classifier = ImageClassifier.fit(paths, [0, 1], preset=small, training=training, out=tmp_path / "run")
    assert classifier.classify(paths) == ["0", "1"]
    for again, before in zip(load(tmp_path / "run").predict(paths), classifier.predict(paths), strict=True):
        assert again == pytest.approx(before, abs=1e-6)


@pytest.mark.parametrize("save", [ImageClassifier.save_pretrained, lambda c, folder: save_foreign(folder, c.parts)])
def test_round_trips(save: Any, tmp_path: Path) -> None:
    ours = random_classifier(channels=3)
    ours.parts.model.class_head.linear.weight.data.normal_()
    save(ours, tmp_path / "there")
    names = {path.name for path in (tmp_path / "there").iterdir()}
    assert names == {"config.json", "model.safetensors", "preprocessor_config.json", "README.md"}
    again = load(tmp_path / "there")
    assert isinstance(again, ImageClassifier)
    assert again.reader == ours.reader
    image = np.random.default_rng(0).random((12, 10, 3))
    assert again.predict(image) == pytest.approx(ours.predict(image), abs=1e-6)
    small = ImageClassifier.from_pretrained(tmp_path / "there", precision="int8", threads=1)
    assert small.predict(image) == pytest.approx(ours.predict(image), abs=0.05)
    with pytest.raises(ConfigError, match="exists already"):
        save(ours, tmp_path / "there")


def test_classes_without_names_are_numbered() -> None:
    ours = random_classifier()
    nameless = ImageClassifier(replace(ours.parts, settings=replace(ours.parts.settings, labels=())))
    assert nameless.labels == ("LABEL_0", "LABEL_1", "LABEL_2")


def test_the_command_line(classifier: ImageClassifier, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    classifier.save_pretrained(tmp_path / "model")
    paths = []
    for number in range(2):
        paths.append(tmp_path / f"{number}.png")
        Image.fromarray((IMAGES[number] * 255).astype(np.uint8)).save(paths[-1])
    done = run(capsys, "classify", *paths, "-m", tmp_path / "model")
    for path, line in zip(paths, done.out.splitlines(), strict=True):
        label, share = line.split("\t")
        assert label == classifier.classify(path)
        assert float(share) == pytest.approx(classifier.predict(path)[label], abs=1e-4)
    answer = json.loads(run(capsys, "classify", "-m", tmp_path / "model", "--json", stdin=f"{paths[0]}\n".encode()).out)
    assert answer["text"] == str(paths[0])
    assert answer["probabilities"] == pytest.approx(classifier.predict(paths[0]), abs=1e-5)
    (tmp_path / "words.png").write_text("words", encoding="utf-8")
    for name in ("missing.png", "words.png"):
        assert name in refusal(run(capsys, "classify", tmp_path / name, "-m", tmp_path / "model"))
    assert "pairs of image and label" in refusal(
        run(capsys, "evaluate", tmp_path / "words.png", "-m", tmp_path / "model")
    )


def test_what_cannot_be_learned_from_is_refused() -> None:
    with pytest.raises(DataError, match="there is none"):
        ImageClassifier.fit([], [])
    with pytest.raises(DataError, match="2 images, 1 labels"):
        ImageClassifier.fit(IMAGES[:2], ["a"])
    with pytest.raises(DataError, match="'b' does not occur"):
        ImageClassifier.fit(IMAGES[:2], ["a", "a"], valid=[(IMAGES[0], "b")], preset=CONFIG)
    with pytest.raises(ConfigError, match="architecture vit, and gpt-tiny is none"):
        ImageClassifier.fit(IMAGES[:2], ["a", "b"], preset="gpt-tiny")
    with pytest.raises(ConfigError, match="vit-tinny"):
        ImageClassifier.fit(IMAGES[:2], ["a", "b"], preset="vit-tinny")
    with pytest.raises(ConfigError, match="'image_classification'"):
        parse_recipe({"task": "image_classification", "model": {"preset": "vit-tiny"}, "train": {"steps": 1}})


def test_what_cannot_be_answered_is_refused() -> None:
    classifier = random_classifier()
    with pytest.raises(DataError, match="there is none"):
        classifier.evaluate([])
    with pytest.raises(DataError, match="pairs of image and label"):
        classifier.evaluate(["a.png"])  # type: ignore[list-item]
    with pytest.raises(DataError, match="'d' does not occur"):
        classifier.evaluate([(IMAGES[0], "d")])
    with pytest.raises(DataError, match="not NoneType"):
        classifier.classify(None)
    with pytest.raises(DataError, match=r"not \(2, 8, 8\)"):
        classifier.classify(np.zeros((2, 8, 8)))
    loose = ImageClassifier(replace(classifier.parts, tokenizer=replace(classifier.reader, size=None, shorter=8)))
    with pytest.raises(DataError, match="8 × 16 pixels"):
        loose.classify(np.zeros((8, 16)))


def test_models_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    ours = random_classifier()
    for config, labels in ((replace(CONFIG, classes=0), ()), (ours.config, ("a",))):
        with pytest.raises(CheckpointError, match="classes"):
            ImageClassifier(replace(ours.parts, settings=Settings("image_classification", config, labels=labels)))
    folder = tmp_path / "model"
    ours.save_pretrained(folder)
    replace(ours.reader, size=(9, 9)).save(folder)
    with pytest.raises(CheckpointError, match=r"\(9, 9\) pixels, the model reads 8"):
        load(folder)
    (folder / "preprocessor_config.json").unlink()
    with pytest.raises(CheckpointError, match=r"no preprocessor_config\.json"):
        load(folder)
    about = json.loads((folder / "config.json").read_text("utf-8"))
    (folder / "config.json").write_text(json.dumps({**about, "task": "text_classification"}), encoding="utf-8")
    (folder / "tokenizer.json").write_text("{}", encoding="utf-8")
    with pytest.raises(CheckpointError, match="a model for texts, and VitConfig"):
        load(folder)
