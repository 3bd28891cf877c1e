"""Watched is unwatched, to 1e-5: every row of every table, in a whole pass and step by step."""

import itertools
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from clearhead.nn.attention import MultiHeadAttention
from clearhead.nn.masks import MASKS
from clearhead.nn.positions import POSITIONS, Place
from clearhead.nn.scores import SCORES
from clearhead.tap import named_taps, watching
from tests.contracts.covering import Setting, each, label
from tests.contracts.family import FACTORS, SOURCE_COUNTS, build, outputs, tokens

SETTINGS = [pytest.param(setting, id=label(setting)) for setting in each(FACTORS, "mode")]
GENERATING = [p for p in SETTINGS if p.values[0]["mode"] != "encoder_only"]
LENGTH, WIDTH = 5, 16
CUTS = ((0, 1, 2, 3, 4, 5, 6), (0, 3, 6))


def watched(model: nn.Module, seen: set[str]) -> AbstractContextManager[None]:
    """Every tap has a hook that only looks."""

    def looking(name: str) -> Callable[[Tensor], Tensor]:
        return lambda x: (seen.add(name), x)[1]

    return watching(model, {name: looking(name) for name in named_taps(model)})


def check_same(one: Tensor, other: Tensor) -> None:
    one, other = one.detach(), other.detach()
    scale = max(1.0, float(one.abs().max()))
    assert float((one - other).abs().max()) <= 1e-5 * scale


def test_every_row_of_every_table_is_met() -> None:
    for name, rows in FACTORS.items():
        assert {p.values[0][name] for p in SETTINGS} == set(rows)


@pytest.mark.parametrize("setting", SETTINGS)
def test_in_a_whole_pass(setting: Setting) -> None:
    model, seen = build(setting), set()
    plain = outputs(model, tokens())
    with watched(model, seen):
        check_same(outputs(model, tokens()), plain)
    assert any(name.endswith("attention.weights") for name in seen)


def stepped(model: Any, cuts: tuple[int, ...]) -> Tensor:
    given = (tokens(seed=9, length=5), SOURCE_COUNTS) if hasattr(model, "encoder") else ()
    state, parts = model.start(*given), []
    for a, b in itertools.pairwise(cuts):
        logits_BTV, state = model.step(tokens()[:, a:b], state)
        parts.append(logits_BTV)
    return torch.cat(parts, dim=1)


@pytest.mark.parametrize("setting", GENERATING)
@pytest.mark.parametrize("cuts", CUTS)
def test_in_steps(setting: Setting, cuts: tuple[int, ...]) -> None:
    model, seen = build(setting), set()
    plain = stepped(model, cuts)
    with watched(model, seen):
        check_same(stepped(model, cuts), plain)
    assert any(name.endswith("attention.weights") for name in seen)


@pytest.mark.parametrize("setting", GENERATING)
def test_watched_now_and_then(setting: Setting) -> None:
    """A step that is watched leaves the same cache behind as one that is not."""
    model = build(setting)
    given = (tokens(seed=9, length=5), SOURCE_COUNTS) if hasattr(model, "encoder") else ()
    state, parts = model.start(*given), []
    for place in range(4):
        if place % 2:
            with watched(model, set()):
                logits_BTV, state = model.step(tokens()[:, place : place + 1], state)
        else:
            logits_BTV, state = model.step(tokens()[:, place : place + 1], state)
        parts.append(logits_BTV)
    check_same(torch.cat(parts, dim=1), stepped(model, (0, 4)))


@pytest.mark.parametrize("mask", sorted(MASKS))
@pytest.mark.parametrize("positions", ["none", "t5", "rotary"])
@pytest.mark.parametrize("score", sorted(SCORES))
def test_under_any_mask(mask: str, positions: str, score: str) -> None:
    torch.manual_seed(0)
    place = Place(WIDTH, 4, 4, length=LENGTH)
    attention = MultiHeadAttention(
        WIDTH, 4, score=SCORES[score](4, 4, 1.0), positions=POSITIONS[positions](place).for_layer()
    ).eval()
    x_BLD, seen = torch.randn(1, LENGTH, WIDTH), set()
    plain, _ = attention(x_BLD, mask=MASKS[mask](LENGTH))
    with watched(attention, seen):
        again, _ = attention(x_BLD, mask=MASKS[mask](LENGTH))
    check_same(again, plain)
    assert "weights" in seen
