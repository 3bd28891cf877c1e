"""Contrastive search against a plain loop of its formula."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from clearhead.errors import DecodingError
from clearhead.generate.contrast import contrast
from clearhead.generate.decode import Decoded, Prompts
from clearhead.generate.decoding import Decoding
from clearhead.generate.ensemble import Ensemble, EnsembleState
from clearhead.generate.write import search, write
from clearhead.models.encoder_decoder import EncoderDecoder
from tests.unit.small import small_model, tokens
from tests.unit.toy_step import ragged

EOS = 4
SOURCE_BM, SOURCE_COUNT_B = tokens(2, 4, seed=1), torch.tensor([4, 2])
KINDS = [("decoder_only", "learned"), ("decoder_only", "t5"), ("encoder_decoder", "sinusoidal")]


def lively(mode: str, positions: str) -> Any:
    """A model with opinions."""
    torch.manual_seed(3)
    model = small_model(mode, positions=positions)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return model


def start(model: Any) -> Any:
    return model.start(SOURCE_BM, SOURCE_COUNT_B) if isinstance(model, EncoderDecoder) else model.start()


def last(model: Any, prompts: Prompts, decoding: Decoding) -> list[Decoded]:
    *_, written = write(model, start(model), prompts, decoding)
    return written


@torch.no_grad()
def vectors(model: Any, row: int, text: list[int]) -> Tensor:
    if isinstance(model, EncoderDecoder):
        source_BM = SOURCE_BM[row : row + 1, : SOURCE_COUNT_B[row]]
        return model.hidden(source_BM, torch.tensor([text]))[0][0]
    return model.hidden(torch.tensor([text]))[0][0]


def by_formula(model: Any, row: int, prompt: list[int], longest: int, alpha: float, k: int) -> list[int]:
    """(1 − α) p(v) − α max_j cos(h_v, h_j), every text read anew."""
    text = list(prompt)
    for _ in range(longest):
        said_LD = vectors(model, row, text)
        probability_V = model.output(said_LD[-1]).softmax(-1)
        worth = {}
        for token in probability_V.topk(k).indices.tolist():
            own_D = vectors(model, row, [*text, token])[-1]
            worth[token] = (1 - alpha) * probability_V[token] - alpha * F.cosine_similarity(own_D, said_LD).max()
        text.append(max(worth, key=lambda token: float(worth[token])))
        if text[-1] == EOS:
            return text[len(prompt) : -1]
    return text[len(prompt) :]


@pytest.mark.parametrize(("mode", "positions"), KINDS)
@settings(max_examples=4)
@given(alpha=st.sampled_from([0.3, 0.6, 1.0]), k=st.sampled_from([2, 5]), longest=st.integers(2, 6))
def test_contrast_is_its_formula(mode: str, positions: str, alpha: float, k: int, longest: int) -> None:
    model, rows = lively(mode, positions), [[1, 2, 3], [5]]
    written = last(model, ragged(rows, [longest, 5], eos=EOS), Decoding(contrast=alpha, top_k=k))
    for number, (row, limit) in enumerate(zip(rows, [longest, 5], strict=True)):
        with torch.no_grad():
            expected = by_formula(model, number, row, limit, alpha, k)
        assert written[number].tokens == expected


@pytest.mark.parametrize("seed", [1, 5, 11])
def test_padding_is_not_compared_with_though_all_else_is_opposite(seed: int) -> None:
    torch.manual_seed(seed)
    model = small_model("decoder_only", width=4, heads=1, layers=1)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter)
    decoding = Decoding(contrast=1.0, top_k=4)
    alone, among = (last(model, ragged(rows, 5), decoding)[0] for rows in ([[5]], [[5], [1, 2, 3, 4, 6, 7]]))
    assert among.tokens == alone.tokens


@pytest.mark.parametrize(("mode", "positions"), KINDS)
def test_without_contrast_it_is_greedy(mode: str, positions: str) -> None:
    model = lively(mode, positions)
    prompts = ragged([[1, 2, 3], [5]], [6, 4], eos=EOS)
    *_, written = contrast(model, start(model), prompts, decoding=Decoding(top_k=3))
    for found, expected in zip(written, last(model, prompts, Decoding()), strict=True):
        assert found.tokens == expected.tokens
        assert found.scores == pytest.approx(expected.scores, abs=1e-4)


def test_what_is_forbidden_is_not_chosen_for_being_unlike() -> None:
    model = lively("decoder_only", "learned")
    allowed = 7
    forbidden = tuple((token,) for token in range(13) if token != allowed)
    (written,) = last(model, ragged([[1]], 4, eos=EOS), Decoding(contrast=0.9, top_k=5, forbidden=forbidden))
    assert written.tokens == [allowed] * 4


def test_nobody_watches_afterwards() -> None:
    model = lively("decoder_only", "learned")
    for _ in contrast(model, start(model), ragged([[1]], 2), decoding=Decoding(contrast=0.5, top_k=2)):
        assert model.decoder.see_output.watched
    assert not model.decoder.see_output.watched


def test_several_models_have_no_vectors_in_common() -> None:
    model = lively("decoder_only", "learned")
    state = EnsembleState((model.start(),))
    with pytest.raises(DecodingError, match="cannot be asked of several"):
        search(Ensemble([model]), state, ragged([[1]], 2), Decoding(contrast=0.5, top_k=2))
