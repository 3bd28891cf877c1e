"""The coverage penalty, number by number."""

import math

import pytest
import torch

from clearhead.errors import DecodingError
from clearhead.generate.beam import Found, beam
from clearhead.generate.coverage import Coverage
from clearhead.generate.decoding import Decoding
from tests.unit.small import small_model, tokens
from tests.unit.toy_step import ragged


def test_looks_add_up_and_follow_their_hypotheses() -> None:
    looks = iter(
        [
            torch.tensor([[[0.5, 0.25, 0.25]], [[0.75, 0.25, 0.0]]]),
            torch.tensor([[[0.5, 0.25, 0.25], [1.0, 0.0, 0.0]], [[0.25, 0.75, 0.0], [0.5, 0.5, 0.0]]]),
            torch.tensor([[[0.25, 0.25, 0.5], [0.0, 0.0, 1.0]]]).transpose(0, 1),  # each branch a row of its own
        ]
    )
    coverage = Coverage(2.0, lambda: next(looks))
    assert coverage.add((2, 1)) == [
        pytest.approx([2 * (math.log(0.5) + 2 * math.log(0.25))]),
        pytest.approx([2 * (math.log(0.75) + math.log(0.25))]),  # the last source token is padding
    ]
    coverage.descend(torch.tensor([[0, 0], [0, 0]]))
    assert coverage.add((2, 2)) == [
        pytest.approx([2 * (2 * math.log(0.5)), 2 * (2 * math.log(0.25))]),
        pytest.approx([0.0, 2 * math.log(0.75)]),
    ]
    coverage.select(torch.tensor([0]))
    coverage.descend(torch.tensor([[1, 0]]))
    assert coverage.add((1, 2)) == [pytest.approx([2 * (math.log(0.5) + math.log(0.75)), 2 * math.log(0.5)])]


def test_a_prompt_is_one_hypothesis_whose_padding_looks_at_nothing() -> None:
    looks_BTM = torch.tensor([[[0.5, 0.5], [0.25, 0.75]], [[0.5, 0.5], [0.25, 0.75]]])
    coverage = Coverage(1.0, lambda: looks_BTM, torch.tensor([2, 1]))
    assert coverage.add((2, 1)) == [pytest.approx([math.log(0.75)]), pytest.approx([2 * math.log(0.5)])]


def test_without_a_penalty_nobody_is_asked() -> None:
    coverage = Coverage(0.0, None)
    assert coverage.add((2, 3)) == [[0.0] * 3] * 2
    coverage.select(torch.tensor([1]))
    coverage.descend(torch.tensor([[0, 0, 0]]))
    assert coverage.add((1, 3)) == [[0.0] * 3]


def test_a_model_without_a_source_has_nothing_to_cover() -> None:
    with pytest.raises(DecodingError, match=r"coverage_penalty=0\.5 must be 0"):
        Coverage(0.5, None)


@pytest.mark.parametrize("positions", ["sinusoidal", "t5"])
def test_a_batch_is_searched_as_each_row_alone_whichever_ends_first(positions: str) -> None:
    """Where the longest source ends first, those that go on look at fewer positions than before."""
    model = small_model("encoder_decoder", positions=positions)
    source_BM, counts, longest = tokens(3, 6, seed=5), [3, 6, 4], [6, 2, 4]
    looks: list[torch.Tensor] = []

    def see(weights_BHLM: torch.Tensor) -> torch.Tensor:
        looks.append(weights_BHLM.mean(1))
        return weights_BHLM

    def searched(rows: list[int]) -> list[Found]:
        state = model.start(source_BM[rows], torch.tensor([counts[row] for row in rows]))
        prompts = ragged([[1] for _ in rows], [longest[row] for row in rows], eos=None)
        decoding = Decoding(beams=3, best=3, coverage_penalty=0.7)
        return beam(model, state, prompts, decoding=decoding, attention=lambda: looks[-1])

    model.get_submodule("decoder.1.cross").see_weights.hook = see
    alone = [searched([row])[0] for row in range(3)]
    for together, one in zip(searched([0, 1, 2]), alone, strict=True):
        assert [answer.tokens for answer in together.best] == [answer.tokens for answer in one.best]
        assert together.ranks == pytest.approx(one.ranks, abs=1e-4)
