"""Filters and narrowings, against the logits processors of transformers, brute force and exact distributions."""

import math
import re
from collections.abc import Callable, Sequence
from fractions import Fraction

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from transformers.generation import logits_process as theirs

from clearhead.errors import DecodingError
from clearhead.generate.decoding import Decoding
from clearhead.generate.filters import (
    Filter,
    Row,
    draw,
    forbid,
    history_filters,
    min_p,
    narrowing,
    no_end_before,
    no_repeat,
    no_stutter,
    repetition_penalty,
    temperature,
    top_k,
    top_p,
    typical,
)

WORDS = 7
EOS = 0
NEVER = -math.inf

# Eighths, so that ties are frequent; some tokens have been refused before.
scores = st.lists(st.one_of(st.integers(-40, 40).map(lambda n: n / 8), st.just(NEVER)), min_size=WORDS, max_size=WORDS)
some_scores = scores.filter(lambda row: max(row) > NEVER)
histories = st.lists(st.integers(0, WORDS - 1), min_size=1, max_size=12)
rows = st.lists(st.tuples(histories, histories, some_scores), min_size=1, max_size=4)
phrases = st.lists(st.lists(st.integers(0, WORDS - 1), min_size=1, max_size=4), min_size=1, max_size=6)

Rows = list[tuple[list[int], list[int], list[float]]]
Theirs = Callable[[int], theirs.LogitsProcessor]  # length of the prompt -> processor


def same_as_theirs(ours: Filter, processor: Theirs, given_rows: Rows) -> None:
    """Rows of different lengths at once are what transformers makes of each alone; nothing given is changed."""
    score_BV = torch.tensor([score for *_, score in given_rows])
    untouched_BV = score_BV.clone()
    found_BV = ours(score_BV, [Row(tuple(prompt), written) for prompt, written, _ in given_rows])
    assert torch.equal(score_BV, untouched_BV)
    for found_V, (prompt, written, score) in zip(found_BV, given_rows, strict=True):
        wanted_BV = processor(len(prompt))(torch.tensor([[*prompt, *written]]), torch.tensor([score]))
        assert torch.equal(found_V, wanted_BV[0])


@given(rows, st.sampled_from([0.5, 1.2, 3.0]))
def test_repetition_penalty(given_rows: Rows, factor: float) -> None:
    same_as_theirs(repetition_penalty(factor), lambda _: theirs.RepetitionPenaltyLogitsProcessor(factor), given_rows)


@given(rows, st.integers(1, 4))
def test_no_repeat(given_rows: Rows, size: int) -> None:
    same_as_theirs(no_repeat(size), lambda _: theirs.NoRepeatNGramLogitsProcessor(size), given_rows)


@given(rows, st.integers(1, 4))
def test_no_repeat_refuses_just_what_would_repeat(given_rows: Rows, size: int) -> None:
    found_BV = no_repeat(size)(torch.zeros(len(given_rows), WORDS), [Row(*row[:2]) for row in given_rows])
    for found_V, (prompt, written, _) in zip(found_BV.tolist(), given_rows, strict=True):
        for token, score in enumerate(found_V):
            text = [*prompt, *written, token]
            spans = [tuple(text[start : start + size]) for start in range(len(text) - size + 1)]
            assert (score == NEVER) == (spans[-1:] != [] and spans[-1] in spans[:-1])


@given(rows, st.integers(1, 4), st.sets(st.integers(0, WORDS - 1)))
def test_no_stutter_refuses_just_what_would_come_directly_after_itself(
    given_rows: Rows, most: int, free: set[int]
) -> None:
    found_BV = no_stutter(most, free)(torch.zeros(len(given_rows), WORDS), [Row(*row[:2]) for row in given_rows])
    for found_V, (prompt, written, _) in zip(found_BV.tolist(), given_rows, strict=True):
        for token, score in enumerate(found_V):
            text = [*prompt, *written, token]
            sizes = [size for size in range(1, most + 1) if text[-size:] == text[-2 * size : -size]]
            assert (score == NEVER) == any(not set(text[-size:]) <= free for size in sizes)


@given(rows, phrases)
def test_forbidden_phrases(given_rows: Rows, forbidden: list[list[int]]) -> None:
    same_as_theirs(forbid(forbidden), lambda _: theirs.NoBadWordsLogitsProcessor(forbidden), given_rows)


def test_eos_can_be_forbidden() -> None:
    found_BV = forbid([[EOS]])(torch.zeros(1, WORDS), [Row([1], [])])
    assert found_BV.tolist() == [[NEVER] + [0.0] * (WORDS - 1)]


@pytest.mark.parametrize("phrase", [(), (3, -1)])
def test_a_phrase_that_is_none(phrase: tuple[int, ...]) -> None:
    with pytest.raises(DecodingError, match=re.escape(f"one or more token ids: {phrase}")):
        forbid([(1,), phrase])


def test_a_forbidden_token_outside_the_vocabulary() -> None:
    with pytest.raises(DecodingError, match=f"of {WORDS} tokens has no id 9"):
        forbid([(9, 1)])(torch.zeros(1, WORDS), [Row([1], [])])


@given(rows, st.integers(0, 14))
def test_no_end_before(given_rows: Rows, count: int) -> None:
    same_as_theirs(
        no_end_before(count, {EOS}),
        lambda length: theirs.MinNewTokensLengthLogitsProcessor(length, count, EOS),
        given_rows,
    )


@pytest.mark.parametrize("ours", [repetition_penalty(2.0), no_repeat(1), no_stutter(1)])
def test_tokens_that_have_no_score_do_no_harm(ours: Filter) -> None:
    score_BV = torch.randn(1, WORDS)
    assert torch.equal(ours(score_BV, [Row([WORDS], [WORDS + 5])]), score_BV)


def test_history_filters_are_those_asked_for_in_their_order() -> None:
    assert history_filters(Decoding(), {EOS}) == []
    assert history_filters(Decoding(shortest=3), set()) == []
    every = Decoding(repetition_penalty=1.5, no_repeat=2, no_stutter=2, forbidden=((2, 3), (4,)), shortest=4)
    assert len(history_filters(every, {EOS})) == 5
    for single in ("repetition_penalty", "no_repeat", "no_stutter", "forbidden", "shortest"):
        assert len(history_filters(Decoding(**{single: getattr(every, single)}), {EOS})) == 1


@given(rows)
def test_history_filters_together(given_rows: Rows) -> None:
    every = Decoding(repetition_penalty=1.5, no_repeat=2, forbidden=((2, 3), (4,)), shortest=4)

    def ours(score_BV: Tensor, seen: Sequence[Row]) -> Tensor:
        for each in history_filters(every, {EOS}):
            score_BV = each(score_BV, seen)
        return score_BV

    def processors(length: int) -> theirs.LogitsProcessorList:
        return theirs.LogitsProcessorList(
            [
                theirs.RepetitionPenaltyLogitsProcessor(1.5),
                theirs.NoRepeatNGramLogitsProcessor(2),
                theirs.NoBadWordsLogitsProcessor([[2, 3], [4]]),
                theirs.MinNewTokensLengthLogitsProcessor(length, 4, EOS),
            ]
        )

    same_as_theirs(ours, processors, given_rows)


NARROWINGS = {
    "temperature": (temperature, theirs.TemperatureLogitsWarper, [0.3, 2.5]),
    "top_k": (top_k, theirs.TopKLogitsWarper, [1, 3, WORDS, 50]),
    "top_p": (top_p, theirs.TopPLogitsWarper, [0.0, 0.35, 0.9, 0.999]),
    "min_p": (min_p, theirs.MinPLogitsWarper, [0.02, 0.3, 1.0]),
    "typical": (typical, theirs.TypicalLogitsWarper, [0.02, 0.35, 0.9, 0.999]),
}
VALUES = [(name, value) for name, (*_, values) in NARROWINGS.items() for value in values]


@pytest.mark.parametrize(("name", "value"), VALUES)
@given(st.lists(some_scores, min_size=1, max_size=4))
def test_narrowings(name: str, value: float, given_scores: list[list[float]]) -> None:
    ours, processor, _ = NARROWINGS[name]
    score_BV = torch.tensor(given_scores)
    untouched_BV = score_BV.clone()
    found_BV = ours(value)(score_BV)  # type: ignore[operator]
    assert torch.equal(score_BV, untouched_BV)
    assert torch.equal(found_BV, processor(value)(None, score_BV))
    assert (found_BV.amax(-1) > NEVER).all()


@pytest.mark.parametrize(("name", "value"), VALUES)
def test_narrowings_of_scores_as_a_model_gives_them(name: str, value: float) -> None:
    ours, processor, _ = NARROWINGS[name]
    score_BV = (4 * torch.randn(8, 500)).log_softmax(-1)
    assert torch.equal(ours(value)(score_BV), processor(value)(None, score_BV))  # type: ignore[operator]


@pytest.mark.parametrize(("name", "value"), VALUES)
def test_a_row_in_which_nothing_may_come_stays_so(name: str, value: float) -> None:
    score_BV = torch.full((1, WORDS), NEVER)
    assert torch.equal(NARROWINGS[name][0](value)(score_BV), score_BV)  # type: ignore[operator]


@given(some_scores, st.floats(0.01, 0.99))
def test_top_p_keeps_the_fewest_that_reach_it(score: list[float], mass: float) -> None:
    kept_V = top_p(mass)(torch.tensor([score]))[0] > NEVER
    probability_V = torch.tensor(score, dtype=torch.float64).softmax(-1)
    kept = probability_V[kept_V].sort().values
    assert kept.sum() >= mass - 1e-6
    assert kept[1:].sum() < mass + 1e-6


def test_narrowings_are_those_asked_for_in_their_order() -> None:
    assert narrowing(Decoding()) == narrowing(Decoding(top_k=3, top_p=0.5)) == narrowing(Decoding(temperature=1)) == []
    asked = {"temperature": 0.5, "top_k": 5, "top_p": 0.9, "min_p": 0.05, "typical": 0.8}
    for name in asked:
        assert len(narrowing(Decoding(**{"temperature": 1.0, name: asked[name]}))) == 1
    score_BV = found_BV = 2 * torch.randn(6, 40)
    for step in narrowing(Decoding(**asked)):
        found_BV = step(found_BV)
    wanted = theirs.LogitsProcessorList([processor(asked[name]) for name, (_, processor, _) in NARROWINGS.items()])
    assert torch.equal(found_BV, wanted(None, score_BV))


LAST = 1 - 2**-53  # the largest number below 1


@given(some_scores, st.floats(0, LAST))
def test_a_draw_is_the_inverse_of_the_distribution(score: list[float], uniform: float) -> None:
    token = int(draw(torch.tensor([score]), torch.tensor([uniform], dtype=torch.float64)))
    weights = [Fraction(math.exp(each - max(score))) for each in score]
    below, upto = sum(weights[:token]) / sum(weights), sum(weights[: token + 1]) / sum(weights)
    assert weights[token] > 0
    assert below - Fraction(1, 10**12) <= Fraction(uniform) < upto + Fraction(1, 10**12)


@given(some_scores)
def test_the_ends_of_the_interval_draw_the_first_and_last_token_that_may_come(score: list[float]) -> None:
    may = [token for token, each in enumerate(score) if each > NEVER]
    token_B = draw(torch.tensor([score] * 2), torch.tensor([0.0, LAST], dtype=torch.float64))
    assert token_B.tolist() == [may[0], may[-1]]


def test_the_ends_of_the_interval_in_a_large_vocabulary() -> None:
    score_BV = torch.randn(50, 5000)
    score_BV[:, :7] = score_BV[:, -7:] = NEVER
    assert (draw(score_BV, torch.zeros(50)) == 7).all()
    assert (draw(score_BV, torch.full((50,), LAST, dtype=torch.float64)) == 5000 - 8).all()


def test_what_is_drawn_is_as_frequent_as_it_is_probable() -> None:
    probability_V = torch.tensor([0.1, 0.0, 0.4, 0.2, 0.3])
    uniform_B = (torch.arange(1000, dtype=torch.float64) + 0.5) / 1000
    token_B = draw(probability_V.log().expand(1000, -1), uniform_B)
    assert token_B.bincount(minlength=5).tolist() == [100, 0, 400, 200, 300]


@given(st.lists(st.tuples(some_scores, st.floats(0, LAST)), min_size=1, max_size=5))
def test_a_row_is_drawn_alone_as_in_a_batch(given_rows: list[tuple[list[float], float]]) -> None:
    score_BV = torch.tensor([score for score, _ in given_rows])
    uniform_B = torch.tensor([uniform for _, uniform in given_rows], dtype=torch.float64)
    alone = [int(draw(score_BV[row : row + 1], uniform_B[row : row + 1])) for row in range(len(given_rows))]
    assert draw(score_BV, uniform_B).tolist() == alone


def test_nothing_to_draw() -> None:
    score_BV = torch.zeros(3, WORDS)
    score_BV[1] = NEVER
    with pytest.raises(DecodingError, match=r"no token is left .* in row 1"):
        draw(score_BV, torch.zeros(3))
