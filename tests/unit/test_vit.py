"""The vision Transformer: patches in their order, `[CLS]` before them, and every row of the tables at its place."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from clearhead.errors import ConfigError, ShapeError
from clearhead.models.presets import build, preset
from clearhead.models.vit import Vit, VitConfig
from clearhead.nn.feedforward import FEEDFORWARDS
from clearhead.nn.heads import POOLERS, POOLINGS
from clearhead.nn.init import INITS
from clearhead.nn.norm import NORMS
from clearhead.nn.positions import POSITIONS
from clearhead.nn.residual import RESIDUALS
from clearhead.nn.scores import SCORES
from clearhead.tap import named_taps, watching
from tests.parity.plain import same

SIZES: dict[str, Any] = {"image": 6, "patch": 2, "channels": 2, "classes": 3, "width": 8, "heads": 4, "hidden": 12}
TABLES: dict[str, dict[str, Any]] = {
    "positions": POSITIONS, "residual": RESIDUALS, "norm": NORMS, "feedforward": FEEDFORWARDS, "score": SCORES,
    "pooling": POOLINGS, "pooler": POOLERS, "init": INITS,
}  # fmt: skip
ROWS = [(setting, name) for setting, table in TABLES.items() for name in table]


def small(**changes: Any) -> Vit:
    torch.manual_seed(0)
    model = Vit(VitConfig(**{**SIZES, "layers": 2, "dropout": 0.0, **changes}))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model.eval()


def images(count: int = 3) -> Tensor:
    return torch.randn(count, 2, 6, 6, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize(("setting", "name"), ROWS)
def test_every_row_of_every_table(setting: str, name: str) -> None:
    model, image_BCLM = small(**{setting: name}), images()
    logits_BC = model.classes(image_BCLM)
    assert model(image_BCLM).shape == (3, 1 + 9, 8)
    assert logits_BC.shape == (3, 3)
    same(logits_BC[1], model.classes(image_BCLM[1:2])[0])  # alone as in company
    with watching(model, {tap: lambda x: x for tap in named_taps(model)}):
        same(model.classes(image_BCLM), logits_BC)  # watched as fused
    (logits_BC * torch.randn(3, 3)).sum().backward()
    assert not [one for one, p in model.named_parameters() if p.grad is None or not p.grad.abs().max() > 0]


def test_patches_go_line_by_line_behind_the_first() -> None:
    model, image_BCLM = small(positions="none"), images(1)
    seen: list[Tensor] = []
    with watching(model, {"patches": lambda x: (seen.append(x), x)[1]}):
        model(image_BCLM)
    kernel_DP = model.patches.project.weight.flatten(1)
    for place in range(9):
        line, column = divmod(place, 3)
        pixels_P = image_BCLM[0, :, 2 * line : 2 * line + 2, 2 * column : 2 * column + 2].flatten()
        same(seen[0][0, place], kernel_DP @ pixels_P + model.patches.project.bias)


@pytest.mark.parametrize(("positions", "told"), [("none", False), ("learned", True)])
def test_positions_tell_where_a_patch_is(positions: str, told: bool) -> None:
    """Without positions an image is a set of patches: exchanged, they give the same class."""
    model, image_BCLM = small(positions=positions), images(1)
    exchanged = image_BCLM.roll(2, dims=3)
    differ = not torch.allclose(model.classes(image_BCLM), model.classes(exchanged), atol=1e-5)
    assert differ == told


REFUSALS: list[tuple[Callable[[], object], type[Exception], str]] = [
    (lambda: VitConfig(image=30, patch=16), ConfigError, "divide into patches: image=30, patch=16"),
    (lambda: VitConfig(channels=0), ConfigError, "channels=0"),
    (lambda: VitConfig(dropout=1.0), ConfigError, "dropout=1.0"),
    (lambda: small()(torch.zeros(1, 2, 6, 8)), ShapeError, "6 × 6 pixels, not of 6 × 8"),
    (lambda: small(classes=0).classes(images()), ConfigError, "`classes`"),
]


@pytest.mark.parametrize(("attempt", "kind", "sentence"), REFUSALS, ids=[sentence for *_, sentence in REFUSALS])
def test_what_cannot_be(attempt: Callable[[], object], kind: type[Exception], sentence: str) -> None:
    with pytest.raises(kind, match=sentence):
        attempt()


def test_operations_are_counted() -> None:
    """Two for each weight and position, and 4 · H · L² · K for the scores and what they read."""
    model = small(layers=1)
    weights = 4 * 8 * 8 + 2 * 8 * 12
    assert model.flops(2) == 2 * (2 * 9 * 8 * 8 + 2 * 10 * weights + 4 * 8 * 10 * 10)


def test_the_preset_is_built() -> None:
    config = preset("vit-tiny", classes=7, layers=1)
    model = build(config)
    assert isinstance(model, Vit)
    side = model.config.image
    assert model.classes(torch.zeros(1, model.config.channels, side, side)).shape == (1, 7)
