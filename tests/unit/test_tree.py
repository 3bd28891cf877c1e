"""Branches that share a cache see what they would see in a cache of their own."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from clearhead.models.decoder_only import DecoderOnly, DecoderOnlyConfig
from clearhead.nn import tree
from clearhead.nn.cache import State

WORDS, BRANCHES = 11, 3


def small_model(positions: str = "rotary") -> DecoderOnly:
    torch.manual_seed(0)
    return DecoderOnly(
        DecoderOnlyConfig(
            vocabulary=WORDS, width=16, heads=2, layers=2, hidden=16, positions=positions, init="xavier", length=64
        )
    ).eval()


MODEL = small_model()


def walk(parents: list[list[int]], lengths: list[int], seed: int) -> tuple[list[Tensor], list[list[list[int]]], State]:
    """Logits of every step, what each branch of each row has read by then, and the state in the end."""
    chance = torch.Generator().manual_seed(seed)
    prompt_BT = torch.randint(WORDS, (len(lengths), max(lengths)), generator=chance)
    count_B = torch.tensor(lengths) if min(lengths) < max(lengths) else None
    _, state = MODEL.step(prompt_BT, MODEL.start(room=2), count_B=count_B, last=True)
    read = [[row[:length]] for row, length in zip(prompt_BT.tolist(), lengths, strict=True)]
    steps = []
    for number, parent in enumerate(parents):
        parent_T = [0] * BRANCHES if number == 0 else parent
        token_BT = torch.randint(WORDS, (len(lengths), BRANCHES), generator=chance)
        logits_BTV, state = MODEL.step(token_BT, state.branch(torch.tensor([parent_T] * len(lengths))))
        read = [
            [row[p] + [token] for p, token in zip(parent_T, tokens, strict=True)]
            for row, tokens in zip(read, token_BT.tolist(), strict=True)
        ]
        steps.append(logits_BTV)
    return steps, read, state


PARENTS = st.lists(st.lists(st.integers(0, BRANCHES - 1), min_size=BRANCHES, max_size=BRANCHES), min_size=1, max_size=9)


@torch.inference_mode()
@given(parents=PARENTS, lengths=st.lists(st.integers(1, 4), min_size=1, max_size=3), few=st.sampled_from([2, 64]))
def test_a_branch_is_a_row_of_its_own(parents: list[list[int]], lengths: list[int], few: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tree, "FEW", few)  # with 2, dead slots are cleared as soon as they are half of all
        steps, read, _ = walk(parents, lengths, seed=1)
    for row, branches in enumerate(read):
        for branch, tokens in enumerate(branches):
            alone_LV = MODEL(torch.tensor([tokens]))[0]
            torch.testing.assert_close(steps[-1][row, branch], alone_LV[-1], rtol=1e-4, atol=1e-5)


@torch.inference_mode()
def test_what_no_branch_sees_is_cleared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tree, "FEW", 6)
    _, _, state = walk([[0] * BRANCHES] * 20, [2], seed=1)  # one of three lives on at every step
    assert state.tree is not None
    assert state.tree.depth == 20
    assert state.tree.seen_BTS.shape[2] < 2 * (20 + BRANCHES) + 6 < 20 * BRANCHES
    assert state.own[0].length == 2 + state.tree.seen_BTS.shape[2]


@torch.inference_mode()
def test_rows_leave_with_their_branches() -> None:
    _, read, state = walk([[0, 0, 0], [2, 0, 1]], [1, 3, 2], seed=2)
    token_BT = torch.tensor([[1, 2, 3], [4, 5, 6]])
    logits_BTV, _ = MODEL.step(token_BT, state.select(torch.tensor([2, 0])).branch(torch.tensor([[0, 1, 2]] * 2)))
    for place, row in enumerate((2, 0)):
        for branch in range(BRANCHES):
            tokens = read[row][branch] + [int(token_BT[place, branch])]
            alone_LV = MODEL(torch.tensor([tokens]))[0]
            torch.testing.assert_close(logits_BTV[place, branch], alone_LV[-1], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("positions", "able"), [("rotary", True), ("learned", True), ("alibi", False), ("t5", False)])
def test_models_know_whether_they_can(positions: str, able: bool) -> None:
    assert small_model(positions).branches is able
