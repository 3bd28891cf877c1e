"""A text in any text model, ready to be looked into: against the model itself."""

import math

import pytest
import torch

from clearhead.errors import ConfigError, DataError
from clearhead.tap import named_taps
from clearhead.tasks.directory import ModelParts
from clearhead.tasks.language_model import LanguageModel
from clearhead.tasks.masked_model import MaskedModel
from clearhead.tasks.text_classifier import TextClassifier
from clearhead.tasks.translator import Translator
from clearhead.tasks.viewing import Off, View, Viewer, shown

PAIRS = [("un deux trois", "one two three"), ("deux un", "two one"), ("trois", "three")]
TEXTS = ["a cat sat on a mat and the dog sat on it", "the dog saw a cat"] * 4


@pytest.fixture(scope="module")
def pair() -> Translator:
    return Translator.fit(PAIRS, preset="transformer-tiny", steps=2, vocabulary=300)


@pytest.fixture(scope="module")
def writer() -> LanguageModel:
    return LanguageModel.fit(TEXTS, preset="gpt-tiny", steps=2, vocabulary=300, length=16)


@pytest.fixture(scope="module")
def filler() -> MaskedModel:
    return MaskedModel.fit(TEXTS, preset="bert-tiny", steps=2, vocabulary=300)


@pytest.fixture(scope="module")
def every(pair: Translator, writer: LanguageModel, filler: MaskedModel) -> dict[str, ModelParts]:
    return {"encoder-decoder": pair.parts, "decoder": writer.parts, "encoder": filler.parts}


MODES = ("encoder-decoder", "decoder", "encoder")


def view_of(parts: ModelParts, mode: str, off: Off | None = None) -> View:
    return Viewer(parts).view("deux un" if mode == "encoder-decoder" else "a cat sat", off=off)


def test_a_pair_is_the_translators_own(pair: Translator) -> None:
    view = Viewer(pair.parts).view("deux un")
    assert view.answer == pair.translate("deux un")
    assert list(view.sides) == ["source", "target"]
    assert view.side == "target"
    assert view.sides["target"].ids[0] == pair.config.bos
    assert view.sides["source"].special[-1]
    forced = Viewer(pair.parts).view("deux un", "two one")
    scored = pair.score("deux un", "two one")
    assert forced.answer == "two one"
    assert forced.scores() == pytest.approx(list(scored.scores), abs=1e-5)
    assert tuple(forced.wanted) == (*pair.tokenizer.encode("two one"), pair.config.eos)


def test_a_text_is_read_as_a_prompt_is(writer: LanguageModel) -> None:
    view = Viewer(writer.parts).view("a cat sat")
    ids = writer.tokenizer.encode("a cat sat")
    assert list(view.sides["text"].ids) == ids
    *known, last = view.scores()
    log_LV = writer.model(torch.tensor([ids]))[0].log_softmax(-1).detach()
    assert last is None
    assert known == pytest.approx([float(log_LV[place, id]) for place, id in enumerate(ids[1:])], abs=1e-5)
    assert view.said(-1) == int(view.run()[0, -1].argmax())


def test_an_encoder_reads_both_ways_and_hides_what_is_hidden(filler: MaskedModel) -> None:
    view = Viewer(filler.parts).view("a <mask> sat")
    assert filler.tokenizer.mask in view.sides["text"].ids
    assert view.wanted == [None] * len(view.sides["text"].ids)
    assert view.run().shape[-1] == filler.config.vocabulary


def test_an_encoder_without_words_can_be_looked_at() -> None:
    classifier = TextClassifier.fit([("good", "+"), ("bad", "-")], preset="bert-tiny", steps=1, vocabulary=300)
    view = Viewer(classifier.parts).view("good bad")
    assert view.run().shape[-1] == classifier.config.width
    seen = view.seen("encoder.0.attention.weights")
    rows_BHL = seen["encoder.0.attention.weights"].tensor.sum(-1)
    torch.testing.assert_close(rows_BHL, torch.ones_like(rows_BHL))
    with pytest.raises(ConfigError, match="words"):
        view.lens()


@pytest.mark.parametrize("mode", MODES)
def test_attentions_are_those_of_the_model(every: dict[str, ModelParts], mode: str) -> None:
    viewer = Viewer(every[mode])
    assert viewer.mode == mode
    view = view_of(every[mode], mode)
    places = viewer.attentions()
    assert [f"{place.name}.weights" for place in places] == [
        name for name in named_taps(viewer.model) if name.endswith(".weights")
    ]
    seen = view.seen([f"{place.name}.weights" for place in places])
    for place in places:
        rows, columns = len(view.sides[place.queries].ids), len(view.sides[place.keys].ids)
        weights = seen[f"{place.name}.weights"].tensor
        assert weights.shape == (1, place.heads, rows, columns)
        assert bool((weights.triu(1) == 0).all()) == (place.kind == "masked")
    assert seen.tokens == view.tokens


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("layer", [None, 0, 1])
def test_lens_and_shares_are_of_what_is_left(every: dict[str, ModelParts], mode: str, layer: int | None) -> None:
    """Also without a layer: the last guess is what the model says then, and shares add up to it."""
    stack = "encoder" if mode == "encoder" else "decoder"
    heads = {f"{stack}.0.attention": [1]}
    off = Off(heads, () if layer is None else (f"{stack}.{layer}",))
    view = view_of(every[mode], mode, off)
    logits_LV = view.run()[0]
    guesses_XLV = view.lens().logits_XBLV[:, 0]
    torch.testing.assert_close(guesses_XLV[-1], logits_LV, atol=1e-4, rtol=1e-4)
    if layer is not None:
        torch.testing.assert_close(guesses_XLV[layer + 1], guesses_XLV[layer], atol=1e-4, rtol=1e-4)
    shares = view.shares(1, word=7, against=9)
    assert shares.total == pytest.approx(float(logits_LV[1, 7] - logits_LV[1, 9]), abs=1e-4)
    assert not math.isclose(float(view_of(every[mode], mode).run()[0, 1, 7]), float(logits_LV[1, 7]), abs_tol=1e-6)


def test_what_is_switched_off_changes_the_answer_and_leaves_no_trace(pair: Translator) -> None:
    before = pair.translate("un deux trois", longest=12)
    viewer = Viewer(pair.parts)
    blind = Off({place.name: range(place.heads) for place in viewer.attentions() if place.kind == "cross"})
    answers = {viewer.view(text, off=blind).answer for text, _ in PAIRS}
    assert len(answers) == 1  # whoever cannot see the source says always the same
    assert pair.translate("un deux trois", longest=12) == before


def test_refusals_are_sentences(every: dict[str, ModelParts]) -> None:
    with pytest.raises(DataError, match="one text"):
        Viewer(every["decoder"]).view("a cat", "sat")
    with pytest.raises(DataError, match=r"positions for \d+: shorten"):
        Viewer(every["decoder"]).view("a cat sat on a mat " * every["decoder"].settings.config.length)
    with pytest.raises(DataError, match="none of them is 99"):
        view_of(every["decoder"], "decoder").shares(99)
    with pytest.raises(ConfigError, match="heads 0 to"):
        view_of(every["decoder"], "decoder", Off({"decoder.0.attention": [64]}))


def test_tokens_are_shown_as_what_they_say(writer: LanguageModel) -> None:
    tokenizer = writer.tokenizer
    half = tokenizer.encode("é")[0]
    assert shown(half, tokenizer) == tokenizer.token_of(half)
    assert shown(tokenizer.eos, tokenizer) == "<eos>"
    assert shown(tokenizer.encode("a")[0], tokenizer) == "a"
