"""Look inside: record what passes the taps of a model, by readable names, in a whole pass and while it generates.

    with look(model, "decoder.*.cross.weights") as seen:
        model(source, target)
    seen["decoder.2.cross.weights"].tensor      # (rows, heads, queries, keys)

Only what was asked for is kept: detached, on the CPU, as a copy. Nobody else notices: what the model computes is what
it computes unwatched, to rounding where the explicit six steps stand in for the fused kernel.
"""

import difflib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase

import torch
from torch import Tensor, nn

from clearhead.errors import ConfigError
from clearhead.look.recording import Recording, Seen
from clearhead.models.vit import Vit
from clearhead.nn.attention import MultiHeadAttention, SelfProjection
from clearhead.nn.columns import ColumnTokens
from clearhead.nn.embed import TokenEmbedding
from clearhead.nn.feedforward import FeedForward
from clearhead.nn.heads import ClassHead, Unembedding
from clearhead.nn.memory import ProductKeyMemory
from clearhead.nn.residual import Residual
from clearhead.nn.stack import Stack
from clearhead.tap import named_taps, watching

__all__ = ["look", "matching", "tap_axes"]

BY_KEY = dict.fromkeys(("scores", "scaled", "bias", "masked", "weights"), "BHLM")

# the part that has the tap -> the tap -> the letters of what passes
AXES: Mapping[type[nn.Module], Mapping[str, str]] = {
    MultiHeadAttention: {"q": "BHLK", "k": "BGMK", "v": "BGMK", **BY_KEY, "heads": "BHLK", "output": "BLD"},
    TokenEmbedding: {"tokens": "BLD", "placed": "BLD", "sum": "BLD"},
    Residual: {"branch": "BLD", "sum": "BLD"},
    Stack: {"output": "BLD"},
    FeedForward: {"hidden": "BLF"},
    ProductKeyMemory: {"hidden": "BLHP"},
    Unembedding: {"logits": "BLV"},
    ClassHead: {"logits": "BLC"},
    ColumnTokens: {"tokens": "BLD"},
    Vit: {"patches": "BLD"},
}


def matching(model: nn.Module, patterns: str | Sequence[str]) -> list[str]:
    """The names of the taps that match any of the patterns (`*`, `?`, `[…]`), in the order of the model."""
    taps = list(named_taps(model))
    wanted = [patterns] if isinstance(patterns, str) else list(patterns)
    for pattern in wanted:
        if not any(fnmatchcase(name, pattern) for name in taps):
            near = difflib.get_close_matches(pattern, taps, n=3, cutoff=0.0)
            raise ConfigError(f"no tap matches {pattern!r}; this model has {len(taps)}, the nearest are {near}")
    return [name for name in taps if any(fnmatchcase(name, pattern) for pattern in wanted)]


def tap_axes(model: nn.Module, name: str, dims: int) -> str:
    """The letters of what passes that tap with so many dimensions; W stands for what nobody has named."""
    path, _, quantity = name.rpartition(".")
    owner = model.get_submodule(path)
    axes = AXES.get(type(owner), {}).get(quantity, "")
    if axes == "BGMK" and isinstance(owner, MultiHeadAttention) and isinstance(owner.project, SelfProjection):
        axes = "BGTK"  # a step shows the keys and values of its new tokens; those of a context pass whole
    if len(axes) == dims + 1:
        axes = axes.replace("L", "")  # one vector for each row, as of classes
    return axes if len(axes) == dims else "B" + "W" * (dims - 1)


@contextmanager
def look(
    model: nn.Module,
    names: str | Sequence[str],
    *,
    tokens: Mapping[str, Sequence[Sequence[str]]] | None = None,
    limit: int | None = None,
) -> Iterator[Recording]:
    """Record the taps whose names match while the context lasts.

    tokens   the texts by side, such as {"source": [[…]], "target": [[…]]}; `seen.tokens` may be filled later too
    limit    the most bytes that may be kept: beyond, the pass under way ends in an error

    Of a stack, a step ends when its output has passed; other taps pass once a step.
    """
    recording, clock, kept = Recording(tokens), _Clock(), 0

    def recorder(name: str, stack: str | None) -> Callable[[Tensor], Tensor]:
        def record(x: Tensor) -> Tensor:
            nonlocal kept
            kept += x.nbytes
            if limit is not None and kept > limit:
                raise ConfigError(
                    f"the recording outgrew its limit of {limit} bytes at {name!r}: ask for fewer names, or allow more"
                )
            seen = recording.passed.setdefault(name, Seen(name, tap_axes(model, name, x.dim())))
            seen.steps.append(len(seen.values) if stack is None else clock.passed.get(stack, 0))
            with torch.inference_mode(False):  # what is kept can be used anywhere
                seen.values.append(x.detach().cpu().clone(memory_format=torch.contiguous_format))
            return x

        return record

    stacks = [path for path, module in model.named_modules() if isinstance(module, Stack)]
    owner = {name: next((s for s in stacks if name.startswith(f"{s}.")), None) for name in matching(model, names)}
    hooks = {name: recorder(name, stack) for name, stack in owner.items()}
    ticks = {f"{stack}.output": clock.tick(stack) for stack in owner.values() if stack is not None}
    with watching(model, hooks), watching(model, ticks):
        yield recording


class _Clock:
    """How many passes each stack has finished."""

    def __init__(self) -> None:
        self.passed: dict[str, int] = {}

    def tick(self, stack: str) -> Callable[[Tensor], Tensor]:
        def count(x: Tensor) -> Tensor:
            self.passed[stack] = self.passed.get(stack, 0) + 1
            return x

        return count
