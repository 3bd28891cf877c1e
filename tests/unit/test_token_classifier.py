"""Token classification on generated sentences whose names can be told by their place and their words."""

import random
from pathlib import Path
from typing import Any

import pytest
import torch

from clearhead.errors import DataError
from clearhead.tasks.labelled_data import LabelledParts
from clearhead.tasks.recipe import Recipe
from clearhead.tasks.registry import load, run_recipe
from clearhead.tasks.token_classifier import TaggedWord, TokenClassifier
from clearhead.train.loss import IGNORE
from tests.unit.tiny_tasks import ENCODER, tiny_recipe

Sentence = tuple[list[str], list[str]]


def sentences(count: int, seed: int = 0) -> list[Sentence]:
    """People have one or two names, and places one; "May" is a person before a verb and a month after "in"."""
    draw = random.Random(seed)
    found = []
    for _ in range(count):
        words, tags = ["May"], ["B-PER"]
        if draw.random() < 0.5:
            words, tags = [draw.choice(["Ann", "Bob"]), "Moss"], ["B-PER", "I-PER"]
        words += [draw.choice(["lives", "works"]), "in", draw.choice(["May", "Paris", "Rome"])]
        tags += ["O", "O", "O" if words[-1] == "May" else "B-LOC"]
        found.append((words, tags))
    return found


def recipe_of(**sections: Any) -> Recipe:
    return tiny_recipe("token_classification", ENCODER, **sections)


TRAIN, TEST = sentences(200), sentences(40, seed=1)


@pytest.fixture(scope="module", params=["word", "bpe", "character"])
def classifier(request: pytest.FixtureRequest) -> TokenClassifier:
    """Words of one piece and of several."""
    tokenizer = {"kind": request.param, "vocabulary": 300}
    recipe = recipe_of(tokenizer=tokenizer, train={"steps": 80, "tokens": 512})
    return TokenClassifier.fit(TRAIN, recipe=recipe)


def test_spans_are_found(classifier: TokenClassifier) -> None:
    figures = classifier.evaluate(TEST)
    assert float(figures["span_f1"]) > 0.95
    assert float(figures["accuracy"]) > 0.95
    assert figures["sentences"] == 40
    assert classifier.label("Ann Moss lives in Rome")[:2] == [TaggedWord("Ann", "B-PER"), TaggedWord("Moss", "I-PER")]
    assert [tagged.tag for tagged in classifier.label("May works in May")] == ["B-PER", "O", "O", "O"]


def test_a_batch_is_labelled_as_each_alone(classifier: TokenClassifier) -> None:
    texts = [" ".join(words) for words, _ in TEST[:6]] + ["", "Bob"]
    assert classifier.label(texts) == [classifier.label(text) for text in texts]
    assert classifier.label("") == []
    assert [tagged.word for tagged in classifier.label("Ann Moss, of Rome.")] == ["Ann", "Moss", ",", "of", "Rome", "."]


def test_the_loss_counts_words_not_pieces(classifier: TokenClassifier) -> None:
    recipe = recipe_of(tokenizer={"kind": "character", "vocabulary": 60})
    prepared = TokenClassifier.prepare(recipe, LabelledParts(TRAIN[:20]))
    for batch in prepared.job.batches(1):
        terms = prepared.job.loss(prepared.model, batch)
        assert int(terms["loss"][1]) == prepared.job.counts(batch)["loss"]
    total = sum(prepared.job.counts(batch)["loss"] for batch in prepared.job.batches(1))
    rows = sum(len(batch.token_BL) for batch in prepared.job.batches(1))
    assert 4 * rows <= total <= 5 * rows


def test_a_tag_is_told_where_its_word_starts() -> None:
    recipe = recipe_of(tokenizer={"kind": "character", "vocabulary": 60}, train={"tokens": 4_000})
    prepared = TokenClassifier.prepare(recipe, LabelledParts(TRAIN[:20]))
    (batch,) = prepared.job.batches(1)
    for token_L, label_L, count in zip(batch.token_BL, batch.label_BL, batch.count_B, strict=True):
        text = prepared.tokenizer.decode(token_L[: int(count)].tolist())
        starts = (torch.nonzero(label_L != IGNORE)[:, 0] - 1).tolist()
        assert starts == [0, *(place + 1 for place, letter in enumerate(text) if letter == " ")]
        tags = [prepared.settings.labels[int(label_L[start + 1])] for start in starts]
        assert (text.split(), tags) in TRAIN[:20]


def test_words_that_no_row_can_hold_are_outside(classifier: TokenClassifier) -> None:
    tagged = classifier.label("Bob " * 60)
    assert len(tagged) == 60
    assert tagged[-1] == TaggedWord("Bob", "O")
    figures = classifier.evaluate([(["Bob"] * 60, ["B-PER"] * 60)])
    assert float(figures["span_recall"]) < 1


def test_a_file_with_a_recipe(tmp_path: Path) -> None:
    for name, rows in (("train", TRAIN[:60]), ("valid", TEST)):
        blocks = ["\n".join(f"{word} {tag}" for word, tag in zip(*row, strict=True)) for row in rows]
        (tmp_path / f"{name}.conll").write_text("\n\n".join(blocks) + "\n", encoding="utf-8")
    data = {name: str(tmp_path / f"{name}.conll") for name in ("train", "valid")}
    train = {"steps": 2, "validate_every": 1, "metric": "span_f1", "better": "higher"}
    outcome = run_recipe(recipe_of(data=data, train=train), out=tmp_path / "run")
    again = load(tmp_path / "run")
    assert isinstance(again, TokenClassifier)
    assert again.labels == ("O", "B-LOC", "B-PER", "I-PER")
    best = outcome.report.history[outcome.report.best or 0]
    assert again.evaluate(tmp_path / "valid.conll") == pytest.approx(best)


def test_what_cannot_be_is_refused(classifier: TokenClassifier) -> None:
    with pytest.raises(DataError, match="1 words, 2 tags"):
        classifier.evaluate([(["Bob"], ["O", "O"])])
    with pytest.raises(DataError, match="'B-ORG' does not occur"):
        classifier.evaluate([(["Bob"], ["B-ORG"])])
    with pytest.raises(DataError, match="there is none"):
        classifier.evaluate([])
