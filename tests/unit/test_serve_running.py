"""Rows that join a running batch are written as if they were alone."""

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from clearhead.errors import DecodingError
from clearhead.generate.decode import Decoded, Going, Manner, Prompts, Running
from clearhead.generate.decoding import Decoding
from clearhead.generate.filters import forbid, no_repeat
from clearhead.generate.greedy import take_best
from clearhead.generate.sample import drawing
from clearhead.generate.write import search
from tests.unit.small import small_model, tokens
from tests.unit.toy_step import EOS, Toy, ragged

ENDS = frozenset({EOS})
GREEDY = Manner(take_best)


def manner_of(decoding: Decoding) -> Manner:
    filters = (no_repeat(decoding.no_repeat),) if decoding.no_repeat else ()
    return Manner(drawing(decoding, 1) if decoding.temperature else take_best, filters)


def joined(running: Running, prompts: Prompts, rows: list[Going], state: Any) -> None:
    with torch.inference_mode():
        running.join(rows, state, prompts.token_BT, prompts.count_B)


def go_on(running: Running) -> None:
    running.part()
    if running.rows:
        running.step()


decodings = st.sampled_from(
    [Decoding(), Decoding(no_repeat=2), *(Decoding(temperature=1.0, seed=seed) for seed in (1, 2))]
)
arrivals = st.lists(
    st.tuples(st.integers(0, 6), st.lists(st.integers(1, 4), min_size=1, max_size=4), st.integers(1, 9), decodings),
    min_size=1,
    max_size=6,
)


@given(arrivals, st.integers(0, 50))
def test_company_changes_nothing(coming: list[tuple[int, list[int], int, Decoding]], seed: int) -> None:
    """Rows come at any step, with any prompt and any decoding; each is what `search` finds for it alone."""
    toy = Toy(5, seed)
    running, rows = Running(toy), []
    for moment in range(20):
        go_on(running)
        for at, prompt, longest, decoding in coming:
            if at == moment:
                row = Going(longest, ENDS, manner_of(decoding), prompt=prompt)
                joined(running, ragged([prompt], longest), [row], toy.start(1))
                rows.append((row, prompt, longest, decoding))
    assert len(rows) == len(coming)
    for row, prompt, longest, decoding in rows:
        (alone,) = search(toy, toy.start(1), ragged([prompt], longest), decoding)
        assert row.written.tokens == alone.best[0].tokens
        assert row.written.scores == pytest.approx(alone.best[0].scores, abs=1e-5)


@pytest.mark.parametrize("mode", ["decoder_only", "encoder_decoder"])
def test_newcomers_of_real_models(mode: str) -> None:
    """Caches of different lengths and sources of different lengths beside each other."""
    model = small_model(mode, tied=False)
    with torch.inference_mode():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.copy_(torch.randn(parameter.shape))
        running, rows, alone = Running(model), list[Going](), list[Decoded]()
        for number, length in enumerate((4, 2, 3)):
            prompt_BT = tokens(1, length, seed=number)
            source = (tokens(1, 5 - number, seed=9 + number),) if mode == "encoder_decoder" else ()
            prompts = Prompts(prompt_BT, [6], None)
            alone.append(search(model, model.start(*source), prompts, Decoding())[0].best[0])
            rows.append(Going(6, frozenset(), GREEDY))
            running.join([rows[-1]], model.start(*source), prompt_BT, None)
            go_on(running)
            go_on(running)
        while running.rows:
            go_on(running)
    assert [row.written.tokens for row in rows] == [one.tokens for one in alone]
    for row, one in zip(rows, alone, strict=True):
        assert row.written.scores == pytest.approx(one.scores, abs=1e-4)
    assert len({token for one in alone for token in one.tokens}) > 1


def test_those_that_are_done_leave() -> None:
    toy = Toy(5, seed=1)
    running = Running(toy)
    rows = [Going(longest, frozenset(), GREEDY) for longest in (1, 3, 2)]
    joined(running, ragged([[1], [2], [3]], 9, eos=None), rows, toy.start(3))
    assert running.part() == [rows[0]]
    running.step()
    assert running.part() == [rows[2]]
    rows[1].written.stopped = True
    assert running.part() == [rows[1]]
    assert running.rows == []


def test_rivals_are_the_likeliest_before_any_filter() -> None:
    toy = Toy(7, seed=3)
    running = Running(toy)
    row = Going(4, frozenset(), Manner(take_best, (forbid([(int(toy.after((1,)).argmax()),)]),), rivals=3), prompt=[1])
    joined(running, ragged([[1]], 4, eos=None), [row], toy.start(1))
    while len(row.written.tokens) < 4:
        running.step()
    text = [1]
    for token, rivals in zip(row.written.tokens, row.written.rivals, strict=True):
        expected = toy.after(tuple(text)).log_softmax(-1).sort(descending=True)
        assert [rival for rival, _ in rivals] == expected.indices[:3].tolist()
        assert [score for _, score in rivals] == pytest.approx(expected.values[:3].tolist(), abs=1e-5)
        text.append(token)


def test_a_row_that_can_go_no_further_does_not_stop_the_others() -> None:
    toy = Toy(5, seed=2)
    running = Running(toy)
    stuck = Going(5, frozenset(), Manner(take_best, (forbid([(token,) for token in range(5)]),)))
    fine = Going(5, frozenset(), GREEDY)
    joined(running, ragged([[1], [2]], 5, eos=None), [stuck, fine], toy.start(2))
    assert isinstance(stuck.error, DecodingError)
    assert running.part() == [stuck]
    for _ in range(4):
        running.step()
    (alone,) = search(toy, toy.start(1), ragged([[2]], 5, eos=None), Decoding())
    assert fine.written.tokens == alone.best[0].tokens
