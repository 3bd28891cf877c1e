"""The exact split of a logit into what each part of the model added to it.

Everything on the way from a part to the logit is linear once the statistics of the norms are held at what they were:
(x − μ) / σ · g + b with σ fixed is linear but for b, which is a share of its own. So

    logit = Σ token + position + heads + feed-forward layers + biases

for norms before, after, or around the sub-layers. The word head of an encoder bends its vector, f(z) = z · f(z)/z: here
the factor f(z)/z is held. What is not split is how a head's own output came about. In double precision.
"""

import contextlib
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from clearhead.errors import ConfigError, ShapeError
from clearhead.look.anatomy import Anatomy, Place, anatomy
from clearhead.look.capture import look
from clearhead.look.recording import Recording
from clearhead.nn.attention import MultiHeadAttention
from clearhead.nn.feedforward import FeedForward
from clearhead.nn.heads import Unembedding
from clearhead.nn.norm import ScaleNorm
from clearhead.nn.residual import Scale
from clearhead.nn.stack import DenseCombination

__all__ = ["Shares", "logit_shares"]

Parts = dict[str, Tensor]  # what each part has added to one vector, all of them (D,)
KINDS = ("head", "feedforward", "bias", "position", "tokens", "segments")


@dataclass(frozen=True)
class Shares:
    """What each part added to a logit, by name: `embed.tokens`, `decoder.1.cross.head.3`, `decoder.1.feedforward`, …"""

    of: dict[str, float]

    @property
    def total(self) -> float:
        """The logit, or the difference of two."""
        return sum(self.of.values())

    def by_kind(self) -> dict[str, float]:
        """The same, summed over heads, feed-forward layers, biases, positions, tokens and segments."""
        sums: defaultdict[str, float] = defaultdict(float)
        for name, value in self.of.items():
            sums[next(kind for kind in KINDS if kind in name.split(".")[-2:])] += value
        return dict(sums)


@torch.no_grad()
def logit_shares(
    model: nn.Module,
    run: Callable[[], object],
    word: int,
    *,
    against: int | None = None,
    row: int = 0,
    position: int = -1,
    without: Collection[str] = (),
) -> Shares:
    """The shares of the logit of `word` (less that of `against`) at one position of one row, in what `run` does.

    `run` makes one whole pass of the model, in evaluation and without packing; `without` are layers that are switched
    off meanwhile (`ablate`).
    """
    if model.training:
        raise ConfigError("shares are those of a model in evaluation, where nothing is dropped: call `eval()` first")
    parts = anatomy(model)
    names = [f"{parts.embed_name}.tokens", f"{parts.embed_name}.placed"]
    names += [f"{place.name}.heads" for layer in parts.places() for place in layer if place.part != "feedforward"]
    with look(model, names) as seen, _outputs(parts) as outputs:
        run()
    reader = _Reader(parts, seen, outputs, row, position)
    vectors, scale = reader.final(without)
    linear = parts.words.linear
    direction = linear.weight[word].double() - (0 if against is None else linear.weight[against].double())
    found = {name: float(vector @ direction) * scale for name, vector in vectors.items()}
    if linear.bias is not None:
        found["output.bias"] = float(linear.bias[word]) - (0.0 if against is None else float(linear.bias[against]))
    return Shares(found)


@contextlib.contextmanager
def _outputs(parts: Anatomy) -> Iterator[dict[int, list[Tensor]]]:
    """What the feed-forward layers and the segments said, by the module's id, in the order in which they did."""
    outputs: defaultdict[int, list[Tensor]] = defaultdict(list)
    modules = {id(place.sublayer): place.sublayer for layer in parts.places() for place in layer}
    if parts.embed.segments is not None:
        modules[id(parts.embed.segments)] = parts.embed.segments

    def keep(module: nn.Module, given: object, output: object) -> None:
        if isinstance(output, Tensor):
            outputs[id(module)].append(output.detach())

    with contextlib.ExitStack() as stack:
        for module in modules.values():
            stack.callback(module.register_forward_hook(keep).remove)
        yield outputs


class _Reader:
    """One position on its way through the stack, as the sum of what was added to it."""

    def __init__(
        self, parts: Anatomy, seen: Recording, outputs: dict[int, list[Tensor]], row: int, position: int
    ) -> None:
        self.parts, self.row, self.position = parts, row, position
        self.heads = {name: list(seen[name].values) for name in seen}
        self.outputs = {key: list(values) for key, values in outputs.items()}
        token_BLD = self.heads[f"{parts.embed_name}.tokens"][0]
        if len(self.heads[f"{parts.embed_name}.tokens"]) != 1:
            raise ShapeError("one whole pass is split, not several: give a run that makes one")
        if not (0 <= row < len(token_BLD) and -token_BLD.shape[1] <= position < token_BLD.shape[1]):
            raise ShapeError(f"a batch of {tuple(token_BLD.shape[:2])} has no {position=} of {row=}")

    def final(self, without: Collection[str]) -> tuple[Parts, float]:
        """The parts of the vector that meets the embeddings, and the factor on its logits."""
        head, layers = self.parts.head, [self._embedded()]
        for layer in self.parts.places():
            now = self._combined(layers)
            for place in layer if layer[0].block not in without else []:
                now = self._added(now, place)
            layers.append(now)
        now = _through(self.parts.stack.norm, self._combined(layers), f"{self.parts.stack_name}.norm")
        if isinstance(head, Unembedding):
            return now, head.scale
        now = _through(head.dense, now, "word_head.dense")
        z_D = _total(now)
        factor_D = torch.where(z_D == 0, 0.0, head.activation.bend(z_D) / z_D)
        return _through(head.norm, {n: x_D * factor_D for n, x_D in now.items()}, "word_head.norm"), head.words.scale

    def _at(self, x_BLD: Tensor) -> Tensor:
        return x_BLD[self.row if len(x_BLD) > 1 else 0, self.position].double()

    def _embedded(self) -> Parts:
        name, embed = self.parts.embed_name, self.parts.embed
        token_D, placed_D = (self._at(self.heads[f"{name}.{tap}"][0]) for tap in ("tokens", "placed"))
        parts = {f"{name}.tokens": token_D}
        if embed.segments is not None:
            parts[f"{name}.segments"] = self._at(self.outputs[id(embed.segments)][0])
        parts[f"{name}.position"] = placed_D - _total(parts)
        return _through(self.parts.widen, _through(embed.norm, parts, f"{name}.norm"), "widen")

    def _combined(self, layers: list[Parts]) -> Parts:
        """What the next layer reads of those below."""
        combine = self.parts.stack.combine
        if not isinstance(combine, DenseCombination):
            return layers[-1]
        mixed: Parts = {}
        for i, (parts, weight) in enumerate(zip(layers, combine.weights[len(layers) - 1].double(), strict=True)):
            for name, x_D in _through(combine.norms[i], parts, f"{self.parts.stack_name}.combine.{i}").items():
                mixed[name] = mixed.get(name, 0) + weight * x_D
        return mixed

    def _added(self, now: Parts, place: Place) -> Parts:
        residual, name = place.residual, place.residual_name
        branch = _through(residual.branch, self._said(place), f"{name}.branch")
        kept = _through(residual.keep, now, f"{name}.keep")
        both = kept | {part: kept.get(part, 0) + x_D for part, x_D in branch.items()}
        return _through(residual.after, both, f"{name}.after")

    def _said(self, place: Place) -> Parts:
        """What the sub-layer said at this position, head by head where it has any, its last bias apart."""
        if isinstance(place.sublayer, MultiHeadAttention):
            y_HK = self._heads(place)
            out = place.sublayer.out
            matrix_HDK = out.weight.double().unflatten(1, y_HK.shape).transpose(0, 1)
            each_HD = (matrix_HDK @ y_HK[:, :, None])[:, :, 0]
            parts = {f"{place.name}.head.{head}": x_D for head, x_D in enumerate(each_HD)}
            return parts if out.bias is None else {**parts, f"{place.name}.bias": out.bias.double()}
        said_D = self._at(self.outputs[id(place.sublayer)].pop(0))
        bias = place.sublayer.narrow.bias if isinstance(place.sublayer, FeedForward) else None
        if bias is None:
            return {place.name: said_D}
        return {place.name: said_D - bias.double(), f"{place.name}.bias": bias.double()}

    def _heads(self, place: Place) -> Tensor:
        y_BHLK = self.heads[f"{place.name}.heads"].pop(0)
        return y_BHLK[self.row, :, self.position].double()


def _total(parts: Parts) -> Tensor:
    return torch.stack(list(parts.values())).sum(0)


def _through(module: Callable[[Tensor], Tensor], parts: Parts, name: str) -> Parts:
    """The parts behind a module that is linear at this point, what it adds by itself under a name of its own."""
    whole_D = _total(parts)
    passed = {part: _linear(module, x_D, whole_D) for part, x_D in parts.items()}
    bias = getattr(module, "bias", None)
    if isinstance(bias, Tensor):
        passed[f"{name}.bias"] = passed.get(f"{name}.bias", 0) + bias.double()
    return passed


def _linear(module: Callable[[Tensor], Tensor], x_D: Tensor, whole_D: Tensor) -> Tensor:
    """What the module makes of x without its bias, its statistics being those of the whole."""
    match module:
        case nn.LayerNorm():
            scale = (whole_D.var(correction=0) + module.eps).rsqrt()
            return (x_D - x_D.mean()) * scale * module.weight.double()
        case nn.RMSNorm():
            eps = torch.finfo(module.weight.dtype).eps if module.eps is None else module.eps
            return x_D * (whole_D.square().mean() + eps).rsqrt() * module.weight.double()
        case ScaleNorm():
            return x_D * (module.gain.double() / whole_D.norm().clamp(min=module.eps))
        case Scale():
            return x_D * module.gain.double()
        case nn.Linear():
            return module.weight.double() @ x_D
        case _:  # an empty slot
            return x_D
