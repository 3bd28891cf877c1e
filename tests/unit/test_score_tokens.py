"""Scores of a given text: the log-softmax of the whole forward pass at its tokens."""

import pytest
import torch

from clearhead.errors import DecodingError
from clearhead.generate.decode import Prompts
from clearhead.generate.decoding import Decoding
from clearhead.generate.score import score
from clearhead.generate.write import search
from tests.unit.small import small_model, tokens

COUNTS = torch.tensor([4, 2, 3])
TOKEN_BT, TARGET_BT, SOURCE_BM = tokens(3, 4, seed=1), tokens(3, 4, seed=2), tokens(3, 5, seed=3)


@pytest.mark.parametrize("mode", ["decoder_only", "encoder_decoder"])
def test_scores_are_those_of_the_whole_forward_pass(mode: str) -> None:
    model = small_model(mode)
    state = model.start(SOURCE_BM) if mode == "encoder_decoder" else model.start()
    found_BT = score(model, state, TOKEN_BT, TARGET_BT, COUNTS)
    for row, count in enumerate(COUNTS.tolist()):
        text = TOKEN_BT[row : row + 1, :count]
        with torch.no_grad():
            logits = model(SOURCE_BM[row : row + 1], text) if mode == "encoder_decoder" else model(text)
        expected = logits[0].log_softmax(-1)[torch.arange(count), TARGET_BT[row, :count]]
        torch.testing.assert_close(found_BT[row, :count], expected, atol=1e-5, rtol=1e-5)


def test_what_was_written_scores_as_it_did_when_it_was_written() -> None:
    model = small_model("decoder_only")
    ((found,),) = (one.best for one in search(model, model.start(), Prompts(TOKEN_BT[:1], [6], None), Decoding()))
    text = torch.tensor([[*TOKEN_BT[0].tolist(), *found.tokens]])
    again_BT = score(model, model.start(), text[:, :-1], text[:, 1:])
    assert again_BT[0, -6:].tolist() == pytest.approx(found.scores, abs=1e-4)


def test_weights_that_are_no_numbers_are_refused() -> None:
    model = small_model("decoder_only")
    with torch.no_grad():
        model.embed.tokens.weight[TOKEN_BT[0, 0]] = torch.inf
    with pytest.raises(DecodingError, match="not numbers"):
        score(model, model.start(), TOKEN_BT, TARGET_BT)
