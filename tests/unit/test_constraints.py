"""Required phrases against the text itself: what is met, and how many tokens the rest needs at least."""

from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clearhead.errors import DecodingError
from clearhead.generate.constraints import NOTHING, Constraints

WORDS = 3
Phrase = tuple[int, ...]
phrases = st.lists(st.lists(st.integers(0, WORDS - 1), min_size=1, max_size=3).map(tuple), min_size=1, max_size=3)
texts = st.lists(st.integers(0, WORDS - 1), max_size=8)


def holds(text: Phrase, phrase: Phrase) -> bool:
    return any(text[start : start + len(phrase)] == phrase for start in range(len(text)))


def needed(text: Phrase, required: list[Phrase]) -> int:
    """The fewest tokens after which the text holds all phrases, by trying all of them, shortest first."""
    waiting = deque([text])
    while True:
        tried = waiting.popleft()
        if all(holds(tried, phrase) for phrase in required):
            return len(tried) - len(text)
        waiting.extend((*tried, token) for token in range(WORDS))


def after(required: list[Phrase], text: list[int]) -> Constraints:
    constraints = Constraints.of(required)
    for token in text:
        constraints = constraints.after(token)
    return constraints


@given(phrases, texts)
def test_nothing_is_left_when_the_text_holds_all(required: list[Phrase], text: list[int]) -> None:
    met = all(holds(tuple(text), phrase) for phrase in required)
    assert (after(required, text).left == 0) == met
    assert bool(after(required, text).wanted) != met


@given(phrases.filter(lambda required: sum(map(len, required)) <= 7), texts)
def test_what_is_left_is_the_fewest_tokens(required: list[Phrase], text: list[int]) -> None:
    assert after(required, text).left == needed(tuple(text), required)


@given(st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=4).map(tuple), min_size=1, max_size=12), texts)
def test_a_wanted_token_always_brings_the_end_nearer(required: list[Phrase], text: list[int]) -> None:
    """Also where there are too many for the shortest way: whatever has been promised can be kept."""
    constraints = after(required, text)
    while constraints.left:
        nearer = [constraints.after(token) for token in constraints.wanted]
        best = min(nearer, key=lambda one: one.left)
        assert best.left < constraints.left
        constraints = best


def test_a_phrase_within_another_comes_with_it() -> None:
    assert Constraints.of([(1, 2), (1, 2, 3), (1, 2)]).left == 3


def test_a_phrase_of_nothing_is_refused() -> None:
    with pytest.raises(DecodingError, match="at least one token"):
        Constraints.of([(1,), ()])


def test_nothing_required() -> None:
    assert NOTHING.after(3) is NOTHING
    assert (NOTHING.left, NOTHING.wanted) == (0, set())
