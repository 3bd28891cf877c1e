"""Decoding without search, against a model small enough to be followed by hand and against uncached models."""

import itertools
import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from clearhead.errors import DecodingError
from clearhead.generate.beam import Found
from clearhead.generate.decode import Decoded, Prompts
from clearhead.generate.decoding import Decoding
from clearhead.generate.write import search, write
from tests.contracts.plain_decoding import plain_greedy
from tests.unit.small import small_model, tokens
from tests.unit.toy_step import EOS, Toy, ragged

GREEDY = Decoding()


def answers(toy: Toy, prompts: Prompts, decoding: Decoding = GREEDY) -> list[Decoded]:
    return [one.best[0] for one in search(toy, toy.start(len(prompts)), prompts, decoding)]


texts = st.lists(st.lists(st.integers(1, 4), min_size=1, max_size=4), min_size=1, max_size=5)


@given(texts, st.integers(0, 50), st.data())
def test_each_row_is_what_it_would_be_by_hand(rows: list[list[int]], seed: int, data: st.DataObject) -> None:
    toy = Toy(5, seed)
    longest = [data.draw(st.integers(1, 12)) for _ in rows]
    for row, limit, found in zip(rows, longest, answers(toy, ragged(rows, longest)), strict=True):
        written, scores = plain_greedy(toy.read, row, limit, EOS)
        assert found.tokens == written
        assert found.scores == pytest.approx(scores, abs=1e-5)
        assert found.ended == (len(scores) > len(written))
        assert found.score == pytest.approx(sum(scores))


def test_rows_that_have_ended_are_not_computed_any_more() -> None:
    toy = Toy(5, seed=6)
    lengths = [len(found.scores) for found in answers(toy, ragged([[token] for token in range(1, 5)], 9))]
    rows = [rows for rows, _ in toy.asked]
    assert rows == [sum(length > step for length in lengths) for step in range(max(lengths))]
    assert len(set(rows)) > 1


@pytest.mark.parametrize("longest", [1, 7, 40])
def test_every_token_is_read_once(longest: int) -> None:
    """n new tokens cost the prompt and n − 1 more tokens read: the last one need not be."""
    toy = Toy(5, seed=0)
    prompts = ragged([[1, 2, 3]], longest, eos=None)
    answers(toy, prompts)
    assert sum(rows * count for rows, count in toy.asked) == 3 + longest - 1
    assert len(toy.asked) == longest


def test_a_row_that_is_stopped_leaves() -> None:
    toy = Toy(5, seed=2)
    whole = answers(toy, ragged([[1], [2]], 6, eos=None))
    toy.asked.clear()
    for written in write(toy, toy.start(2), ragged([[1], [2]], 6, eos=None), GREEDY):
        written[0].stopped = len(written[0].tokens) == 2
    assert written[0].tokens == whole[0].tokens[:2]
    assert written[1].tokens == whole[1].tokens
    assert [rows for rows, _ in toy.asked] == [2, 2, 1, 1, 1, 1]


@pytest.mark.parametrize("mode", ["decoder_only", "encoder_decoder"])
def test_a_kept_prompt_is_gone_on_with(mode: str) -> None:
    """What was read before may be read once and kept: the rest of the prompt alone is given, more than once."""
    model = small_model(mode)
    source_BM, prompt_BT = tokens(3, 4, seed=1), tokens(3, 4, seed=2)
    start = model.start(source_BM) if mode == "encoder_decoder" else model.start()
    whole = search(model, start, Prompts(prompt_BT, [5] * 3, None), GREEDY)
    with torch.inference_mode():
        _, kept = model.step(prompt_BT[:, :3], start)
    for _ in range(2):
        found = search(model, kept, Prompts(prompt_BT[:, 3:], [5] * 3, None), GREEDY)
        assert [one.best[0].tokens for one in found] == [one.best[0].tokens for one in whole]


@given(st.integers(0, 50), st.sampled_from([{"no_repeat": 2}, {"repetition_penalty": 1.5}, {"forbidden": ((2,),)}]))
def test_demands_are_met(seed: int, demand: dict[str, Any]) -> None:
    """By hand: the best token whose filtered score is best, and its own log-probability as the score."""
    toy = Toy(5, seed)
    (found,) = answers(toy, ragged([[1, 2]], 6, eos=None), Decoding(**demand))
    text = [1, 2]
    for token, score in zip(found.tokens, found.scores, strict=True):
        logits = toy.after(tuple(text))
        by_hand = logits.clone()
        for other in range(5):
            spans = set(itertools.pairwise(text))
            if ("no_repeat" in demand and (text[-1], other) in spans) or ("forbidden" in demand and other == 2):
                by_hand[other] = -math.inf
            if "repetition_penalty" in demand and other in text:
                by_hand[other] = logits[other] * (1.5 if logits[other] < 0 else 1 / 1.5)
        assert token == int(by_hand.argmax())
        assert score == pytest.approx(float(logits.log_softmax(-1)[token]))
        text.append(token)


def draws(toy: Toy, decoding: Decoding, longest: int = 8) -> Found:
    (found,) = search(toy, toy.start(1), ragged([[1]], longest), decoding)
    return found


@pytest.mark.parametrize("first", [1, 10**30], ids=["small", "beyond PyTorch's"])
def test_sampling_follows_its_seed(first: int) -> None:
    toy, seeds = Toy(9, seed=1), (first, first, first + 1)
    one, again, other = (draws(toy, Decoding(temperature=1.0, seed=seed)).best[0].tokens for seed in seeds)
    assert one == again != other


def test_samples_of_one_prompt_differ_and_do_not_depend_on_company() -> None:
    toy, decoding = Toy(9, seed=1), Decoding(temperature=1.0, best=4, seed=3)
    alone = [[one.tokens for one in search(toy, toy.start(1), ragged([[n]], 8), decoding)[0].best] for n in (1, 2)]
    together = search(toy, toy.start(2), ragged([[1], [2]], 8), decoding)
    assert [[one.tokens for one in found.best] for found in together] == alone
    assert len({tuple(text) for text in alone[0]}) == 4


def test_sampling_at_low_temperature_is_greedy() -> None:
    toy = Toy(5, seed=1)
    written, scores = plain_greedy(toy.read, [1], 8, EOS)
    found = draws(toy, Decoding(temperature=1e-4)).best[0]
    assert found.tokens == written
    assert found.scores == pytest.approx(scores, abs=1e-5)


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_sampling_draws_by_the_softmax(temperature: float) -> None:
    toy, count = Toy(5, seed=1), 3000
    found = draws(toy, Decoding(temperature=temperature, best=count), longest=1)
    first = torch.tensor([[*one.tokens, EOS][0] for one in found.best])
    expected = (toy.after((1,)) / temperature).softmax(-1)
    assert torch.allclose(first.bincount(minlength=5) / count, expected, atol=4 * (0.25 / count) ** 0.5)


@pytest.mark.parametrize(
    ("prompts", "message"),
    [
        (lambda: ragged([[1], [2]], [3, 0]), "longest=0"),
        (lambda: ragged([[1], []], 3), "empty prompt"),
        (lambda: Prompts(torch.empty(1, 0, dtype=torch.long), [3], EOS), "empty prompt"),
    ],
)
def test_prompts_that_cannot_be(prompts: Any, message: str) -> None:
    with pytest.raises(DecodingError, match=message):
        prompts()


@pytest.mark.parametrize("way", [{}, {"temperature": 1.0}])
def test_nothing_that_may_come(way: dict[str, Any]) -> None:
    everything = tuple((token,) for token in range(5))
    with pytest.raises(DecodingError, match="nothing that is allowed"):
        answers(Toy(5, seed=0), ragged([[1]], 3), Decoding(forbidden=everything, **way))
