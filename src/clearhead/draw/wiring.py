"""The wiring of a model, read off its modules: towers of blocks, sub-layers in their residuals, norms where they stand.

Nothing here is drawn and nothing is assumed about a model's name: what a diagram shows is what the modules are.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import groupby

from torch import nn

from clearhead.errors import ConfigError
from clearhead.nn.attention import CrossProjection, MultiHeadAttention
from clearhead.nn.block import Block
from clearhead.nn.columns import ColumnAwareCategories, ColumnTokens, Scalars, WithMissing
from clearhead.nn.dropout import Dropout
from clearhead.nn.embed import PatchEmbedding, TokenEmbedding
from clearhead.nn.feedforward import FeedForward
from clearhead.nn.first import First, FirstAsks
from clearhead.nn.heads import ClassHead, Pooler, Unembedding, WordHead
from clearhead.nn.memory import ProductKeyMemory
from clearhead.nn.norm import LayerNorm, RMSNorm, ScaleNorm
from clearhead.nn.positions import Unmoved
from clearhead.nn.positions_absolute import LearnedEmbedding, SinusoidalEmbedding
from clearhead.nn.residual import Residual, Scale
from clearhead.nn.stack import DenseCombination, Stack

__all__ = ["BlockPlan", "Part", "SublayerPlan", "Tower", "label_of", "plan", "sublayer_plan"]


@dataclass(frozen=True)
class Part:
    """A box of the diagram: what it is, its sizes, and the kind that gives it its colour."""

    name: str
    sizes: str = ""
    kind: str = "other"


@dataclass(frozen=True)
class SublayerPlan:
    """x ← after(keep(x) + branch(sublayer(before(x)))): the slots that are filled; `kept` says whether x is added."""

    sublayer: Part
    before: Part | None = None
    branch: Part | None = None
    after: Part | None = None
    keep: Part | None = None
    kept: bool = True

    @property
    def formula(self) -> str:
        """The same as a line of mathematics, with F for the sub-layer."""
        inner = f"F({_around(self.before, 'x')})"
        inner = inner if self.branch is None else _around(self.branch, inner)
        stream = "" if not self.kept else "x + " if self.keep is None else f"{_around(self.keep, 'x')} + "
        return _around(self.after, stream + inner)


@dataclass(frozen=True)
class BlockPlan:
    """The sub-layers of a block, in the order in which they run."""

    sublayers: tuple[SublayerPlan, ...]


@dataclass(frozen=True)
class Tower:
    """One stack with what stands below and above it; `blocks` in groups of equal ones with their number.

    heads   chains of parts that stand side by side on the top: each of them can be asked by itself
    """

    name: str
    below: tuple[Part, ...]
    blocks: tuple[tuple[BlockPlan, int], ...]
    above: tuple[Part, ...]
    heads: tuple[tuple[Part, ...], ...] = ()
    dense: bool = False

    @property
    def layers(self) -> int:
        return sum(count for _, count in self.blocks)


def _around(part: Part | None, inner: str) -> str:
    if part is None:
        return inner
    if part.kind == "scale":
        return f"{part.name} {inner}"
    return f"{'LN' if part.kind == 'norm' else part.name}({inner})"


def _attention(module: nn.Module, name: str = "self-attention") -> Part:
    assert isinstance(module, MultiHeadAttention)
    name = "cross-attention" if isinstance(module.project, CrossProjection) else name
    shared = "" if module.kv_heads == module.heads else f", {module.kv_heads} of keys"
    return Part(name, f"{module.heads} heads × {module.head_width}{shared}", "attention")


def _first(module: nn.Module) -> Part:
    assert isinstance(module, FirstAsks)
    return Part("the first asks", _attention(module.attention).sizes, "attention")


def _feedforward(module: nn.Module) -> Part:
    assert isinstance(module, FeedForward)
    gated = ", gated" if module.activation.gated else ""
    return Part("feed-forward", f"{module.width} → {module.hidden}{gated}", "feedforward")


def _scale(module: nn.Module) -> Part:
    assert isinstance(module, Scale)
    learned = isinstance(module.gain, nn.Parameter)
    letter = "ω ⊙" if module.gain.ndim else "α" if learned else f"{float(module.gain):.3g}"
    return Part(letter, "", "scale")


def _embedding(module: nn.Module) -> Part:
    assert isinstance(module, TokenEmbedding)
    return Part("embedding", f"{module.tokens.num_embeddings} × {module.tokens.embedding_dim}", "embed")


def _patches(module: nn.Module) -> Part:
    assert isinstance(module, PatchEmbedding)
    return Part("patches", f"{module.patch} × {module.patch} pixels", "embed")


def _words(module: nn.Module) -> Part:
    linear = module.words.linear if isinstance(module, WordHead) else module.linear
    assert isinstance(linear, nn.Linear)
    return Part("word head" if isinstance(module, WordHead) else "linear", f"→ {linear.out_features}", "head")


# What a module is -> its box. What is not in the table goes by the name of its class.
LABELS: dict[type[nn.Module], Callable[[nn.Module], Part]] = {
    MultiHeadAttention: _attention,
    FirstAsks: _first,
    FeedForward: _feedforward,
    ProductKeyMemory: lambda module: Part("product-key memory", "", "feedforward"),
    LayerNorm: lambda module: Part("LayerNorm", "", "norm"),
    RMSNorm: lambda module: Part("RMSNorm", "", "norm"),
    ScaleNorm: lambda module: Part("ScaleNorm", "", "norm"),
    Scale: _scale,
    First: lambda module: Part("first", "", "other"),
    TokenEmbedding: _embedding,
    PatchEmbedding: _patches,
    ColumnTokens: lambda module: Part("column tokens", "", "embed"),
    ColumnAwareCategories: lambda module: Part("column tokens", "", "embed"),
    LearnedEmbedding: lambda module: Part("+ learned positions", "", "embed"),
    SinusoidalEmbedding: lambda module: Part("+ sinusoids", "", "embed"),
    Unembedding: _words,
    WordHead: _words,
    ClassHead: _words,
    Pooler: lambda module: Part("pooling", "", "head"),
    nn.Linear: lambda module: Part("linear", f"→ {module.out_features}", "other"),
    nn.Sequential: lambda module: Part("MLP", "", "head"),
}
SILENT = (Dropout, nn.Identity, Unmoved)  # what leaves no trace in a diagram


def label_of(module: nn.Module) -> Part:
    """The box of a module."""
    make = LABELS.get(type(module))
    return Part(type(module).__name__) if make is None else make(module)


def sublayer_plan(residual: Residual, sublayer: Part) -> SublayerPlan:
    """A sub-layer with the slots of its residual that are filled by modules."""
    slots = {name: getattr(residual, name) for name in ("before", "branch", "after", "keep")}
    parts = {name: label_of(slot) if isinstance(slot, nn.Module) else None for name, slot in slots.items()}
    keep = slots["keep"]
    nothing = isinstance(keep, Scale) and not isinstance(keep.gain, nn.Parameter) and not bool(keep.gain.any())
    return SublayerPlan(sublayer, **parts, kept=not nothing)


def _block(block: Block, causal: bool) -> BlockPlan:
    asking = "masked attention" if causal else "self-attention"
    own = block.attention
    parts = [_attention(own, asking) if isinstance(own, MultiHeadAttention) else label_of(own)]
    parts += [label_of(part) for part in (block.cross, block.feedforward) if part is not None]
    joins = [join for join in (block.add_attention, block.add_cross, block.add_feedforward) if join is not None]
    return BlockPlan(tuple(sublayer_plan(join, part) for join, part in zip(joins, parts, strict=True)))


def plan(model: nn.Module) -> list[Tower]:
    """The towers of a model, the one that reads first; its last one carries what comes after all blocks."""
    children = [(name, child) for name, child in model.named_children() if not isinstance(child, SILENT)]
    stacks = [(name, child) for name, child in children if isinstance(child, Stack)]
    if not stacks:
        raise ConfigError(f"{type(model).__name__} has no stack of blocks to draw")
    first = next(i for i, (_, child) in enumerate(children) if isinstance(child, Stack))
    before = [child for _, child in children[:first]]
    after = {name: child for name, child in children[first:] if not isinstance(child, Stack)}
    towers = []
    for i, (name, stack) in enumerate(stacks):
        # with two stacks each has the embedding in its own place; with one all that comes before belongs to it
        mine = before[i : i + 1] if len(stacks) > 1 else before
        plans = [_block(block, causal=name == "decoder") for block in stack.layers]
        groups = tuple((equal, len(list(group))) for equal, group in groupby(plans))
        final = () if isinstance(stack.norm, nn.Identity) else (label_of(stack.norm),)
        heads = _heads(after) if i == len(stacks) - 1 else ()
        below = tuple(part for child in mine for part in _below(child))
        towers.append(Tower(name, below, groups, final, heads, isinstance(stack.combine, DenseCombination)))
    return towers


def _heads(after: dict[str, nn.Module]) -> tuple[tuple[Part, ...], ...]:
    """What follows the stack: one chain, or with a pooler one for each head, of which some read what was pooled."""
    if not any(isinstance(child, Pooler) for child in after.values()):
        beside = [child for child in after.values() if isinstance(child, Scalars | WithMissing)]
        chain = [label_of(child) for name, child in after.items() if child not in beside and name != "norm"]
        return (tuple([Part("‖ numbers", "", "embed")] * bool(beside) + chain),) if chain else ()
    pooler = next(label_of(child) for child in after.values() if isinstance(child, Pooler))
    heads = {name: child for name, child in after.items() if not isinstance(child, Pooler)}
    if not heads:
        return ((pooler,),)
    # a class is said of the pooled vector, words and labels of every token
    pooled = {name for name, child in heads.items() if isinstance(child, ClassHead) and name != "label_head"}
    return tuple((pooler, label_of(child)) if name in pooled else (label_of(child),) for name, child in heads.items())


def _below(module: nn.Module) -> list[Part]:
    """An embedding, and above it the positions and the norm that it adds."""
    parts = [label_of(module)]
    if isinstance(module, TokenEmbedding):
        if not isinstance(module.place, Unmoved):
            parts.append(label_of(module.place))
        if not isinstance(module.norm, nn.Identity):
            parts.append(label_of(module.norm))
    return parts
