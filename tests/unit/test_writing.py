"""Language models at work: streams, stop words, kept prompts, sampling and scores, against plain readings."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from clearhead.errors import ConfigError, DecodingError
from clearhead.tasks.language_model import LanguageModel
from tests.unit.tiny_tasks import random_writer

PROMPTS = ["the c", "t", "sat on th", "mat.\nthe cat "]
WAYS: dict[str, dict[str, Any]] = {
    "greedy": {},
    "sampling": {"temperature": 1.0, "seed": 5},
    "several": {"temperature": 1.0, "seed": 5, "best": 3},
    "beam": {"beams": 3, "best": 2},
    "required": {"beams": 3, "required": "cat"},
    "penalties": {"no_repeat": 2, "repetition_penalty": 1.5, "shortest": 3},
    "contrast": {"contrast": 0.6, "top_k": 4},
    "guess": {"guess": 3},
    "forbidden": {"forbidden": ["s"]},
}


@pytest.fixture(scope="module")
def writer() -> LanguageModel:
    """With a context of 64, within which the prompts here go on."""
    return random_writer(length=64)


@pytest.fixture(scope="module")
def brief() -> LanguageModel:
    """With a context of 16, which most texts here outgrow."""
    return random_writer(length=16)


@pytest.mark.parametrize("way", sorted(WAYS))
def test_a_batch_goes_on_as_each_prompt_alone(way: str, writer: LanguageModel) -> None:
    together = writer.answers(PROMPTS, longest=9, **WAYS[way])
    alone = [writer.answers([prompt], longest=9, **WAYS[way])[0] for prompt in PROMPTS]
    texts = [[answer.text for answer in answers] for answers in together]
    assert texts == [[answer.text for answer in answers] for answers in alone]
    assert [answer.score for answers in together for answer in answers] == pytest.approx(
        [answer.score for answers in alone for answer in answers], abs=1e-4
    )
    assert writer.generate(PROMPTS, longest=9, **WAYS[way]) == [row[0] for row in texts]


@pytest.mark.parametrize("way", ["sampling", "several", "greedy", "penalties", "guess"])
def test_beyond_the_context_a_batch_goes_on_as_each_alone(way: str, brief: LanguageModel) -> None:
    options = {"shortest": 30, **WAYS[way], "longest": 30}
    together = brief.answers([*PROMPTS, PROMPTS[3] * 3], **options)
    assert together[:2] == [brief.answers([prompt], **options)[0] for prompt in PROMPTS[:2]]
    assert together[4] == brief.answers([PROMPTS[3] * 3], **options)[0]


def test_what_is_drawn_beyond_the_context_does_not_repeat_its_chances(brief: LanguageModel) -> None:
    """With all tokens alike likely, the tokens are the chances themselves."""
    options = {"temperature": 1e6, "longest": 45, "shortest": 45}
    ((answer,),) = brief.answers(["t"], **options)
    stretches = {answer.tokens[16 + 9 * turn : 25 + 9 * turn] for turn in range(3)}
    assert len({*stretches, answer.tokens[:9]}) == 4


def test_each_of_several_is_drawn_by_a_seed_of_its_own(writer: LanguageModel, brief: LanguageModel) -> None:
    for model in (writer, brief):
        answers = model.answers(["the "], temperature=1.0, best=4, seed=2, longest=20, shortest=20)[0]
        assert len({answer.tokens for answer in answers}) == 4
        scores = [answer.score for answer in answers]
        assert scores == sorted(scores, reverse=True)
        assert scores == pytest.approx([sum(answer.scores) for answer in answers])


def test_guesses_change_nothing(writer: LanguageModel) -> None:
    assert writer.generate(PROMPTS, longest=20, guess=4) == writer.generate(PROMPTS, longest=20)


@pytest.mark.parametrize("way", sorted(WAYS))
def test_a_stream_joined_is_the_continuation(way: str, writer: LanguageModel) -> None:
    for prompt in PROMPTS:
        expected = writer.generate(prompt, longest=12, **WAYS[way])
        assert "".join(writer.stream(prompt, longest=12, **WAYS[way])) == expected


def test_a_stream_comes_as_it_is_written(brief: LanguageModel, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = brief.generate("the", longest=40, shortest=40)
    steps = counted(brief, monkeypatch)
    stream = brief.stream("the", longest=40, shortest=40)
    first = next(stream)
    assert len(steps) <= len(first) + 1
    assert first + "".join(stream) == expected


def counted(model: LanguageModel, monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """The shapes of what the model is given to read from now on."""
    read: list[tuple[int, ...]] = []
    step = model.model.step

    def counting(token_BT: Tensor, state: Any, **rest: Any) -> Any:
        read.append(tuple(token_BT.shape))
        return step(token_BT, state, **rest)

    monkeypatch.setattr(model.model, "step", counting)
    return read


@pytest.mark.parametrize("way", ["greedy", "sampling", "guess", "contrast", "beam"])
@pytest.mark.parametrize("length", [16, 64])
def test_a_stop_word_ends_the_text_before_it(way: str, length: int) -> None:
    model = random_writer(length=length)
    options = {"longest": 12 if way == "beam" else 30, "shortest": 12, **WAYS[way]}
    for prompt in ("t", "at"):
        whole = model.answers([prompt], **options)[0][0]
        for stop in (whole.text[3:5], whole.text[6:9]):
            answer = model.answers([prompt], stop=["Ω", stop], **options)[0][0]
            assert answer.text == whole.text.partition(stop)[0]
            assert "".join(model.stream(prompt, stop=stop, **options)) == answer.text
            if way == "greedy":
                assert len(answer.tokens) < len(whole.tokens)


@pytest.mark.parametrize("way", sorted(WAYS))
def test_a_prompt_that_is_kept_goes_on_as_if_just_read(way: str, writer: LanguageModel) -> None:
    for prompt in PROMPTS:
        kept = writer.remember(prompt)
        expected = writer.answers([prompt], longest=9, **WAYS[way])[0]
        for _ in range(2):
            answers = kept.answers([""], longest=9, **WAYS[way])[0]
            assert [one.text for one in answers] == [one.text for one in expected]
            assert [one.score for one in answers] == pytest.approx([one.score for one in expected], abs=1e-4)
        assert "".join(kept.stream(longest=9, **WAYS[way])) == expected[0].text
        more = ["", " sat", "s on the mat"]
        whole = [prompt + text for text in more]
        assert kept.generate(more, longest=9, **WAYS[way]) == writer.generate(whole, longest=9, **WAYS[way])


def test_a_prompt_that_is_kept_is_not_read_again(writer: LanguageModel, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = writer.remember("the cat sat")
    first, read = kept.generate(longest=4, shortest=4), counted(writer, monkeypatch)
    assert kept.generate(longest=4, shortest=4) == first
    assert read == [(1, 1)] * 4
    read.clear()
    kept.generate(["", " on"], longest=1)
    assert read == [(2, 4)]


def test_a_kept_prompt_grows_beyond_the_context_like_any_other(brief: LanguageModel) -> None:
    expected = brief.generate("the cat sat", longest=30, shortest=30)
    assert brief.remember("the cat sat").generate(longest=30, shortest=30) == expected
    assert brief.remember("").generate(longest=9) == brief.generate("", longest=9)


def test_a_prompt_beyond_the_positions_is_refused_where_it_must_be(brief: LanguageModel) -> None:
    with pytest.raises(DecodingError, match=r"beam search .* 20 tokens .*longest=5 .* 16 positions"):
        brief.generate("t" * 20, beams=2, longest=5)
    with pytest.raises(DecodingError, match=r"prompt has 17 tokens.*positions for 16"):
        brief.remember("t" * 17)


def test_an_empty_prompt_needs_a_token_to_begin_with(writer: LanguageModel) -> None:
    assert writer.generate("", longest=3) == writer.generate(longest=3)
    settings = replace(writer.parts.settings, config=replace(writer.config, bos=None, eos=None))
    blank = LanguageModel(replace(writer.parts, settings=settings))
    assert blank.generate("t", longest=3)
    with pytest.raises(DecodingError, match="give it a prompt"):
        blank.generate(["t", ""], longest=3)
    assert len(blank.score("the").scores) == 2


@pytest.mark.parametrize("wrong", [{"stop": ""}, {"stop": ["a", ""]}, {"stop": [3]}, {"stpo": "a"}, {"longest": 0}])
def test_what_cannot_be_asked_is_refused(wrong: dict[str, Any], writer: LanguageModel) -> None:
    with pytest.raises(DecodingError):
        writer.generate("t", **wrong)


@torch.no_grad()
def scores_by_hand(model: LanguageModel, ids: list[int]) -> list[float]:
    """Each token after what the context holds: the start, then again and again from the second half of it."""
    read, scores, row, context = 0, list[float](), [model.config.eos, *ids], model.config.length
    for place, token in enumerate(ids):
        if place - read == context:
            read = place - context // 2
        score_LV = model.model(torch.tensor([row[read : place + 1]]))[0].log_softmax(-1)
        scores.append(float(score_LV[-1, token]))
    return scores


def test_texts_are_scored_within_the_context_and_beyond(brief: LanguageModel) -> None:
    texts = ["the cat", "", "the cat sat on the mat.\n" * 2, "a" * 16, "a" * 17]
    for text, scored in zip(texts, brief.score(texts), strict=True):
        assert scored.scores == pytest.approx(scores_by_hand(brief, brief.tokenizer.encode(text)), abs=1e-4)
        assert "".join(scored.tokens) == text
        assert brief.score(text).scores == pytest.approx(scored.scores, abs=1e-5)


def test_other_projects_names_and_none_are_taken(writer: LanguageModel) -> None:
    theirs = writer.generate("the", max_new_tokens=8, num_beams=2, temperature=None)
    assert theirs == writer.generate("the", longest=8, beams=2)
    settings = replace(writer.parts.settings, generation={"longest": 5, "do_sample": True, "temperature": 0.9})
    usual = LanguageModel(replace(writer.parts, settings=settings))
    assert usual.generate("the") == writer.generate("the", longest=5, temperature=0.9)
    assert usual.generate("the", num_beams=2) == writer.generate("the", longest=5, beams=2)


def test_eight_bits_answer_alike_alone_and_in_a_batch(writer: LanguageModel, tmp_path: Path) -> None:
    writer.save_pretrained(tmp_path / "model")
    small = LanguageModel.from_pretrained(tmp_path / "model", precision="int8")
    together = small.answers(PROMPTS, longest=9, shortest=9)
    for prompt, (answer,) in zip(PROMPTS, together, strict=True):
        ((alone,),) = small.answers([prompt], longest=9, shortest=9)
        assert (alone.text, alone.tokens) == (answer.text, answer.tokens)
        assert alone.scores == pytest.approx(answer.scores, abs=1e-5)
    text = "the cat sat on the mat"
    ours, theirs = (float(model.evaluate([text])["loss"]) for model in (small, writer))
    assert ours != theirs
    assert ours == pytest.approx(theirs, rel=0.1)
    with pytest.raises(ConfigError, match="int8 is for use"):
        small.save_pretrained(tmp_path / "small")
