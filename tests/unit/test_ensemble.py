"""Ensembles: one model is itself, two are the mean of their probabilities, however they are decoded."""

from typing import Any

import pytest
import torch

from clearhead.errors import DecodingError
from clearhead.generate.decoding import Decoding
from clearhead.generate.ensemble import Ensemble, EnsembleState
from clearhead.generate.write import search
from tests.contracts.plain_decoding import plain_beam, plain_greedy
from tests.unit.small import small_model, tokens
from tests.unit.toy_step import EOS, Toy, ragged

WAYS = [Decoding(), Decoding(beams=3, best=3), Decoding(guess=3), Decoding(temperature=1.0)]


def models(*positions: str) -> list[Any]:
    torch.manual_seed(1)
    return [small_model("decoder_only", positions=one) for one in positions]


@pytest.mark.parametrize("decoding", WAYS, ids=str)
def test_an_ensemble_of_one_is_the_model(decoding: Decoding) -> None:
    (model,) = models("rotary")
    prompts = ragged([[1, 2, 1], [3]], [6, 4])
    found = search(Ensemble([model]), EnsembleState((model.start(),)), prompts, decoding)
    for one, other in zip(found, search(model, model.start(), prompts, decoding), strict=True):
        assert [answer.tokens for answer in one.best] == [answer.tokens for answer in other.best]
        assert one.ranks == pytest.approx(other.ranks, abs=1e-4)


def mean(toys: list[Toy]) -> Any:
    return lambda texts: torch.stack([toy.read(texts).exp() for toy in toys]).mean(0).log()


def test_two_decide_by_the_mean_of_their_probabilities() -> None:
    toys = [Toy(6, seed=1), Toy(6, seed=2)]
    rows = [[1, 2], [3], [5, 5]]
    state = EnsembleState(tuple(toy.start(3) for toy in toys))
    greedy = search(Ensemble(toys), state, ragged(rows, 6), Decoding())
    beams = search(Ensemble(toys), state, ragged(rows, 6), Decoding(beams=3))
    for row, one, other in zip(rows, greedy, beams, strict=True):
        expected = plain_greedy(mean(toys), row, 6, EOS)
        assert one.best[0].tokens == expected.tokens
        assert one.best[0].scores == pytest.approx(expected.scores, abs=1e-5)
        (rank, answer), *_ = plain_beam(mean(toys), row, 6, EOS, beams=3)
        assert other.best[0].tokens == answer.tokens
        assert other.ranks == pytest.approx([rank], abs=1e-5)


def test_branches_are_shared_where_all_models_can() -> None:
    """And the answer does not depend on it."""
    same, mixed = models("rotary", "learned"), models("rotary", "alibi")
    assert Ensemble(same).branches
    assert not Ensemble(mixed).branches


def test_the_states_of_all_join() -> None:
    both = models("rotary", "learned")
    ensemble = Ensemble(both)
    token_BT = tokens(3, 4)
    with torch.no_grad():
        whole, _ = ensemble.step(token_BT, EnsembleState(tuple(model.start() for model in both)))
        parts = []
        for rows in (slice(0, 1), slice(1, 3)):
            start = EnsembleState(tuple(model.start() for model in both))
            parts.append(ensemble.step(token_BT[rows, :3], start)[1])
        joined, _ = ensemble.step(token_BT[:, 3:], parts[0].join(parts[1]), last=True)
    torch.testing.assert_close(joined, whole[:, 3:], atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(whole.exp().sum(-1), torch.ones(3, 4))


def test_what_is_no_ensemble() -> None:
    with pytest.raises(DecodingError, match="at least one model"):
        Ensemble([])
    toys = [Toy(4, 0), Toy(5, 0)]
    with pytest.raises(DecodingError, match=r"theirs have \[4, 5\] words"):
        Ensemble(toys).step(torch.tensor([[1]]), EnsembleState(tuple(toy.start(1) for toy in toys)), last=True)
