"""The lens: what each layer would say if it were the last, with the final norm computed anew for its vectors.

    guess_l = words(norm(x_l)),    x_0 the embedding, x_l the stream after layer l

Where norms stand after the sum (post-norm) the stream leaves each layer normalised, and there is no final one. The last
guess is what the model says.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from clearhead.errors import ShapeError
from clearhead.look.anatomy import Anatomy, anatomy
from clearhead.look.capture import look
from clearhead.look.recording import Recording

__all__ = ["Lens", "lens", "stream"]


@dataclass(frozen=True)
class Lens:
    """The guesses of each layer: `layers[i]` says which, from the embedding to the last."""

    layers: tuple[str, ...]
    logits_XBLV: Tensor  # X runs over the layers

    def best(self, count: int = 1) -> tuple[Tensor, Tensor]:
        """Probabilities and numbers of the best words of each layer at each position, (X, B, L, count) both."""
        probability, word = self.logits_XBLV.softmax(-1).topk(count, dim=-1)
        return probability, word

    def rank(self, word_BL: Tensor) -> Tensor:
        """How many words each layer holds likelier than these, (X, B, L)."""
        own_XBL1 = self.logits_XBLV.gather(-1, word_BL.expand(len(self.layers), -1, -1)[..., None])
        return (self.logits_XBLV > own_XBL1).sum(-1)


@torch.no_grad()
def lens(model: nn.Module, run: Callable[[], object], *, without: Collection[str] = ()) -> Lens:
    """The guesses of each layer in what `run` does, one whole pass of the model without packing.

    without   layers that are switched off (`ablate`): behind them the stream is as it was before
    """
    parts = anatomy(model)
    after = [layer[-1].residual_name for layer in parts.places()]
    with look(model, [f"{parts.embed_name}.sum", *(f"{name}.sum" for name in after)]) as seen:
        run()
    streams = stream(parts, seen, without=without)
    device = next(model.parameters()).device
    guesses = []
    for layer in range(len(streams)):
        x_BLD = parts.stack.norm(parts.stack.combine([x.to(device) for x in streams[: layer + 1]]))
        guesses.append(parts.head(x_BLD))
    layers = (parts.embed_name, *(layer[0].block for layer in parts.places()))
    return Lens(layers, torch.stack(guesses))


def stream(parts: Anatomy, seen: Recording, *, without: Collection[str] = ()) -> list[Tensor]:
    """The stream before the first layer and after each, as it was recorded in one whole pass."""
    given = {name: list(seen[name].values) for name in seen}
    names = [f"{layer[-1].residual_name}.sum" for layer in parts.places()]
    embedded = given[f"{parts.embed_name}.sum"]
    if len(embedded) != 1:
        raise ShapeError(f"one whole pass is looked at, not {len(embedded)} of them: give a run that makes one")
    weight = parts.embed.tokens.weight
    streams = [parts.widen(embedded[0].to(weight.device))]
    for layer, name in zip(parts.places(), names, strict=True):
        said_BLD = given[name].pop(0)
        streams.append(parts.stack.combine(streams) if layer[0].block in without else said_BLD)
    return streams
