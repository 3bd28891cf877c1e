"""Beam search against exhaustive search and a plain one, and every demand that can be made of it."""

import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from clearhead.errors import DecodingError
from clearhead.generate.beam import Found, beam
from clearhead.generate.decode import Prompts
from clearhead.generate.decoding import STOPPINGS, Decoding
from clearhead.generate.write import search
from tests.contracts.plain_decoding import plain_beam
from tests.unit.small import small_model, tokens
from tests.unit.toy_step import EOS, Toy, ragged

WORDS = 5
PENALTIES = [-1.0, 0.0, 0.6, 1.0, 2.0]
seeds = st.integers(0, 1000)
# Words without `eos`, which stands for the end.
phrases = st.lists(st.integers(1, WORDS - 1), min_size=1, max_size=3).map(tuple)


def find(toy: Toy, decoding: Decoding, prompt: list[int], longest: int) -> Found:
    (found,) = beam(toy, toy.start(1), ragged([prompt], longest), decoding=decoding)
    return found


def texts(found: Found) -> list[list[int]]:
    return [one.tokens for one in found.best]


def every_answer(toy: Toy, prompt: list[int], longest: int, penalty: float) -> Iterator[tuple[float, list[int]]]:
    """All there is to write, with its score: texts that end with `eos`, and those that are cut off."""
    for length in range(1, longest + 1):
        for text in itertools.product(range(len(toy.logits_WV[0])), repeat=length):
            if EOS in text[:-1] or (text[-1] != EOS and length < longest):
                continue
            scores = [float(toy.read([[*prompt, *text[:i]]])[0, token]) for i, token in enumerate(text)]
            yield sum(scores) / length**penalty, [token for token in text if token != EOS]


@pytest.mark.parametrize("penalty", PENALTIES)
@pytest.mark.parametrize("seed", range(3))
def test_enough_beams_search_exhaustively(seed: int, penalty: float) -> None:
    toy, longest = Toy(3, seed, sharp=2.0), 4
    expected = sorted(every_answer(toy, [1], longest, penalty), reverse=True)
    decoding = Decoding(beams=60, best=10, length_penalty=penalty, stopping="sure")
    found = find(toy, decoding, [1], longest)
    assert texts(found) == [text for _, text in expected[:10]]
    assert found.ranks == pytest.approx([score for score, _ in expected[:10]], abs=1e-5)


@given(seeds, st.integers(1, 4), st.sampled_from(PENALTIES), st.sampled_from(sorted(STOPPINGS)))
def test_the_whole_list_is_that_of_a_plain_search(seed: int, beams: int, penalty: float, stopping: str) -> None:
    toy = Toy(WORDS, seed)
    rows, longest = [[1, 2], [3], [4, 4, 4]], [6, 3, 5]
    decoding = Decoding(beams=beams, best=beams, length_penalty=penalty, stopping=stopping)
    answers = beam(toy, toy.start(3), ragged(rows, longest), decoding=decoding)
    for row, limit, found in zip(rows, longest, answers, strict=True):
        expected = plain_beam(
            toy.read, row, limit, EOS, beams=beams, length_penalty=penalty, stopping=stopping
        )  # fmt: skip
        assert texts(found) == [answer.tokens for _, answer in expected]
        assert found.ranks == pytest.approx([score for score, _ in expected], abs=1e-5)
        for one, (_, answer) in zip(found.best, expected, strict=True):
            assert one.scores == pytest.approx(answer.scores, abs=1e-5)


def test_a_search_that_wants_to_be_sure_goes_on_where_another_stops() -> None:
    """With a large length penalty longer answers may yet win; both kinds stop where a plain search does."""
    answers: dict[str, list[list[list[int]]]] = {"likely": [], "sure": []}
    for (stopping, found), seed in itertools.product(answers.items(), range(30)):
        toy = Toy(3, seed)
        decoding = Decoding(beams=2, best=2, length_penalty=2.0, stopping=stopping)
        found.append(texts(find(toy, decoding, [1], 8)))
        expected = plain_beam(toy.read, [1], 8, EOS, beams=2, length_penalty=2.0, stopping=stopping)
        assert found[-1] == [answer.tokens for _, answer in expected]
    assert answers["likely"] != answers["sure"]


@given(seeds)
def test_many_beams_are_never_worse_than_greedy(seed: int) -> None:
    toy = Toy(WORDS, seed)
    (greedy,) = search(toy, toy.start(1), ragged([[2]], 5), Decoding())
    found = find(toy, Decoding(beams=300, length_penalty=0, stopping="sure"), [2], 5)
    assert found.ranks[0] >= greedy.best[0].score - 1e-5


@given(seeds, st.integers(2, 6), st.sampled_from([1, 2]), st.sampled_from([0.0, 1.0, 50.0]))
def test_the_best_are_sorted_and_distinct(seed: int, pairs: int, groups: int, diversity: float) -> None:
    decoding = Decoding(beams=2 * pairs, best=2 * pairs, groups=groups, diversity=diversity)
    found = find(Toy(WORDS, seed), decoding, [1], 5)
    ended = [(one.tokens, one.ended) for one in found.best]
    assert found.ranks == sorted(found.ranks, reverse=True)
    assert len(ended) == len(found.ranks) > 0
    assert all(ended.count(one) == 1 for one in ended)


def holds(text: list[int], phrase: tuple[int, ...]) -> bool:
    return any(tuple(text[i : i + len(phrase)]) == phrase for i in range(len(text)))


@given(seeds, st.lists(phrases, min_size=1, max_size=3), st.sampled_from([1, 2, 5]), st.integers(0, 2))
def test_what_is_required_appears(seed: int, required: list[tuple[int, ...]], beams: int, spare: int) -> None:
    """With no more room than the phrases need, and with some; also where they overlap one another or themselves."""
    room = shortest(required)
    decoding = Decoding(beams=beams, required=tuple(required))
    found = find(Toy(WORDS, seed), decoding, [1, 2], room + spare)
    assert all(holds(found.best[0].tokens, phrase) for phrase in required)
    if room > 1:
        with pytest.raises(DecodingError, match="nothing that is allowed"):
            find(Toy(WORDS, seed), decoding, [1, 2], room - 1)


def shortest(required: list[tuple[int, ...]]) -> int:
    """The length of the shortest text that holds all of them, by trying all orders and overlaps."""
    best = 99
    for order in itertools.permutations(required):
        text: tuple[int, ...] = ()
        for phrase in order:
            if not holds(list(text), phrase):
                overlap = next(n for n in range(len(phrase), -1, -1) if text[len(text) - n :] == phrase[:n])
                text += phrase[overlap:]
        best = min(best, len(text))
    return best


@pytest.mark.parametrize("beams", [1, 3])
@pytest.mark.parametrize("required", [((1, 1, 2),), ((1, 1, 2), (1, 2, 1)), ((1, 2, 1, 3),), ((4,), (4, 4))])
def test_phrases_that_repeat_their_own_beginning(required: tuple[tuple[int, ...], ...], beams: int) -> None:
    for seed in range(10):
        found = find(Toy(WORDS, seed), Decoding(beams=beams, required=required), [1], 12)
        assert all(holds(found.best[0].tokens, phrase) for phrase in required)


@pytest.mark.parametrize(
    ("impossible", "message"),
    [
        ({"required": ((EOS, 1),)}, "nothing that is allowed"),
        ({"required": ((1, 1),), "no_repeat": 1}, "nothing that is allowed"),
        ({"required": ((3,),), "forbidden": ((3,),)}, "nothing that is allowed"),
        ({"forbidden": tuple((token,) for token in range(WORDS)), "beams": 2}, "nothing that is allowed"),
        ({"required": ((WORDS,),)}, "of 5 tokens has no id 5"),
        ({"required": ((1, -1),)}, "has no id -1"),
        ({"required": ((),)}, "at least one token"),
        ({"coverage_penalty": 1.0}, "no source to cover"),
    ],
)
def test_the_impossible_is_refused(impossible: dict[str, Any], message: str) -> None:
    with pytest.raises(DecodingError, match=message):
        find(Toy(WORDS, 1), Decoding(**impossible), [1], 6)


@given(seeds, st.lists(phrases, min_size=1, max_size=4), st.integers(1, 3))
def test_what_is_forbidden_never_appears(seed: int, forbidden: list[tuple[int, ...]], beams: int) -> None:
    decoding = Decoding(beams=beams, best=beams, forbidden=tuple(forbidden))
    (found,) = search(Toy(WORDS, seed), Toy(WORDS, seed).start(1), ragged([[1]], 6), decoding)
    for text, phrase in itertools.product(texts(found), forbidden):
        assert not holds([1, *text] if len(phrase) > 1 else text, phrase)


@given(seeds, st.integers(1, 3), st.integers(1, 3))
def test_nothing_is_repeated(seed: int, size: int, beams: int) -> None:
    toy = Toy(8, seed)
    (found,) = search(toy, toy.start(1), ragged([[1, 2]], 7), Decoding(beams=beams, best=beams, no_repeat=size))
    for text in texts(found):
        spans = list(zip(*([1, 2, *text][i:] for i in range(size)), strict=False))
        assert len(spans) == len(set(spans))


@given(seeds, st.integers(0, 6), st.integers(1, 6), st.integers(1, 3))
def test_lengths_are_kept(seed: int, shortest_allowed: int, longest: int, beams: int) -> None:
    toy = Toy(3, seed, sharp=2.0)
    decoding = Decoding(beams=beams, best=beams, shortest=shortest_allowed)
    (found,) = search(toy, toy.start(1), ragged([[1]], longest), decoding)
    for one in found.best:
        assert min(shortest_allowed, longest) <= len(one.tokens) <= longest
        assert len(one.scores) <= longest
        assert one.ended or len(one.tokens) == longest


@given(seeds)
def test_groups_that_need_not_differ_are_alike(seed: int) -> None:
    toy = Toy(8, seed)
    decoding = Decoding(beams=6, best=6, groups=3, diversity=0.0)
    alone = find(toy, Decoding(beams=2, best=2), [1], 4)
    assert texts(find(toy, decoding, [1], 4))[0] == texts(alone)[0]


@given(seeds)
def test_groups_that_must_differ_begin_differently(seed: int) -> None:
    found = find(Toy(9, seed), Decoding(beams=3, best=3, groups=3, diversity=1e6), [1], 4)
    first = [node.token for node in found.steps[0] if node.token != EOS]
    assert len(set(first)) == len(first) == 3


@given(seeds, st.sampled_from([1.0, 2.0, 3.0]))
def test_patience_waits_for_more_hypotheses(seed: int, patience: float) -> None:
    """With `full` stopping the search ends at the step in which patience · beams of them are finished."""
    toy, decoding = Toy(4, seed), Decoding(beams=3, best=3, stopping="full", patience=patience)
    found = find(toy, decoding, [1], 12)
    ended = list(itertools.accumulate(sum(node.token == EOS for node in step) for step in found.steps))
    enough = [count >= 3 * patience for count in ended]
    assert not any(enough[:-1])
    assert enough[-1] or len(found.steps) == 12


def test_less_patience_ends_sooner() -> None:
    steps = [len(find(Toy(4, 5), Decoding(beams=4, stopping="full", patience=p), [1], 20).steps) for p in (0.25, 1, 4)]
    assert steps == sorted(steps)
    assert steps[0] < steps[-1]


@given(seeds, st.sampled_from([{}, {"groups": 2, "diversity": 1.0}, {"required": ((2, 3),)}, {"no_repeat": 2}]))
def test_the_record_holds_every_answer(seed: int, demands: dict[str, Any]) -> None:
    toy = Toy(WORDS, seed)
    found = find(toy, Decoding(beams=4, best=4, **demands), [1, 3], 6)
    for place, step in enumerate(found.steps):
        for node in step:
            assert len(node.path()) == place + 1
            assert node.parent is not None
            assert place == 0 or any(node.parent is one for one in found.steps[place - 1])
            assert node.total == pytest.approx(sum(one.score for one in node.path()), abs=1e-4)
            assert node.score == pytest.approx(float(toy.read([[1, 3, *node.tokens[:-1]]])[0, node.token]), abs=1e-4)
    for answer, rank in zip(found.best, found.ranks, strict=True):
        whole = [*answer.tokens, EOS] if answer.ended else answer.tokens
        (end,) = [node for step in found.steps for node in step if node.tokens == whole][:1]
        assert [node.score for node in end.path()] == answer.scores
        assert end.total / len(whole) == pytest.approx(rank, abs=1e-5)


@pytest.mark.parametrize("prompt", [1, 3])
def test_the_coverage_penalty_is_that_of_the_formula(prompt: int) -> None:
    """score = log p / length + β · Σ_i log min(Σ_j a_ij, 1), the looks of the whole text measured anew."""
    model, weights = small_model("encoder_decoder"), []
    source_BM, count_B = tokens(2, 6, seed=5), torch.tensor([6, 3])
    name = "decoder.1.cross"

    def see(weights_BHLM: Tensor) -> Tensor:
        weights.append(weights_BHLM.mean(1))
        return weights_BHLM

    model.get_submodule(name).see_weights.hook = see
    state = model.start(source_BM, count_B)
    prompts = ragged([[1] * prompt, [2]], 5, eos=4)
    decoding = Decoding(beams=4, best=4, coverage_penalty=0.7)
    answers = beam(model, state, prompts, decoding=decoding, attention=lambda: weights[-1])
    without = beam(model, state, prompts, decoding=replace(decoding, coverage_penalty=0.0))
    assert [one.ranks for one in answers] != [one.ranks for one in without]
    for row, (found, written) in enumerate(zip(answers, prompts.lists(), strict=True)):
        for answer, rank in zip(found.best, found.ranks, strict=True):
            read = torch.tensor([[*written, *answer.tokens][: len(written) + len(answer.scores) - 1]])
            source = source_BM[row : row + 1, : count_B[row]]
            with torch.no_grad():
                model(source, read)
            covered = weights[-1][0].sum(0).clamp(max=1).log().sum()
            assert rank == pytest.approx(answer.score / len(answer.scores) + 0.7 * float(covered), abs=1e-4)


@pytest.mark.parametrize("beams", [1, 2])
def test_weights_that_are_no_numbers_are_refused(beams: int) -> None:
    model = small_model("decoder_only")
    with torch.no_grad():
        model.output.linear.weight[3, 0] = torch.nan
    prompts = Prompts(torch.tensor([[1]]), [4], None)
    with pytest.raises(DecodingError, match="not numbers"):
        search(model, model.start(), prompts, Decoding(beams=beams))
