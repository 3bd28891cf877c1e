"""Switch parts of a model off, or put something else in their place, and leave no trace.

    with ablate(model, heads={"decoder.2.attention": [0, 3]}, layers=["encoder.1"]):
        model(…)                                   # a whole pass, or steps of a generation

What is replaced by the mean over a reference, or by another run's value (patching), is named by its tap:

    with ablate(model, replace={"decoder.*.cross.heads": mean(reference)}): …
    with ablate(model, replace={"decoder.1.add_attention.sum": patch(clean, positions=[4])}): …
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from clearhead.errors import ConfigError, ShapeError
from clearhead.look.capture import matching, tap_axes
from clearhead.look.recording import Recording
from clearhead.nn.attention import MultiHeadAttention
from clearhead.nn.block import Block
from clearhead.tap import watching

__all__ = ["Replacement", "ablate", "attention_at", "mean", "patch", "zero"]

Hook = Callable[[Tensor], Tensor]
# the name of a tap, and the letters of what passes it -> what goes on in place of it
Replacement = Callable[[str, Callable[[Tensor], str]], Hook]
NOTHING: Mapping[str, Any] = {}


@contextmanager
def ablate(
    model: nn.Module,
    *,
    heads: Mapping[str, Sequence[int]] = NOTHING,
    layers: Sequence[str] = (),
    positions: Mapping[str, Sequence[int]] = NOTHING,
    replace: Mapping[str, Replacement] = NOTHING,
) -> Iterator[None]:
    """Everything named is switched off while the context lasts; contexts may be nested.

    heads      of each attention (`decoder.2.attention`, `decoder.2.cross`), which heads give zeros
    layers     blocks (`decoder.1`) that become the identity: what goes in comes out, norms included
    positions  of each attention, which positions nobody may read; the rest shares the weight
    replace    taps, by patterns, and what stands in place of what passes: `zero()`, `mean(…)`, `patch(…)`
    """
    hooks: list[tuple[str, Hook]] = []
    for pattern, replacement in replace.items():
        hooks += [(name, replacement(name, partial(_axes_of, model, name))) for name in matching(model, pattern)]
    for path, chosen in heads.items():
        hooks.append((f"{path}.heads", _without_heads(attention_at(model, path), path, chosen)))
    for path, hidden in positions.items():
        hooks.append((f"{path}.masked", _hiding(attention_at(model, path), hidden)))
    blocks = [_block_at(model, path) for path in layers]
    with ExitStack() as stack:
        for name, hook in hooks:
            stack.enter_context(watching(model, {name: hook}))
        for block in blocks:
            stack.callback(block.register_forward_hook(_pass_by).remove)
        yield


def _axes_of(model: nn.Module, name: str, x: Tensor) -> str:
    return tap_axes(model, name, x.dim())


def attention_at(model: nn.Module, path: str) -> MultiHeadAttention:
    """The attention of that name."""
    attentions = {name: m for name, m in model.named_modules() if isinstance(m, MultiHeadAttention)}
    if path not in attentions:
        raise ConfigError(f"no attention is named {path!r}; there are {', '.join(attentions)}")
    return attentions[path]


def _block_at(model: nn.Module, path: str) -> Block:
    blocks = {name: m for name, m in model.named_modules() if isinstance(m, Block)}
    if path not in blocks:
        raise ConfigError(f"no layer is named {path!r}; there are {', '.join(blocks)}")
    return blocks[path]


def _without_heads(attention: MultiHeadAttention, path: str, chosen: Sequence[int]) -> Hook:
    if not all(0 <= head < attention.heads for head in chosen):
        raise ConfigError(f"{path!r} has the heads 0 to {attention.heads - 1}, not all of {list(chosen)}")
    return lambda y_BHLK: y_BHLK.index_fill(1, torch.tensor(list(chosen), dtype=torch.long, device=y_BHLK.device), 0.0)


def _hiding(attention: MultiHeadAttention, hidden: Sequence[int]) -> Hook:
    slots = 0 if attention.memory is None else attention.memory.slots  # these stand first, and at no position

    def hide(masked_BHLM: Tensor) -> Tensor:
        there = [slots + place for place in hidden if 0 <= place < masked_BHLM.shape[-1] - slots]
        return masked_BHLM.index_fill(-1, torch.tensor(there, dtype=torch.long, device=masked_BHLM.device), -torch.inf)

    return hide


def _pass_by(block: nn.Module, given: tuple[Any, ...], output: tuple[Tensor, Any]) -> tuple[Tensor, Any]:
    """The block still reads, so that its cache grows as ever; what it says is not heard."""
    if output[0].shape != given[0].shape:
        raise ShapeError(
            f"a layer that makes {tuple(output[0].shape)} of {tuple(given[0].shape)} cannot be the identity"
        )
    return given[0], output[1]


def zero() -> Replacement:
    """Zeros."""
    return lambda name, axes: torch.zeros_like


def mean(reference: Recording) -> Replacement:
    """The mean of the same quantity over all rows, positions and steps of a reference recording."""

    def replacement(name: str, axes: Callable[[Tensor], str]) -> Hook:
        seen = reference[name]
        over = [dim for dim, letter in enumerate(seen.axes) if letter in "BLTM"]
        if "L" in seen.axes and "M" in seen.axes:
            raise ShapeError(f"{name!r} has no mean over texts of different lengths: replace what one position has")
        sums = torch.stack([value.double().sum(over, keepdim=True) for value in seen.values]).sum(0)
        count = sum(value.numel() for value in seen.values) // sums.numel()
        average = sums / max(count, 1)
        return lambda x: average.to(x).expand_as(x)

    return replacement


def patch(
    other: Recording, *, heads: Sequence[int] | None = None, positions: Sequence[int] | None = None
) -> Replacement:
    """What another run had there, each time in its turn; of it these heads and positions alone, where any are named."""

    def replacement(name: str, axes: Callable[[Tensor], str]) -> Hook:
        coming = iter(other[name].values)

        def put(x: Tensor) -> Tensor:
            value = next(coming, None)
            if value is None or value.shape != x.shape:
                found = "no more" if value is None else f"{tuple(value.shape)}"
                raise ShapeError(f"the other run has {found} for {name!r} where {tuple(x.shape)} is needed")
            chosen = torch.ones_like(x, dtype=torch.bool)
            for letters, places in (("HG", heads), ("LTM", positions)):
                if places is not None:
                    chosen &= _at(x, _axis(axes(x), letters, name), places)
            return torch.where(chosen, value.to(x), x)

        return put

    return replacement


def _axis(axes: str, letters: str, name: str) -> int:
    for letter in letters:
        if letter in axes:
            return axes.index(letter)
    raise ConfigError(f"{name!r} has the axes {axes}: there is none of {letters} to choose from")


def _at(x: Tensor, dim: int, places: Sequence[int]) -> Tensor:
    """True at these places of that dimension, in a shape that broadcasts to x."""
    if not all(0 <= place < x.shape[dim] for place in places):
        raise ShapeError(f"there are {x.shape[dim]} places, not all of {list(places)}")
    marks = torch.zeros(x.shape[dim], dtype=torch.bool, device=x.device)
    marks[torch.tensor(list(places), dtype=torch.long, device=x.device)] = True
    return marks.view([-1 if d == dim else 1 for d in range(x.dim())])
