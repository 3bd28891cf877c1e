"""Translators at work: batches, n best, constraints, ensembles, streams, against the model read without a cache."""

import math
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch

from clearhead.data.phrasebook.corpus import words
from clearhead.data.tokenizers import Tokenizer
from clearhead.errors import CheckpointError, ConfigError, DataError, DecodingError
from clearhead.tasks.answers import Answer
from clearhead.tasks.directory import ModelParts
from clearhead.tasks.translator import Translator
from clearhead.tasks.word_alignment import AlignmentHead, chosen_head, word_links
from tests.unit.tiny_tasks import copy_pairs, random_translator

TEXTS = ["a b c", "d", "f e d c b a", "a a . b", "c f"]
BEAM: dict[str, Any] = {"beams": 3, "best": 3, "longest": 6}


@pytest.fixture(scope="module")
def translator() -> Translator:
    return random_translator()


@pytest.fixture(scope="module")
def other() -> Translator:
    return random_translator(seed=1)


def ids_of(translator: Translator, names: tuple[str, ...]) -> list[int]:
    return [translator.tokenizer.id_of(name) for name in names]


@torch.no_grad()
def by_hand(translator: Translator, text: str, target: list[int]) -> torch.Tensor:
    """Log-probabilities (L, V) of what follows each of the target's tokens, and what stands before the first."""
    config = translator.config
    source_BM = torch.tensor([[*translator.tokenizer.encode(text), config.eos]])
    return translator.model(source_BM, torch.tensor([[config.bos, *target]]))[0].log_softmax(-1)


def scores_by_hand(translator: Translator, text: str, target: list[int], prefix: int = 0) -> list[float]:
    score_LV = by_hand(translator, text, target[:-1])
    return [float(score_LV[place, token]) for place, token in enumerate(target)][prefix:]


def same(ours: list[list[Answer]], theirs: list[list[Answer]]) -> bool:
    flat = [(a, b) for x, y in zip(ours, theirs, strict=True) for a, b in zip(x, y, strict=True)]
    return all(a.text == b.text and a.tokens == b.tokens and math.isclose(a.score, b.score, rel_tol=1e-4)
               for a, b in flat)  # fmt: skip


@pytest.mark.parametrize(
    "options",
    [{}, BEAM, {**BEAM, "coverage_penalty": 0.3}, {"temperature": 1.0, "best": 2, "seed": 3}, {"guess": 2},
     {"contrast": 0.5, "top_k": 3}, {**BEAM, "required": "B"}],
    ids=["greedy", "beam", "coverage", "sampling", "guess", "contrast", "required"],
)  # fmt: skip
def test_a_batch_answers_as_each_text_alone(options: dict[str, Any], translator: Translator) -> None:
    options = {"longest": 6, **options}
    prefixes = ["", "A", "", "B C", ""]
    together = translator.answers(TEXTS, prefix=prefixes, **options)
    alone = [
        translator.answers([text], prefix=prefix, **options)[0] for text, prefix in zip(TEXTS, prefixes, strict=True)
    ]
    assert same(together, alone)
    assert translator.translate(TEXTS[0], **options) == together[0][0].text


def test_other_projects_names_ask_for_the_same(translator: Translator) -> None:
    theirs = {"num_beams": 3, "num_return_sequences": 3, "max_new_tokens": 6}
    assert translator.answers(TEXTS, **theirs) == translator.answers(TEXTS, **BEAM)
    with pytest.raises(DecodingError, match=r"'num_beans'.*'num_beams'"):
        translator.translate("a", num_beans=3)


def test_the_best_come_first_with_the_scores_that_they_have(translator: Translator) -> None:
    for text, answers in zip(TEXTS, translator.answers(TEXTS, split=False, length_penalty=0.7, **BEAM), strict=True):
        assert len({answer.tokens for answer in answers}) == 3
        assert [answer.score for answer in answers] == sorted((answer.score for answer in answers), reverse=True)
        for answer in answers:
            expected = scores_by_hand(translator, text, ids_of(translator, answer.tokens))
            assert answer.scores == pytest.approx(expected, abs=1e-4)
            assert answer.score == pytest.approx(sum(expected) / len(expected) ** 0.7, abs=1e-4)


def test_what_the_model_directory_says_is_usual(translator: Translator) -> None:
    settings = replace(translator.parts.settings, generation={"num_beams": 3, "longest": 6, "length_penalty": 0.2})
    usual = Translator(replace(translator.parts, settings=settings))
    assert usual.translate(TEXTS) == translator.translate(TEXTS, beams=3, longest=6, length_penalty=0.2)
    assert usual.translate(TEXTS, num_beams=1) == translator.translate(TEXTS, longest=6)
    assert len(usual.answers(["a b c d e f"], min_new_tokens=6)[0][0].tokens) == 6


def test_a_paragraph_is_its_sentences_with_their_own_white_space(translator: Translator) -> None:
    text = "  a b c ! D e !\n\n\tF f .\u2028c "
    said = [translator.translate(part, longest=5, split=False) for part in ("a b c !", "D e !", "F f .", "c")]
    expected = f"  {said[0]} {said[1]}\n\n\t{said[2]}\u2028{said[3]} "
    assert translator.translate([text, "a"], longest=5)[0] == expected
    assert "".join(translator.stream(text, longest=5)) == expected
    whole = translator.translate(text, longest=5, split=False)
    assert whole == f"  {translator.translate(text.strip(), longest=5, split=False)} "
    assert translator.translate(["", " \n ", "\u3000"]) == ["", " \n ", "\u3000"]
    assert [*translator.stream(" \n ")] == [" \n "]


def test_the_best_of_a_paragraph_are_the_best_of_all_combinations(translator: Translator) -> None:
    parts = [translator.answers([part], split=False, **BEAM)[0] for part in ("a b c !", "D e !")]
    ways = sorted(product(*parts), key=lambda way: -sum(one.score for one in way))[:3]
    answers = translator.answers(["a b c ! D e !"], **BEAM)[0]
    assert [answer.text for answer in answers] == [f"{first.text} {second.text}" for first, second in ways]
    assert [answer.score for answer in answers] == pytest.approx([a.score + b.score for a, b in ways])
    assert answers[0].tokens == ways[0][0].tokens + ways[0][1].tokens


@pytest.mark.parametrize("options", [{}, {"beams": 3}, {"temperature": 1.0}, {"prefix": "A B"}])
def test_a_stream_joined_is_the_translation(options: dict[str, Any], translator: Translator) -> None:
    for text in TEXTS:
        pieces = [*translator.stream(text, longest=7, **options)]
        assert "".join(pieces) == translator.translate(text, longest=7, **options)
        assert "" not in pieces


def test_a_stream_comes_in_pieces(translator: Translator) -> None:
    assert max(len([*translator.stream(text, longest=7, shortest=7)]) for text in TEXTS) > 3


def test_a_prefix_is_forced_on_the_first_sentence_alone(translator: Translator) -> None:
    prefix = ids_of(translator, ("C", "A"))
    expected: list[int] = []
    while len(expected) < 6 and (not expected or expected[-1] != translator.config.eos):
        expected.append(int(by_hand(translator, "a b c", prefix + expected)[-1].argmax()))
    ((answer,),) = translator.answers(["a b c"], prefix="C A ", longest=6)
    assert ids_of(translator, answer.tokens) == expected
    assert answer.text == translator.tokenizer.decode(prefix + expected)
    assert answer.text.startswith("C A")
    second = translator.translate("D e !", longest=6)
    assert translator.translate("a b c ! D e !", prefix="C A", longest=6).endswith(f" {second}")
    with pytest.raises(DecodingError, match="2 texts, 1 prefixes"):
        translator.translate(["a", "b"], prefix=["A"])


def test_words_that_must_and_must_not_appear(translator: Translator) -> None:
    for answers in translator.answers(TEXTS, required=["D", "E F"], **BEAM):
        assert all("D" in answer.text.split() and "E F" in answer.text for answer in answers)
    usual = translator.translate(TEXTS, longest=6)
    common = max("abcdefABCDEF", key=lambda letter: sum(letter in text.split() for text in usual))
    assert any(common in text.split() for text in usual)
    assert all(common not in text.split() for text in translator.translate(TEXTS, forbidden=common, longest=6))
    assert all(common not in one.text.split() for best in translator.answers(TEXTS, forbidden=[common], **BEAM)
               for one in best)  # fmt: skip


@pytest.mark.parametrize(
    "wrong", [{"required": "A B C", "longest": 2}, {"required": "Zoo"}, {"prefix": "A", "best": 2}]
)
def test_what_cannot_be_met_is_refused(wrong: dict[str, Any], translator: Translator) -> None:
    with pytest.raises(DecodingError):
        translator.translate("a b c", **wrong)


@pytest.mark.parametrize("prefix", ["", "C A"])
@pytest.mark.parametrize("positions", ["sinusoidal", "t5"])
def test_coverage_counts_what_was_looked_at(prefix: str, positions: str) -> None:
    """By a whole new reading: log p / |Y| + β Σ log min(Σ a, 1), a the mean over heads of the last layer."""
    translator = random_translator(positions=positions, decoder_layers=2)
    answers = translator.answers(["a b c d e", "f"], prefix=prefix, coverage_penalty=0.5, **BEAM)
    for text, best in zip(["a b c d e", "f"], answers, strict=True):
        for answer in best:
            begun = translator.tokenizer.encode(prefix)
            target = begun + ids_of(translator, answer.tokens)
            scores = scores_by_hand(translator, text, target, len(begun))
            seen = attention_by_hand(translator, text, target)
            coverage = 0.5 * seen.sum(0).clamp(max=1).log().sum()
            assert answer.score == pytest.approx(sum(scores) / len(scores) + float(coverage), abs=1e-3)


@torch.no_grad()
def attention_by_hand(translator: Translator, text: str, target: list[int]) -> torch.Tensor:
    from clearhead.tap import watching

    seen: list[torch.Tensor] = []

    def keep(weights_BHLM: torch.Tensor) -> torch.Tensor:
        seen.append(weights_BHLM)
        return weights_BHLM

    with watching(translator.model, {"decoder.1.cross.weights": keep}):
        by_hand(translator, text, target[:-1])
    return seen[0][0].mean(0)


def test_given_targets_are_scored(translator: Translator) -> None:
    sources, targets = ["a b", "c d e f", "a"], ["A B C", "", "D"]
    for source, target, scored in zip(sources, targets, translator.score(sources, targets), strict=True):
        ids = [*translator.tokenizer.encode(target), translator.config.eos]
        assert scored.scores == pytest.approx(scores_by_hand(translator, source, ids), abs=1e-4)
        assert scored.tokens == (*target.split(), "<eos>")
        assert scored.score == pytest.approx(sum(scored.scores))
        assert scored.mean == pytest.approx(scored.score / len(ids))
        assert translator.score(source, target).scores == pytest.approx(scored.scores, abs=1e-5)
    with pytest.raises(DataError, match="2 and 1"):
        translator.score(["a", "b"], ["A"])
    with pytest.raises(DataError, match="not a text and a list"):
        translator.score("a", ["A"])  # type: ignore[call-overload]


def test_an_ensemble_decides_by_the_mean_of_probabilities(translator: Translator, other: Translator) -> None:
    both = Translator.ensemble([translator, other])
    ids = [*translator.tokenizer.encode("A B"), translator.config.eos]
    each = torch.tensor([scores_by_hand(one, "a b", ids) for one in (translator, other)])
    expected = each.exp().mean(0).log().tolist()
    assert both.score("a b", "A B").scores == pytest.approx(expected, abs=1e-4)
    answers = both.answers(TEXTS, coverage_penalty=0.1, **BEAM)
    assert same(answers, [both.answers([text], coverage_penalty=0.1, **BEAM)[0] for text in TEXTS])
    assert "".join(both.stream("a b c", longest=6)) == both.translate("a b c", longest=6)
    assert both.translate(TEXTS, longest=6) != translator.translate(TEXTS, longest=6)


def test_an_ensemble_of_one_model_twice_is_that_model(translator: Translator) -> None:
    twice = Translator.ensemble([translator, translator])
    assert same(twice.answers(TEXTS, **BEAM), translator.answers(TEXTS, **BEAM))
    pairs = copy_pairs(6)
    ours, theirs = twice.evaluate(pairs), translator.evaluate(pairs)
    assert ours["bleu"] == theirs["bleu"]
    assert ours["loss"] == pytest.approx(float(theirs["loss"]), rel=1e-4)


def test_what_is_no_ensemble_is_refused(translator: Translator, tmp_path: Path) -> None:
    tokenizer = Tokenizer.train("word", ["x y z"], 20)
    stranger = Translator(ModelParts(translator.model, tokenizer, translator.parts.settings))
    with pytest.raises(ConfigError, match="share a vocabulary"):
        Translator.ensemble([translator, stranger])
    with pytest.raises(ConfigError, match="at least one"):
        Translator.ensemble([])
    with pytest.raises(CheckpointError, match="at least one"):
        Translator.from_pretrained([])
    twice = Translator.ensemble([translator, translator])
    with pytest.raises(ConfigError, match="ensemble of 2"):
        twice.save_pretrained(tmp_path / "both")
    with pytest.raises(DecodingError, match="contrastive"):
        twice.translate("a", contrast=0.5, top_k=3)


def test_a_compiled_step_says_the_same(translator: Translator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    translator.save_pretrained(tmp_path / "first")
    steps: list[Any] = []

    def compile_plainly(step: Any) -> Any:
        steps.append(torch_compile(step, backend="eager"))
        return steps[-1]

    torch_compile = torch.compile
    monkeypatch.setattr(torch, "compile", compile_plainly)
    compiled = Translator.from_pretrained(tmp_path / "first", compiled=True)
    assert compiled.model.step is steps[0]
    assert compiled.translate(TEXTS[0], longest=4) == translator.translate(TEXTS[0], longest=4)


def test_eight_bits_answer_alike_alone_and_in_a_batch(
    translator: Translator, other: Translator, tmp_path: Path
) -> None:
    for name, one in (("first", translator), ("second", other)):
        one.save_pretrained(tmp_path / name)
    small = Translator.from_pretrained(tmp_path / "first", precision="int8", threads=1)
    assert torch.get_num_threads() == 1
    assert same(small.answers(TEXTS, **BEAM), [small.answers([text], **BEAM)[0] for text in TEXTS])
    pairs = copy_pairs(6)
    scored = small.score([source for source, _ in pairs], [target for _, target in pairs])
    loss = -sum(one.score for one in scored) / sum(len(one.scores) for one in scored)
    assert float(small.evaluate(pairs)["loss"]) == pytest.approx(loss, rel=0.05)
    assert loss != pytest.approx(float(translator.evaluate(pairs)["loss"]), rel=1e-4)
    with pytest.raises(ConfigError, match="int8 is for use"):
        small.save_pretrained(tmp_path / "small")
    with pytest.raises(ConfigError, match="unknown precision 'int4'"):
        Translator.from_pretrained(tmp_path / "first", precision="int4")
    with pytest.raises(ConfigError, match="threads=0"):
        Translator.from_pretrained(tmp_path / "first", threads=0)
    both = Translator.from_pretrained([tmp_path / "first", tmp_path / "second"])
    assert both.translate(TEXTS) == Translator.ensemble([translator, other]).translate(TEXTS)


def test_a_sentence_beyond_the_positions_is_refused() -> None:
    translator = random_translator(positions="learned", length=6)
    assert len(translator.answers(["a b c"], shortest=99)[0][0].tokens) == 6
    assert len(translator.answers(["a b c"], prefix="A B", shortest=99)[0][0].tokens) == 4
    with pytest.raises(DecodingError, match=r"has 7 tokens.*positions for 6"):
        translator.translate(["a", "a b c d e f"])
    with pytest.raises(DecodingError, match="positions for 6"):
        translator.score("a b c d e f", "A")
    with pytest.raises(DecodingError, match="prefix has 6 tokens"):
        translator.translate("a", prefix="A B C D E F")


def test_alignments_are_those_of_the_sentences(translator: Translator) -> None:
    answers = translator.answers(["a b c ! D e !", " "], alignments=True, **BEAM)
    first, second = (translator.answers([part], alignments=True, **BEAM)[0][0] for part in ("a b c !", "D e !"))
    assert set(first.links or ()) == word_links(translator.parts, "a b c !", first.text)
    shifted = [(source + 4, target + len(words(first.text))) for source, target in second.links or ()]
    assert answers[0][0].links == (*(first.links or ()), *shifted)
    assert answers[1][0].links == ()
    assert translator.answers(["a"], longest=2)[0][0].links is None


def test_the_head_that_aligns_is_named_by_the_model_directory(translator: Translator) -> None:
    settings = translator.parts.settings
    named = replace(settings, generation={**settings.generation, "alignment_head": [0, 1, False]})
    assert chosen_head(settings) is None
    assert chosen_head(named) == AlignmentHead(0, 1, False)
    aligned = Translator(replace(translator.parts, settings=named))
    ((answer,),) = aligned.answers(["a b c"], alignments=True, longest=6)
    assert set(answer.links or ()) == word_links(translator.parts, "a b c", answer.text, AlignmentHead(0, 1, False))
    for odd in ([1, 0, True], [0, 2, True], [0, 0], "first"):
        with pytest.raises(CheckpointError, match="alignment_head is"):
            chosen_head(replace(settings, generation={"alignment_head": odd}))
