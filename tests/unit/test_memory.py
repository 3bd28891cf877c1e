"""Learned memories: persistent ones are extra keys and values, product keys find exactly the best slots."""

import itertools

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from clearhead.errors import ShapeError
from clearhead.nn.attention import MultiHeadAttention
from clearhead.nn.masks import EVERYTHING, Mask, causal, padding, window
from clearhead.nn.memory import PersistentMemory, ProductKeyMemory
from clearhead.nn.positions import POSITIONS, Place
from clearhead.nn.rows import Rows
from clearhead.tap import watching
from tests.parity.plain import plain_read, same
from tests.unit.small import small_model, tokens

MASKS = {
    "everything": EVERYTHING,
    "causal": causal(),
    "causal window": causal() & window(2),
    "padding": padding(Rows.of(torch.tensor([4, 2]), 4, pack=False)),
    "nothing": Mask(allowed=torch.zeros(4, 4, dtype=torch.bool)),
}


def seen_by(mask: Mask, b: int) -> Tensor:
    return mask.dense(4, 4).expand(2, 1, 4, 4)[b, 0]


@pytest.mark.parametrize("watched", [False, True], ids=["fused", "watched"])
@pytest.mark.parametrize("kv_heads", [2, 1])
@pytest.mark.parametrize("name", sorted(MASKS))
def test_memory_is_extra_keys_that_everybody_sees(name: str, kv_heads: int, watched: bool) -> None:
    """The oracle is a loop over the memory's slots and then the positions, of which the mask speaks alone."""
    slots, mask = 3, MASKS[name]
    attention = MultiHeadAttention(8, 2, kv_heads=kv_heads).remembering(slots).eval()
    assert attention.memory is not None
    x_BLD, seen = torch.randn(2, 4, 8), {}
    names = ("q", "k", "v", "heads", *(["weights"] if watched else []))
    with torch.no_grad(), watching(attention, {n: lambda x, n=n: seen.setdefault(n, x) for n in names}):
        attention(x_BLD, mask=mask)
    for b in range(2):
        allowed_LM = seen_by(mask, b)
        expected = plain_read(
            seen["q"][b],
            torch.cat([attention.memory.keys_GPK, seen["k"][b]], dim=1),
            torch.cat([attention.memory.values_GPK, seen["v"][b]], dim=1),
            lambda q, k, h, i, j: sum(x * y for x, y in zip(q, k, strict=True)) / 2,  # √K = 2
            lambda h, i, j, allowed_LM=allowed_LM: j < slots or bool(allowed_LM[i, j - slots]),  # type: ignore[misc]
        )
        same(seen["heads"][b], expected)


@pytest.mark.parametrize("positions", ["shaw", "t5", "alibi", "transformer_xl", "rotary"])
def test_memory_has_no_position(positions: str) -> None:
    """When all inputs are forbidden, only memory is read: every position reads by its query alone."""
    scheme = POSITIONS[positions](Place(8, 2, 4)).for_layer()
    attention = MultiHeadAttention(8, 2, positions=scheme).remembering(3).eval()
    assert attention.memory is not None
    seen: dict[str, Tensor] = {}
    with watching(attention, {n: lambda x, n=n: seen.setdefault(n, x) for n in ("q", "heads")}):
        attention(torch.randn(2, 4, 8), mask=MASKS["nothing"])
    weights = (seen["q"] @ attention.memory.keys_GPK.mT / 2).softmax(-1)
    same(seen["heads"], weights @ attention.memory.values_GPK)


def test_persistent_memory_trains_without_a_feed_forward_layer() -> None:
    model = small_model("decoder_only", persistent=4, feedforward="none").train()
    memories = [m for m in model.modules() if isinstance(m, PersistentMemory)]
    before = [m.values_GPK.detach().clone() for m in memories]
    token_BL = tokens(4, 6)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    losses = []
    for _ in range(8):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(token_BL[:, :-1]).flatten(0, 1), token_BL[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.9 * losses[0]
    assert len(memories) == 2
    assert not any(torch.equal(m.values_GPK, old) for m, old in zip(memories, before, strict=True))


@given(st.integers(2, 6), st.integers(1, 3), st.integers(1, 6), st.integers(0, 1000))
@torch.no_grad()
def test_product_keys_find_the_best_of_all_pairs(half_keys: int, heads: int, chosen: int, seed: int) -> None:
    torch.manual_seed(seed)
    chosen = min(chosen, half_keys)
    memory = ProductKeyMemory(5, half_keys=half_keys, heads=heads, chosen=chosen, key_width=4)
    x_BLD = torch.randn(2, 3, 5)
    score_BLHP, slot_BLHP = memory.find(x_BLD)
    assert score_BLHP.shape == slot_BLHP.shape == (2, 3, heads, chosen)
    first_HPK, second_HPK = memory.keys_HPK[:heads], memory.keys_HPK[heads:]
    for b, i, h in itertools.product(range(2), range(3), range(heads)):
        q = F.layer_norm(memory.query(x_BLD[b, i])[h * 4 : h * 4 + 4], (4,))
        every = {
            p * half_keys + r: float(q @ torch.cat([first_HPK[h, p], second_HPK[h, r]]))
            for p, r in itertools.product(range(half_keys), range(half_keys))
        }
        best = sorted(every.values(), reverse=True)[:chosen]
        assert score_BLHP[b, i, h].tolist() == pytest.approx(best, abs=1e-5)
        found = slot_BLHP[b, i, h].tolist()
        assert len(set(found)) == chosen
        assert [every[slot] for slot in found] == pytest.approx(best, abs=1e-5)


def test_product_keys_read_the_weighted_sum_over_heads() -> None:
    memory = ProductKeyMemory(5, half_keys=4, heads=2, chosen=3, key_width=4)
    x_BLD = torch.randn(2, 3, 5)
    y_BLD = memory(x_BLD)
    score_BLHP, slot_BLHP = memory.find(x_BLD)
    for b, i in itertools.product(range(2), range(3)):
        expected = sum(
            score_BLHP[b, i, h].softmax(-1)[p] * memory.values.weight[slot_BLHP[b, i, h, p]]
            for h, p in itertools.product(range(2), range(3))
        )
        same(y_BLD[b, i], expected)


def test_gradients_reach_only_the_values_that_were_read() -> None:
    memory = ProductKeyMemory(5, half_keys=4, heads=1, chosen=2, key_width=4)
    x_BLD = torch.randn(1, 1, 5)
    memory(x_BLD).sum().backward()
    read = set(memory.find(x_BLD)[1].flatten().tolist())
    assert memory.values.weight.grad is not None
    assert set(memory.values.weight.grad.abs().sum(-1).nonzero().flatten().tolist()) == read


@pytest.mark.parametrize("settings", [{"key_width": 5}, {"half_keys": 4, "chosen": 5}])
def test_product_keys_that_cannot_be(settings: dict[str, int]) -> None:
    name, value = list(settings.items())[-1]
    with pytest.raises(ShapeError, match=f"{name}={value}"):
        ProductKeyMemory(8, **settings)


@pytest.mark.parametrize("slots", [0, -1])
def test_persistent_memory_needs_a_slot(slots: int) -> None:
    with pytest.raises(ShapeError, match=f"slots={slots}"):
        MultiHeadAttention(8, 2).remembering(slots)
