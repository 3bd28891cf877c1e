"""What every member of the family promises, whatever it is made of."""

import itertools
from typing import Any

import pytest
import torch
from torch import nn

from clearhead.models.encoder_decoder import EncoderDecoder
from clearhead.models.encoder_only import EncoderOnly
from clearhead.nn.cache import State
from clearhead.tap import named_taps, watching
from tests.contracts.covering import Setting, label, pairwise, sample
from tests.contracts.family import (
    BATCH,
    COUNTS,
    FACTORS,
    LENGTH,
    SOURCE_COUNTS,
    VOCABULARY,
    WIDTH,
    build,
    outputs,
    real,
    tokens,
    total,
)

COVERING = pairwise(FACTORS)
SETTINGS = [
    *(pytest.param(setting, id=label(setting)) for setting in COVERING),
    *(pytest.param(s, id="more-" + label(s), marks=pytest.mark.slow) for s in sample(FACTORS, 400)),
]
GENERATING = [p for p in SETTINGS if p.values[0]["mode"] != "encoder_only"]
CLOSE = {"atol": 2e-5, "rtol": 1e-4}


@pytest.fixture
def model(setting: Setting) -> nn.Module:
    return build(setting)


def start(model: Any, room: int = 0) -> State:
    if isinstance(model, EncoderDecoder):
        state: State = model.start(tokens(seed=9, length=5), SOURCE_COUNTS, room=room)
    else:
        state = model.start(room=room)
    return state


def test_the_settings_cover_every_pair_of_rows() -> None:
    for a, b in [("score", "positions"), ("residual", "feedforward"), ("mode", "positions"), ("norm", "kv_heads")]:
        met = {(s[a], s[b]) for s in COVERING}
        assert met == {(x, y) for x in FACTORS[a] for y in FACTORS[b]}


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_shapes_and_dtypes(model: nn.Module, setting: Setting, dtype: torch.dtype) -> None:
    y = outputs(model.to(dtype), tokens())
    assert y.shape == (BATCH, LENGTH, WIDTH if setting["mode"] == "encoder_only" else VOCABULARY)
    assert y.dtype == dtype
    assert torch.isfinite(y).all()


@pytest.mark.parametrize("setting", GENERATING)
def test_no_position_looks_ahead(model: nn.Module) -> None:
    token = tokens()
    changed = token.clone()
    changed[:, 4] = (changed[:, 4] + 1) % VOCABULARY
    y, z = outputs(model, token, None), outputs(model, changed, None)
    torch.testing.assert_close(y[:, :4], z[:, :4], **CLOSE)
    assert not torch.equal(y[:, 4:], z[:, 4:])


@pytest.mark.parametrize("setting", SETTINGS)
def test_padding_changes_nothing(model: nn.Module) -> None:
    token = tokens()
    changed = torch.where(torch.arange(LENGTH) < COUNTS[:, None], token, (token + 3) % VOCABULARY)
    longer = torch.cat([changed, tokens(seed=4, length=2)], dim=1)
    y = real(outputs(model, token))
    torch.testing.assert_close(y, real(outputs(model, changed)), **CLOSE)
    torch.testing.assert_close(y, real(outputs(model, longer)), **CLOSE)
    for row, count in enumerate(COUNTS):  # alone as in company
        alone = outputs(model, token[:, :count], None)[row] if not isinstance(model, EncoderDecoder) else None
        if alone is not None:
            torch.testing.assert_close(outputs(model, token)[row, :count], alone, **CLOSE)


@pytest.mark.parametrize("setting", SETTINGS)
def test_packed_is_padded(model: Any) -> None:
    token = tokens()
    if isinstance(model, EncoderDecoder):
        given = {"source_count_B": SOURCE_COUNTS, "target_count_B": COUNTS}
        packed, rows = model.hidden(tokens(seed=9, length=5), token, **given, pack=True)
    else:
        packed, rows = model.hidden(token, count_B=COUNTS, pack=True)
    assert packed.shape[:2] == (1, COUNTS.sum())
    y = packed if isinstance(model, EncoderOnly) else model.output(packed)
    torch.testing.assert_close(y[0], real(outputs(model, token)), **CLOSE)
    torch.testing.assert_close(real(rows.unpack(y)), y[0])


@pytest.mark.parametrize("setting", GENERATING)
def test_one_step_at_a_time_is_all_at_once(model: Any) -> None:
    token = tokens()
    whole = outputs(model, token, None)
    for room, cuts in ((0, (0, 1, 2, 3, 4, 5, 6)), (8, (0, 4, 5, 6)), (2, (0, 2, 6))):
        state, parts = start(model, room), []
        for a, b in itertools.pairwise(cuts):
            logits, state = model.step(token[:, a:b], state)
            parts.append(logits)
        torch.testing.assert_close(torch.cat(parts, dim=1), whole, **CLOSE)


@pytest.mark.parametrize("setting", GENERATING)
def test_ragged_rows_step_as_they_would_alone(model: Any) -> None:
    token = tokens()
    whole = outputs(model, token, None)
    begun = torch.tensor([3, 1, 2])
    logits, state = model.step(token[:, :3], start(model), count_B=begun, last=True)
    torch.testing.assert_close(logits[:, 0], whole[torch.arange(BATCH), begun - 1], **CLOSE)
    for i in range(3):
        place = begun + i
        logits, state = model.step(token[torch.arange(BATCH), place][:, None], state)
        torch.testing.assert_close(logits[:, 0], whole[torch.arange(BATCH), place], **CLOSE)


@pytest.mark.parametrize("setting", GENERATING)
def test_rows_can_be_chosen_joined_and_forked(model: Any) -> None:
    token = tokens()
    whole = outputs(model, token, None)
    _, state = model.step(token[:, :3], start(model))
    chosen = torch.tensor([2, 0, 0])
    picked, _ = model.step(token[chosen, 3:4], state.select(chosen))
    torch.testing.assert_close(picked[:, 0], whole[chosen, 3], **CLOSE)
    first, _ = model.step(token[:, 3:4], state)  # writes behind `state`
    other, _ = model.step((token[:, 3:4] + 1) % VOCABULARY, state)  # a fork: must not overwrite
    again, _ = model.step(token[:, 3:4], state)
    torch.testing.assert_close(first, again, **CLOSE)
    assert not torch.equal(first, other)
    _, longer = model.step(token[:, 3:5], state)
    joined, _ = model.step(torch.cat([token[:, 3:4], token[:, 5:6]]), state.join(longer))
    torch.testing.assert_close(joined[:, 0], torch.cat([whole[:, 3], whole[:, 5]]), **CLOSE)


@pytest.mark.parametrize("setting", SETTINGS)
def test_watched_is_fused(model: nn.Module) -> None:
    token = tokens()
    seen = []
    hooks = {name: (lambda x, name=name: (seen.append(name), x)[1]) for name in named_taps(model)}
    with watching(model, hooks):
        watched = outputs(model, token)
    torch.testing.assert_close(watched, outputs(model, token), **CLOSE)
    assert any(name.endswith("attention.weights") for name in seen)
    assert not any(tap.watched for tap in named_taps(model).values())


@pytest.mark.parametrize("setting", SETTINGS)
def test_gradients_reach_every_parameter(model: nn.Module) -> None:
    total(model.train(), tokens()).backward()
    without = [n for n, p in model.named_parameters() if p.grad is None or not p.grad.abs().max() > 0]
    assert not without
    assert all(torch.isfinite(p.grad).all() for p in model.parameters() if p.grad is not None)


@pytest.mark.parametrize("setting", SETTINGS)
def test_state_dict_round_trip(model: nn.Module, setting: Setting) -> None:
    other = build(setting, seed=1)
    assert not torch.equal(outputs(other, tokens()), outputs(model, tokens()))
    other.load_state_dict(model.state_dict())
    torch.testing.assert_close(outputs(other, tokens()), outputs(model, tokens()), atol=0, rtol=0)
