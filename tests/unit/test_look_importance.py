"""Importance against finite differences, plain loops and scipy-free ranks; gates against their own distribution."""

from functools import partial

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from clearhead.errors import ConfigError, ShapeError
from clearhead.look.ablate import ablate
from clearhead.look.importance import HeadGates, attention_names, by_ablation, by_gradient, spearman
from clearhead.look.prune import choose_heads, prune_heads
from clearhead.tap import named_taps, watching
from tests.unit.small import MODES, read, small_model, tokens


def row_losses(model) -> Tensor:
    """A sum of cubes for each row, of logits or of vectors: that of squares is the same for all that is normalised."""
    return read(model, tokens()).pow(3).sum((1, 2))


GATED = [(mode, {}) for mode in sorted(MODES)] + [("encoder_only", {"layers": 4, "distinct": 2})]


@pytest.mark.parametrize(("mode", "layers"), GATED)
def test_the_gradient_is_that_of_a_gate(mode: str, layers: dict[str, int]) -> None:
    model = small_model(mode, **layers).double()
    found = by_gradient(model, lambda m: row_losses(m).sum())
    assert list(found) == attention_names(model)
    path, step = list(found)[-1], 1e-5
    for head in range(4):
        losses = []
        for sign in (1, -1):
            gate = torch.ones(4, 1, 1, dtype=torch.float64)
            gate[head] += sign * step
            with watching(model, {f"{path}.heads": lambda y, gate=gate: y * gate}), torch.no_grad():
                losses.append(row_losses(model))
        by_hand = ((losses[0] - losses[1]) / (2 * step)).abs().mean()
        torch.testing.assert_close(found[path][head], by_hand, rtol=1e-4, atol=1e-8)
    assert not any(tap.watched for tap in named_taps(model).values())
    assert all(parameter.grad is None for parameter in model.parameters())
    unit = by_gradient(model, lambda m: row_losses(m).sum(), unit=True)
    torch.testing.assert_close(unit[path], found[path] / found[path].norm())


@pytest.mark.parametrize("layers", [{}, {"layers": 4, "distinct": 2}], ids=["own", "shared"])
def test_rows_matter_alike_in_any_batches(layers: dict[str, int]) -> None:
    model, token_BL = small_model("encoder_only", **layers, init="xavier").double(), tokens(8)

    def loss(sizes: tuple[int, ...], model: nn.Module) -> Tensor:
        return torch.cat([model(part)[:, :, 0].sum(1) for part in token_BL.split(sizes)]).sin().sum()

    alone = [by_gradient(model, lambda m, row=row: m(row[None])[:, :, 0].sum().sin()) for row in token_BL]
    for sizes in ((8,), (4, 4), (2, 2, 2, 2), (4, 3, 1)):
        found = by_gradient(model, partial(loss, sizes))
        for path, importance_H in found.items():
            torch.testing.assert_close(importance_H, torch.stack([one[path] for one in alone]).mean(0))


def test_ablation_is_the_growth_of_the_loss() -> None:
    model = small_model("encoder_decoder")
    found = by_ablation(model, lambda m: row_losses(m).sum(), names=["decoder.0.cross"])
    with torch.no_grad():
        whole = float(row_losses(model).sum())
        for head in range(4):
            with ablate(model, heads={"decoder.0.cross": [head]}):
                assert found["decoder.0.cross"][head] == pytest.approx(float(row_losses(model).sum()) - whole)


def test_a_head_that_does_nothing_does_not_matter() -> None:
    model = small_model("decoder_only")
    with torch.no_grad():
        model.decoder.layers[0].attention.out.weight.view(16, 4, 4)[:, 2] = 0.0
    for measure in (by_gradient, by_ablation):
        importance_H = measure(model, lambda m: row_losses(m).sum())["decoder.0.attention"]
        assert importance_H[2] == pytest.approx(0, abs=1e-6)
        assert (importance_H[[0, 1, 3]].abs() > 1e-6).all()


def test_a_loss_that_does_not_ask_is_refused() -> None:
    model = small_model("encoder_decoder")
    with pytest.raises(ConfigError, match=r"does not depend on 'decoder\.0\.attention'"):
        by_gradient(model, lambda m: m.encode(tokens())[0].sum())


def test_both_ways_rank_the_heads_of_a_trained_model_alike() -> None:
    """A model that has learned to copy the token before: what its gradient says, switching off confirms."""
    model = small_model("decoder_only", layers=1, positions="learned", init="xavier").train()
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-2)

    def loss(m, seed: int = 99) -> Tensor:
        token_BL = tokens(16, 8, seed)
        return F.cross_entropy(m(token_BL)[:, 1:].flatten(0, 1), token_BL[:, :-1].flatten(), reduction="sum")

    for seed in range(120):
        optimiser.zero_grad()
        (loss(model, seed) / 100).backward()
        optimiser.step()
    model.eval()
    gradient, growth = (torch.cat([*f(model, loss).values()]).double() for f in (by_gradient, by_ablation))
    assert spearman(gradient, growth) > 0.5
    kept = choose_heads(model, {"decoder.0.attention": growth}, 0.5)
    worst = {"decoder.0.attention": sorted(set(range(4)) - set(kept["decoder.0.attention"]))}
    with torch.no_grad():
        assert loss(prune_heads(model, kept)) < loss(prune_heads(model, worst))


def test_gates_are_open_as_often_as_the_penalty_says() -> None:
    gates = HeadGates({"a": 3}).train()
    with torch.no_grad():
        gates.openness[0].copy_(torch.tensor([-3.0, 0.0, 2.0]))
    drawn = torch.stack([gates.gate(0) for _ in range(4000)])
    assert ((drawn >= 0) & (drawn <= 1)).all()
    assert float((drawn > 0).double().mean(0).sum()) == pytest.approx(gates.penalty().item(), abs=0.05)
    gates.eval()
    assert torch.equal(gates.gate(0), gates.gate(0))


def test_gates_learn_which_heads_are_needed() -> None:
    model = small_model("decoder_only", layers=1, init="xavier").requires_grad_(False)
    with ablate(model, heads={"decoder.0.attention": [1, 2]}), torch.no_grad():
        wanted = read(model, tokens())  # heads 0 and 3 alone
    gates = HeadGates.of(model).train()
    optimiser = torch.optim.Adam(gates.parameters(), lr=0.1)
    for _ in range(150):
        optimiser.zero_grad()
        with gates.on(model):
            error = (read(model, tokens()) - wanted).square().sum()
        (10 * error + 0.1 * gates.penalty()).backward()
        optimiser.step()
    assert gates.eval().kept() == {"decoder.0.attention": [0, 3]}
    assert not any(tap.watched for tap in named_taps(model).values())


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=2, max_size=8))
def test_spearman_is_the_correlation_of_ranks(pairs: list[tuple[int, int]]) -> None:
    def ranks(values: list[int]) -> list[float]:
        places = sorted(values)
        return [sum(i for i, x in enumerate(places) if x == v) / places.count(v) for v in values]

    columns = [[pair[i] for pair in pairs] for i in (0, 1)]
    found = spearman(*(torch.tensor(column) for column in columns))
    if any(len(set(column)) == 1 for column in columns):
        assert found != found
    else:
        expected = torch.corrcoef(torch.tensor([ranks(column) for column in columns], dtype=torch.float64))[0, 1]
        assert found == pytest.approx(float(expected), abs=1e-9)


def test_ranks_of_different_lengths_are_refused() -> None:
    with pytest.raises(ShapeError, match=r"\(2,\), \(3,\)"):
        spearman(torch.zeros(2), torch.zeros(3))
