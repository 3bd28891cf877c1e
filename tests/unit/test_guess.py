"""Guessing ahead: the words of greedy decoding exactly, in fewer steps where the text repeats itself."""

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from clearhead.generate.decode import Decoded, Prompts
from clearhead.generate.decoding import Decoding
from clearhead.generate.guess import look_up
from clearhead.generate.write import write
from tests.unit.small import small_model
from tests.unit.toy_step import EOS, Toy, ragged

rows = st.lists(st.lists(st.integers(1, 3), min_size=1, max_size=12), min_size=1, max_size=4)


class Cycle(Toy):
    """After each word the next one comes, round and round: a text that repeats itself."""

    def after(self, row: tuple[int, ...]) -> Tensor:
        return torch.eye(len(self.logits_WV[0]))[row[-1] % (len(self.logits_WV[0]) - 1) + 1] * 5


def last(model: Any, state: Any, prompts: Prompts, decoding: Decoding) -> list[Decoded]:
    *_, written = write(model, state, prompts, decoding)
    return written


def same(found: list[Decoded], expected: list[Decoded]) -> None:
    for one, other in zip(found, expected, strict=True):
        assert one.tokens == other.tokens
        assert one.scores == pytest.approx(other.scores, abs=1e-4)


@given(rows, st.integers(0, 99), st.integers(1, 6), st.data())
def test_the_words_are_those_of_greedy(texts: list[list[int]], seed: int, count: int, data: st.DataObject) -> None:
    longest = [data.draw(st.integers(1, 9)) for _ in texts]
    for toy in (Toy(4, seed), Cycle(4, seed)):
        prompts = ragged(texts, longest, data.draw(st.sampled_from([None, EOS])))
        same(
            last(toy, toy.start(len(texts)), prompts, Decoding(guess=count)),
            last(toy, toy.start(len(texts)), prompts, Decoding()),
        )


@pytest.mark.parametrize("positions", ["learned", "rotary", "alibi"])
def test_real_models_write_what_they_write_greedily(positions: str) -> None:
    """Ragged rows that end at the last of the model's positions, beside others whose guesses are long."""
    model = small_model("decoder_only", positions=positions, length=14)
    rows = [[5, 6, 7, 5, 6, 7, 5, 6], [3], [9, 9, 9, 9]]
    prompts = ragged(rows, [14 - len(row) + 1 for row in rows], eos=None)
    expected = last(model, model.start(), prompts, Decoding())
    for count in (1, 3, 8):
        same(last(model, model.start(room=16), prompts, Decoding(guess=count)), expected)


def test_a_text_that_repeats_itself_takes_fewer_steps() -> None:
    toy = Cycle(5, 0)
    prompts = ragged([[1, 2, 3, 4, 1, 2, 3]], 24)
    same(last(toy, toy.start(1), prompts, Decoding(guess=5)), last(Cycle(5, 0), toy.start(1), prompts, Decoding()))
    assert len(toy.asked) == 1 + -(-23 // 5)  # the four words since the match are guessed, and a fifth is the model's
    toy = Toy(5, 0)
    last(toy, toy.start(1), ragged([[1]], 8, eos=None), Decoding(guess=5))
    assert len(toy.asked) <= 8


def test_with_demands_nothing_is_guessed_and_all_are_met() -> None:
    toy = Cycle(5, 0)
    prompts = ragged([[1, 2, 3, 4, 1, 2]], 6, eos=None)
    same(
        last(toy, toy.start(1), prompts, Decoding(guess=4, no_repeat=2)),
        last(toy, toy.start(1), prompts, Decoding(no_repeat=2)),
    )


@given(st.lists(st.integers(0, 2), min_size=1, max_size=15), st.integers(0, 4))
def test_a_look_up_is_the_longest_match_and_the_latest(text: list[int], count: int) -> None:
    expected: list[int] = []
    for size in (1, 2, 3):  # longer matches and later ones replace the others
        for end in range(size, len(text)):
            if len(text) > size and text[end - size : end] == text[-size:]:
                expected = text[end : end + count]
    assert look_up(text, count) == expected
