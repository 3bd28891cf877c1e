"""Masked models: which words are hidden, that they alone are told, and what is learned from it."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from clearhead.data.sources import TextSource
from clearhead.data.token_array import TokenArray
from clearhead.data.tokenizers import Tokenizer
from clearhead.errors import ConfigError, DataError, DecodingError
from clearhead.tasks.encoder_data import SPECIALS, frame
from clearhead.tasks.labelled_data import LabelledParts
from clearhead.tasks.masked_model import MaskedModel
from clearhead.tasks.masking import MaskedRows, Masking, pair_row
from clearhead.tasks.prepare import Surroundings
from clearhead.tasks.recipe import Recipe
from clearhead.tasks.registry import run_recipe
from clearhead.tasks.text_classifier import TextClassifier
from clearhead.tasks.text_data import TextParts, encode_parts
from clearhead.train.distributed import World
from clearhead.train.loss import IGNORE
from tests.unit.tiny_tasks import ENCODER, tiny_recipe

WORDS = [first + second for first in "bcdfg" for second in "aeiouyhl"]
TOKENIZER = Tokenizer.train("word", [" ".join(WORDS)], 60, specials=SPECIALS)
TEXTS = [f"{who} {does} the {what}" for who in ("cats", "dogs") for does in ("see", "hear") for what in ("sea", "sun")]


def recipe_of(**sections: Any) -> Recipe:
    return tiny_recipe("masked_model", {**ENCODER, **sections.pop("model", {})}, **sections)


def test_fifteen_in_a_hundred_are_chosen_and_eight_of_ten_are_hidden() -> None:
    rng = np.random.default_rng(0)
    masking = Masking.of(TOKENIZER)
    row = np.array(frame(rng.choice(np.flatnonzero(masking.ordinary_V), 98).tolist(), TOKENIZER, 100))
    kinds = np.zeros(3)
    chosen = positions = 0
    for _ in range(400):
        token_L, target_L = masking(row, rng)
        told_L = target_L != IGNORE
        assert np.array_equal(target_L[told_L], row[told_L])
        assert np.array_equal(token_L[~told_L], row[~told_L])
        assert not told_L[[0, -1]].any(), "special tokens are never chosen"
        assert masking.ordinary_V[token_L[told_L & (token_L != TOKENIZER.mask)]].all()
        hidden, kept = (token_L == TOKENIZER.mask) & told_L, (token_L == row) & told_L
        kinds += [hidden.sum(), (told_L & ~hidden & ~kept).sum(), kept.sum()]
        chosen += int(told_L.sum())
        positions += 98
    share = chosen / positions
    assert share == pytest.approx(0.15, abs=4 * (0.15 * 0.85 / positions) ** 0.5)
    # A random word is the old one now and then.
    same = 0.1 / int(masking.ordinary_V.sum())
    expected = np.array([0.8, 0.1 - same, 0.1 + same])
    assert np.allclose(kinds / chosen, expected, atol=4 * (0.25 / chosen) ** 0.5)


def test_one_word_at_least_is_chosen_and_none_of_special_tokens_alone() -> None:
    masking, rng = Masking.of(TOKENIZER), np.random.default_rng(0)
    word = TOKENIZER.encode("ba")[0]
    for _ in range(20):
        _, target_L = masking(np.array(frame([word], TOKENIZER, 8)), rng)
        assert target_L.tolist() == [IGNORE, word, IGNORE]
        _, target_L = masking(np.array(frame([], TOKENIZER, 8)), rng)
        assert target_L.tolist() == [IGNORE, IGNORE]


@pytest.mark.parametrize("pairs", [False, True])
def test_every_step_hides_other_words_and_the_same_ones_when_asked_again(pairs: bool) -> None:
    text = TokenArray.of(TOKENIZER.encode_batch([" ".join(WORDS[i : i + 5]) for i in range(30)]))
    rows = MaskedRows(text, TOKENIZER, 16, pairs)
    first, again, later = (rows.drawn(6, seed=3, number=number) for number in (4, 4, 5))
    assert first == again != later
    assert first != rows.drawn(6, seed=2, number=4)
    assert [*rows.all()] == [*rows.all()]
    assert all(len(row.tokens) <= 16 for row in first)
    told = sum(row.targets[i] >= 0 for batch in rows.all() for row in batch for i in range(len(row.targets)))
    assert told > 0


def test_pairs_follow_each_other_every_other_time() -> None:
    ids = TOKENIZER.encode_batch(WORDS)
    text = TokenArray.of(ids)
    rows = MaskedRows(text, TOKENIZER, 8, pairs=True).drawn(400, seed=0, number=0)
    for row in rows:
        # The targets and what was left standing give the sentence back.
        whole = [target if target >= 0 else token for token, target in zip(row.tokens, row.targets, strict=True)]
        assert (whole[0], whole[2], whole[4]) == (TOKENIZER.cls, TOKENIZER.sep, TOKENIZER.sep)
        first, second = (ids.index([whole[place]]) for place in (1, 3))
        assert row.follows == (second == first + 1)
        assert row.segments == [0, 0, 0, 1, 1]
    share = sum(row.follows for row in rows) / 400
    assert share == pytest.approx(0.5, abs=0.1)


@pytest.mark.parametrize(
    ("first", "second", "kept"), [(2, 3, (2, 3)), (20, 2, (7, 2)), (2, 20, (2, 7)), (20, 20, (4, 5))]
)
def test_of_two_long_texts_the_longer_is_cut(first: int, second: int, kept: tuple[int, int]) -> None:
    row, segments = pair_row([7] * first, [8] * second, TOKENIZER, 12)
    assert (row.count(7), row.count(8)) == kept
    assert len(row) == len(segments) <= 12
    assert segments == [0] * (kept[0] + 2) + [1] * (kept[1] + 1)


@pytest.mark.parametrize("next_sentence", [False, True])
def test_the_loss_is_that_of_hidden_words_alone(next_sentence: bool) -> None:
    recipe = recipe_of(model={"next_sentence": next_sentence}, train={"length": 16})
    prepared = MaskedModel.prepare(recipe, TextParts(TEXTS * 4))
    model: Any = prepared.model.eval()
    (batch,) = prepared.job.batches(1)
    terms = prepared.job.loss(model, batch)
    logits_BLV = model.words(batch.token_BL, count_B=batch.count_B, segment_BL=batch.segment_BL)
    told = batch.label_BL != IGNORE
    expected = F.cross_entropy(logits_BLV[told], batch.label_BL[told], reduction="sum")
    total, count = terms["words" if next_sentence else "loss"]
    assert torch.allclose(total, expected, rtol=1e-4)
    assert int(count) == int(told.sum())
    assert {name: int(term[1]) for name, term in terms.items()} == prepared.job.counts(batch)
    if next_sentence:
        logits_BC = model.follows(batch.token_BL, count_B=batch.count_B, segment_BL=batch.segment_BL)
        assert torch.allclose(terms["next"][0], F.cross_entropy(logits_BC, batch.class_B, reduction="sum"), rtol=1e-4)


def test_a_file_is_split_between_two_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLEARHEAD_CACHE", str(tmp_path / "cache"))
    lines = [f"{text} {number}" for number, text in enumerate(TEXTS * 5)]
    (tmp_path / "text.txt").write_text("\n".join(lines), encoding="utf-8")
    data = TextParts(TextSource(tmp_path / "text.txt", unit="line"), split=0.77)
    parts = encode_parts(data, Tokenizer.train("word", lines, 100), None)
    assert [len(part or ()) for part in parts] == [31, 9]
    recipe = recipe_of(
        model={"next_sentence": True},
        data={"train": str(tmp_path / "text.txt"), "split": 0.77},
        tokenizer={"vocabulary": 100},
        train={"length": 16, "steps": 1, "validate_every": 1},
    )
    figures = run_recipe(recipe, out=tmp_path / "run").report.history[1]
    assert {"loss", "next_accuracy"} <= figures.keys()
    tokenizer = MaskedModel.from_pretrained(tmp_path / "run").tokenizer
    unknown = [tokenizer.encode(str(number)) == [tokenizer.unknown] for number in (0, 28, 32, 39)]
    assert unknown == [False, False, True, True], "a tokenizer does not know what is only watched"


def test_ranks_share_out_the_same_rows() -> None:
    recipe = recipe_of(train={"length": 16})
    whole, *ranks = (
        MaskedModel.prepare(recipe, TextParts(TEXTS * 4), Surroundings(world)).job.batches(3)[0]
        for world in (World(), World(0, 2), World(1, 2))
    )
    assert torch.equal(torch.cat([rank.label_BL for rank in ranks]), whole.label_BL)
    assert torch.equal(torch.cat([rank.token_BL for rank in ranks]), whole.token_BL)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("masked") / "run"
    recipe = recipe_of(
        model={"next_sentence": True}, train={"steps": 60, "length": 16, "validate_every": 60, "rows": 16}
    )
    MaskedModel.fit(TEXTS * 10, valid=TEXTS * 2, recipe=recipe, out=out)
    return out


def test_it_fills_in_what_fits(run: Path) -> None:
    model = MaskedModel.from_pretrained(run)
    (guesses,) = model.guesses("cats see <mask> sun", top=3)
    assert guesses[0].word == "the"
    assert model.fill("cats see <mask> sun") == "cats see the sun"
    assert guesses[0].probability > guesses[1].probability > guesses[2].probability
    assert len(model.guesses("<mask> see the <mask>")) == 2
    assert 0 < model.follows("cats see the sea", "dogs see the sun") < 1
    figures = model.evaluate(TEXTS)
    assert figures == model.evaluate(TEXTS)
    assert 0 <= float(figures["accuracy"]) <= 1
    assert 0 <= float(figures["next_accuracy"]) <= 1
    with pytest.raises(DecodingError, match="no <mask>"):
        model.fill("cats see the sun")
    with pytest.raises(DecodingError, match="this model reads at most 32"):
        model.fill("<mask> " + "cats " * 40)


def test_a_text_of_unknown_words_alone_has_no_figures(run: Path) -> None:
    figures = MaskedModel.from_pretrained(run).evaluate(["qqq qqq", "zzz"])
    assert figures["tokens"] == 3
    assert all(math.isnan(float(figures[name])) for name in ("loss", "perplexity", "accuracy"))


def test_a_classifier_starts_from_what_was_learned(run: Path) -> None:
    examples = [(text, text.split()[0]) for text in TEXTS]
    recipe = tiny_recipe("text_classification", {"init_from": str(run)}, train={"steps": 1})
    pretrained = MaskedModel.from_pretrained(run).model.state_dict()
    prepared = TextClassifier.prepare(recipe, LabelledParts(examples))
    state = prepared.model.state_dict()
    shared = [name for name in pretrained if name.startswith(("embed.", "encoder."))]
    assert shared
    assert all(torch.equal(pretrained[name], state[name]) for name in shared)
    assert "class_head.linear.weight" in state
    assert not any(name.startswith(("word_head", "next_head")) for name in state)


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(DataError, match="at least two lines"):
        MaskedRows(TokenArray.of([[5, 6, 7]]), TOKENIZER, 16, pairs=True)
    with pytest.raises(ConfigError, match="at least 8 tokens"):
        MaskedRows(TokenArray.of([[5, 6, 7]]), TOKENIZER, 4, pairs=False)
    plain = Tokenizer.train("word", ["a b"], 20)
    with pytest.raises(ConfigError, match="<mask>"):
        Masking.of(plain)
    with pytest.raises(ConfigError, match="<cls> and <sep>"):
        frame([1], plain, 8)
