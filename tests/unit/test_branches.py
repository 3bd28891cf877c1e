"""Branches of a beam, shared or side by side: the logits of each are those of its own text, read alone."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from clearhead.generate.branches import CopiedBranches, SharedBranches, branches_of
from tests.unit.small import VOCABULARY, small_model, tokens

SOURCE_BM, SOURCE_COUNT_B = tokens(3, 4, seed=7), torch.tensor([4, 1, 3])


@pytest.mark.parametrize("mode", ["decoder_only", "encoder_decoder"])
@pytest.mark.parametrize("kind", [SharedBranches, CopiedBranches])
@settings(max_examples=12)
@given(data=st.data())
def test_every_branch_reads_its_own_text(mode: str, kind: type[Any], data: st.DataObject) -> None:
    """Any tree: widths that change from step to step, rows that leave, prompts of different lengths or of one."""
    model = small_model(mode, positions=data.draw(st.sampled_from(["learned", "rotary", "sinusoidal"])), length=16)
    counts = data.draw(st.sampled_from([[2, 2, 2], [3, 1, 2]]))
    prompts = [row[:n] for row, n in zip(tokens(3, 3, seed=2).tolist(), counts, strict=True)]
    count_B = torch.tensor(counts) if len(set(counts)) > 1 else None
    token_BT = torch.tensor([[*row, *[0] * (max(counts) - len(row))] for row in prompts])
    with torch.inference_mode():
        encoding = mode == "encoder_decoder"
        state = model.start(SOURCE_BM, SOURCE_COUNT_B) if encoding else model.start()
        _, state = model.step(token_BT, state, count_B=count_B, last=True)
        branches, texts, going = kind(model, state), [[prompt] for prompt in prompts], [0, 1, 2]
        for _ in range(4):
            if len(going) > 1 and data.draw(st.booleans()):
                staying = data.draw(st.sampled_from([[0], [1], list(range(len(going)))[::-1]]))
                branches.select(torch.tensor(staying))
                texts, going = [texts[place] for place in staying], [going[place] for place in staying]
            width = data.draw(st.integers(1, 3))
            parents = [[data.draw(st.integers(0, len(row) - 1)) for _ in range(width)] for row in texts]
            new = [[data.draw(st.integers(0, VOCABULARY - 1)) for _ in range(width)] for _ in texts]
            texts = [
                [[*row[parent], token] for parent, token in zip(*chosen, strict=True)]
                for row, *chosen in zip(texts, parents, new, strict=True)
            ]
            logits_BTV = branches.advance(torch.tensor(parents), torch.tensor(new))
            for place, row in enumerate(going):
                text_NL = torch.tensor(texts[place])
                source = (SOURCE_BM[row : row + 1, : SOURCE_COUNT_B[row]].expand(width, -1),) if encoding else ()
                torch.testing.assert_close(logits_BTV[place], model(*source, text_NL)[:, -1], atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize(
    ("changes", "kind"),
    [({}, SharedBranches), ({"positions": "t5"}, CopiedBranches), ({"window": 3}, CopiedBranches)],
)
def test_the_cheapest_that_the_model_can_do(changes: dict[str, Any], kind: type[Any]) -> None:
    model = small_model("decoder_only", **changes)
    assert isinstance(branches_of(model, model.start()), kind)


def test_shared_branches_move_nothing() -> None:
    """A beam that is reordered leaves keys, values and source where they are."""
    model = small_model("encoder_decoder")
    with torch.inference_mode():
        _, state = model.step(tokens(2, 1), model.start(tokens(2, 4, seed=7), room=16))
        places = [cache.keys_BGMK.data_ptr() for cache in (*state.own, *state.cross)]
        branches = SharedBranches(model, state)
        branches.advance(torch.tensor([[0, 0], [0, 0]]), torch.tensor([[1, 2], [3, 4]]))
        branches.advance(torch.tensor([[1, 0], [1, 1]]), torch.tensor([[5, 6], [7, 8]]))
    assert [cache.keys_BGMK.data_ptr() for cache in (*branches.state.own, *branches.state.cross)] == places
