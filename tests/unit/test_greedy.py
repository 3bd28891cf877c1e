"""Decoding without search, against a model small enough to be followed by hand and against uncached models."""

from dataclasses import dataclass

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from clearhead.errors import DecodingError
from clearhead.generate.greedy import greedy
from clearhead.generate.sample import sample
from tests.unit.small import small_model, tokens

EOS = 0


@dataclass(frozen=True)
class Read:
    """The state of a model that remembers everything."""

    rows: tuple[tuple[int, ...], ...]

    def select(self, row_B: Tensor) -> "Read":
        return Read(tuple(self.rows[row] for row in row_B.tolist()))

    def join(self, other: "Read") -> "Read":
        return Read(self.rows + other.rows)


class Table:
    """What follows depends on all that was read, through its sum; `asked` notes how many rows each step had."""

    def __init__(self, words: int, seed: int) -> None:
        self.logits_WV = torch.randn(97, words, generator=torch.Generator().manual_seed(seed))
        self.asked: list[int] = []

    def after(self, row: tuple[int, ...]) -> Tensor:
        return self.logits_WV[sum((place + 3) * token for place, token in enumerate(row)) % 97]

    def step(
        self, token_BT: Tensor, state: Read, *, count_B: Tensor | None = None, last: bool = False
    ) -> tuple[Tensor, Read]:
        assert last
        counts = [token_BT.shape[1]] * len(token_BT) if count_B is None else count_B.tolist()
        self.asked.append(len(token_BT))
        new = [row[:count] for row, count in zip(token_BT.tolist(), counts, strict=True)]
        rows = tuple((*before, *row) for before, row in zip(state.rows, new, strict=True))
        return torch.stack([self.after(row) for row in rows])[:, None], Read(rows)


def by_hand(table: Table, prompt: list[int], longest: int) -> tuple[list[int], list[float]]:
    written: list[int] = []
    scores: list[float] = []
    while len(written) < longest:
        score_V = table.after((*prompt, *written)).log_softmax(-1)
        best = int(score_V.argmax())
        scores.append(float(score_V[best]))
        if best == EOS:
            break
        written.append(best)
    return written, scores


prompts = st.lists(st.lists(st.integers(1, 4), min_size=1, max_size=4), min_size=1, max_size=5)


@given(prompts, st.integers(0, 50), st.integers(1, 12))
def test_each_row_is_what_it_would_be_by_hand(rows: list[list[int]], seed: int, longest: int) -> None:
    table = Table(5, seed)
    width = max(map(len, rows))
    token_BT = torch.tensor([[*row, *[EOS] * (width - len(row))] for row in rows])
    count_B = torch.tensor([len(row) for row in rows])
    found = greedy(table, Read(((),) * len(rows)), token_BT, eos=EOS, longest=longest, count_B=count_B)
    for row, answer in zip(rows, found, strict=True):
        written, scores = by_hand(table, row, longest)
        assert answer.tokens == written
        assert answer.scores == pytest.approx(scores)
        assert answer.ended == (len(scores) > len(written))
        assert answer.score == pytest.approx(sum(scores))


def test_rows_that_have_ended_are_not_computed_any_more() -> None:
    table = Table(5, seed=3)
    rows = [[token] for token in range(1, 5)]
    found = greedy(table, Read(((),) * 4), torch.tensor(rows), eos=EOS, longest=9)
    lengths = [len(answer.scores) for answer in found]
    assert table.asked == [sum(length > step for length in lengths) for step in range(max(lengths))]
    assert len(set(table.asked)) > 1


@pytest.mark.parametrize("mode", ["decoder_only", "encoder_decoder"])
def test_models_write_with_their_cache_what_they_write_without(mode: str) -> None:
    model = small_model(mode)
    source_BM, prompt_BT = tokens(3, 4, seed=1), tokens(3, 2, seed=2)
    state = model.start(source_BM) if mode == "encoder_decoder" else model.start()
    found = greedy(model, state, prompt_BT, eos=None, longest=6)
    token_BL = prompt_BT
    for _ in range(6):
        logits_BLV = model(source_BM, token_BL) if mode == "encoder_decoder" else model(token_BL)
        token_BL = torch.cat([token_BL, logits_BLV[:, -1:].argmax(-1)], dim=1)
    assert [answer.tokens for answer in found] == token_BL[:, 2:].tolist()


def test_a_batch_of_unequal_prompts_answers_as_each_alone() -> None:
    model = small_model("decoder_only")
    rows = [[3, 5, 7, 2], [4], [9, 1]]
    token_BT = torch.tensor([[*row, *[0] * (4 - len(row))] for row in rows])
    found = greedy(model, model.start(), token_BT, eos=6, longest=7, count_B=torch.tensor([4, 1, 2]))
    for row, answer in zip(rows, found, strict=True):
        (alone,) = greedy(model, model.start(), torch.tensor([row]), eos=6, longest=7)
        assert answer.tokens == alone.tokens
        assert answer.scores == pytest.approx(alone.scores, abs=1e-5)


def test_sampling_follows_its_seed() -> None:
    model = small_model("decoder_only")

    def draw(seed: int) -> list[int]:
        generator = torch.Generator().manual_seed(seed)
        prompt_BT = torch.tensor([[3]])
        return sample(
            model, model.start(), prompt_BT, temperature=1.0, generator=generator, eos=None, longest=8
        )[0].tokens  # fmt: skip

    assert draw(1) == draw(1) != draw(2)


def test_sampling_at_low_temperature_is_greedy() -> None:
    table = Table(5, seed=1)
    found = sample(
        table, Read(((),)), torch.tensor([[1]]), temperature=1e-4, generator=torch.Generator(), eos=EOS, longest=9
    )  # fmt: skip
    written, scores = by_hand(table, [1], 9)
    assert found[0].tokens == written
    assert found[0].scores == pytest.approx(scores)


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_sampling_draws_by_the_softmax(temperature: float) -> None:
    table = Table(5, seed=1)
    rows = 4_000
    found = sample(
        table, Read(((),) * rows), torch.ones(rows, 1, dtype=torch.int64), temperature=temperature,
        generator=torch.Generator().manual_seed(0), eos=None, longest=1,
    )  # fmt: skip
    counted = torch.bincount(torch.tensor([answer.tokens[0] for answer in found]), minlength=5) / rows
    expected = (table.after((1,)) / temperature).softmax(-1)
    assert torch.allclose(counted, expected, atol=4 * (0.25 / rows) ** 0.5)


def test_what_cannot_be_asked_for_is_refused() -> None:
    table = Table(5, seed=0)
    with pytest.raises(DecodingError, match="longest=0"):
        greedy(table, Read(((),)), torch.tensor([[1]]), eos=None, longest=0)
    with pytest.raises(DecodingError, match=r"temperature=0\.0"):
        sample(
            table, Read(((),)), torch.tensor([[1]]), temperature=0.0, generator=torch.Generator(), eos=None, longest=1
        )  # fmt: skip
