"""Taps: named places where a quantity passes, to be watched or edited from outside.

A tap is a plain object, not an `nn.Module`: calling a module costs a fifth of a small decoding step,
calling a tap that nobody watches is lost in the noise. A module keeps its taps in attributes that
start with `see_`; the tap `see_weights` of the module at `decoder.2.cross` is known to the outside as
`decoder.2.cross.weights`.
"""

import difflib
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from torch import Tensor, nn

from clearhead.errors import ConfigError

__all__ = ["Tap", "named_taps", "watching"]

Hook = Callable[[Tensor], Tensor]
PREFIX = "see_"


class Tap:
    """The identity, until somebody outside gives it a hook: what the hook returns goes on in its place.

    >>> tap = Tap()
    >>> tap(3)
    3
    >>> tap.hook = lambda x: x + 1
    >>> tap(3)
    4
    """

    __slots__ = ("hook",)

    def __init__(self) -> None:
        self.hook: Hook | None = None

    def __call__(self, x: Tensor) -> Tensor:
        return x if self.hook is None else self.hook(x)

    @property
    def watched(self) -> bool:
        return self.hook is not None


def named_taps(model: nn.Module) -> dict[str, Tap]:
    """Every tap below `model` by its readable name, in the order of the modules."""
    return {
        f"{path}.{attribute.removeprefix(PREFIX)}".lstrip("."): value
        for path, module in model.named_modules()
        for attribute, value in vars(module).items()
        if isinstance(value, Tap)
    }


@contextmanager
def watching(model: nn.Module, hooks: dict[str, Hook]) -> Iterator[None]:
    """Put each hook on the tap of that name; on leaving, every tap is as it was before.

    A tap that is watched already keeps its hook: the new one sees what the older one returned.
    """
    taps = named_taps(model)
    unknown = sorted(set(hooks) - set(taps))
    if unknown:
        near = difflib.get_close_matches(unknown[0], taps, n=3) or sorted(taps)[:3]
        raise ConfigError(f"no tap is named {unknown[0]!r}; this model has {len(taps)}, such as {near}")
    before = {name: taps[name].hook for name in hooks}
    try:
        for name, hook in hooks.items():
            taps[name].hook = _chain(taps[name].hook, hook)
        yield
    finally:
        for name, older in before.items():
            taps[name].hook = older


def _chain(older: Hook | None, newer: Hook) -> Hook:
    return newer if older is None else lambda x: newer(older(x))
