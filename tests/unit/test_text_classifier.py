"""Text classification: two classes that are easy to tell apart, and everything around them."""

import os
import random
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from sklearn.metrics import accuracy_score, f1_score

from clearhead.errors import ConfigError, DataError
from clearhead.tasks import text_classifier
from clearhead.tasks.labelled_data import LabelledParts, parts_of_labels, read_labelled, read_tagged
from clearhead.tasks.recipe import Data, Recipe
from clearhead.tasks.registry import load, run_recipe
from clearhead.tasks.text_classifier import TextClassifier
from clearhead.train.interrupt import InterruptionError
from tests.unit.tiny_tasks import ENCODER, tiny_recipe

WORDS = {"praise": ["good", "great", "fine", "lovely"], "blame": ["bad", "awful", "poor", "dull"]}


def examples(count: int, seed: int = 0) -> list[tuple[str, str]]:
    """A word of praise or blame somewhere among words that say nothing."""
    draw = random.Random(seed)
    found = []
    for _ in range(count):
        label = draw.choice([*WORDS])
        words = [*draw.choices(["the", "a", "film", "was", "very"], k=draw.randint(2, 6)), draw.choice(WORDS[label])]
        draw.shuffle(words)
        found.append((" ".join(words), label))
    return found


def recipe_of(**sections: Any) -> Recipe:
    return tiny_recipe("text_classification", {**ENCODER, **sections.pop("model", {})}, **sections)


TRAIN, TEST = examples(300), examples(60, seed=1)


@pytest.fixture(scope="module", params=["first", "mean"])
def classifier(request: pytest.FixtureRequest) -> TextClassifier:
    """By [CLS] and by pooling."""
    recipe = recipe_of(model={"pooling": request.param}, train={"steps": 60, "validate_every": 30})
    return TextClassifier.fit(TRAIN, valid=TEST, recipe=recipe)


def test_it_separates_two_classes(classifier: TextClassifier) -> None:
    assert float(classifier.evaluate(TEST)["accuracy"]) > 0.95
    assert classifier.classify("the film was lovely") == "praise"
    assert classifier.classify(["great", "a very dull film"]) == ["praise", "blame"]


def test_probabilities_belong_to_the_answers(classifier: TextClassifier) -> None:
    texts = [text for text, _ in TEST]
    for text, label, shares in zip(texts, classifier.classify(texts), classifier.predict(texts), strict=True):
        assert sum(shares.values()) == pytest.approx(1, abs=1e-5)
        assert max(shares, key=lambda name: shares[name]) == label
        assert classifier.predict(text) == pytest.approx(shares, abs=1e-5)
    assert set(classifier.predict("film")) == {"praise", "blame"}


def test_figures_are_scikit_learn_s(classifier: TextClassifier) -> None:
    mixed = [(text, label) for (text, _), (_, label) in zip(TEST, TEST[3:] + TEST[:3], strict=True)]
    gold, found = [label for _, label in mixed], classifier.classify([text for text, _ in mixed])
    figures = classifier.evaluate(mixed)
    assert figures["texts"] == len(mixed)
    assert figures["accuracy"] == pytest.approx(accuracy_score(gold, found))
    assert figures["macro_f1"] == pytest.approx(f1_score(gold, found, average="macro"))
    shares = [row[label] for row, label in zip(classifier.predict([text for text, _ in mixed]), gold, strict=True)]
    assert figures["loss"] == pytest.approx(-float(torch.tensor(shares).double().log().mean()), rel=1e-4)


def test_long_texts_are_cut(classifier: TextClassifier) -> None:
    assert classifier.classify("film " * 500) == classifier.classify("film " * 30)


def test_a_file_with_a_recipe(tmp_path: Path) -> None:
    for name, rows in (("train", TRAIN[:60]), ("test", TEST[:20])):
        text = "label,text\n" + "".join(f"{label},é {text}\n" for text, label in rows)
        (tmp_path / f"{name}.csv").write_text(text, encoding="latin-1")
    data = {"train": str(tmp_path / "train.csv"), "test": str(tmp_path / "test.csv"), "encoding": "latin-1"}
    recipe = recipe_of(data={**data, "split": 0.8}, train={"steps": None, "epochs": 1.5, "validate_every": 1})
    outcome = run_recipe(recipe, out=tmp_path / "run")
    assert outcome.scores["texts"] == 20
    assert outcome.report.history[1]["texts"] == 12
    again = load(tmp_path / "run")
    assert isinstance(again, TextClassifier)
    assert again.labels == ("blame", "praise")
    assert again.evaluate(tmp_path / "test.csv", Data(encoding="latin-1")) == outcome.scores


def test_adapters_leave_a_new_head_to_learn(tmp_path: Path) -> None:
    first = TextClassifier.fit(TRAIN[:50], recipe=recipe_of())
    first.save_pretrained(tmp_path / "two")
    lora = {"init_from": str(tmp_path / "two"), "lora": {"rank": 2, "names": ["encoder.*.qkv"]}}
    three = [*TRAIN[:50], ("hm", "neither")]
    prepared = TextClassifier.prepare(tiny_recipe("text_classification", lora), LabelledParts(three))
    learning = {name for name, parameter in prepared.model.named_parameters() if parameter.requires_grad}
    assert {name.rpartition(".")[2] for name in learning} == {"lora_down", "lora_up", "weight", "bias"}
    assert {name for name in learning if "lora" not in name} == {"class_head.linear.weight", "class_head.linear.bias"}
    assert prepared.model.get_parameter("class_head.linear.weight").shape[0] == 3


def test_a_fit_that_is_stopped_says_what_of_it_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(model: Any, batch: Any, smoothing: float) -> Any:
        os.kill(os.getpid(), signal.SIGINT)
        return loss(model, batch, smoothing=smoothing)

    loss = text_classifier._loss
    monkeypatch.setattr(text_classifier, "_loss", stopped)
    with pytest.raises(InterruptionError, match="nothing is saved"):
        TextClassifier.fit(TRAIN[:9], recipe=recipe_of())
    with pytest.raises(InterruptionError, match="checkpoint-1 is the last good checkpoint"):
        TextClassifier.fit(TRAIN[:9], recipe=recipe_of(), out=tmp_path / "run")
    assert (tmp_path / "run" / "checkpoint-1").is_dir()


def test_splitting_is_random_but_fixed_by_its_seed(tmp_path: Path) -> None:
    (tmp_path / "train.txt").write_text("".join(f"{i % 2} text {i}\n" for i in range(50)), encoding="utf-8")
    parts = [
        parts_of_labels(Data(train=tmp_path / "train.txt", split=0.8, seed=seed), read_labelled) for seed in (0, 0, 1)
    ]
    assert parts[0] == parts[1] != parts[2]
    assert len(parts[0].train) == 40
    assert sorted(parts[0].train + (parts[0].valid or [])) == sorted(read_labelled(tmp_path / "train.txt"))


@pytest.mark.parametrize("seed", range(8))
def test_splitting_leaves_each_label_something_to_learn_from(tmp_path: Path, seed: int) -> None:
    rows = [("b" if i < 2 else "c" if i < 3 else "a", f"text {i}") for i in range(20)]
    (tmp_path / "train.txt").write_text("".join(f"{label} {text}\n" for label, text in rows), encoding="utf-8")
    parts = parts_of_labels(Data(train=tmp_path / "train.txt", split=0.5, seed=seed), read_labelled)
    assert {label for _, label in parts.train} == {"a", "b", "c"}
    assert len(parts.train) == len(parts.valid or ()) == 10
    (tmp_path / "train.conll").write_text("".join(f"x O\ny {tag}\n\n" for tag, _ in rows), encoding="utf-8")
    tagged = parts_of_labels(Data(train=tmp_path / "train.conll", split=0.5, seed=seed), read_tagged)
    assert {tag for _, tags in tagged.train for tag in tags} == {"O", "a", "b", "c"}
    assert len(tagged.train) == len(tagged.valid or ()) == 10
    alone = parts_of_labels(Data(train=tmp_path / "train.txt", split=0.01, seed=seed), read_labelled)
    assert sorted(label for _, label in alone.train) == ["a", "b", "c"]


def test_what_cannot_be_is_refused(classifier: TextClassifier) -> None:
    with pytest.raises(DataError, match="'rage' does not occur in the training data"):
        classifier.evaluate([("film", "rage")])
    with pytest.raises(DataError, match="there is none"):
        classifier.evaluate([])
    with pytest.raises(ConfigError, match=r"data\.train: a file is needed"):
        TextClassifier.prepare(recipe_of())
    with pytest.raises(ConfigError, match="one file is wanted"):
        TextClassifier.prepare(recipe_of(data={"train": ["a", "b"]}))
    with pytest.raises(ConfigError, match="architecture encoder_only, and gpt-tiny is none"):
        TextClassifier.prepare(tiny_recipe("text_classification", {"preset": "gpt-tiny"}), LabelledParts(TRAIN[:9]))
