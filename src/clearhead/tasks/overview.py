"""What a text model is made of, for those who look at it: its stacks and parts by name, its wiring.

Where layers share their weights (ALBERT), a block runs in several rounds, and what passes it in its second round is
named with the number of the round: `encoder.0@1.attention.weights`. The first round has the plain name.
"""

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

from torch import nn

from clearhead.data.phrasebook.corpus import EXAMPLES
from clearhead.draw.wiring import Part, SublayerPlan, Tower, plan
from clearhead.nn.attention import MultiHeadAttention
from clearhead.nn.block import Block
from clearhead.nn.feedforward import FeedForward
from clearhead.nn.memory import ProductKeyMemory
from clearhead.nn.stack import Stack
from clearhead.tasks.viewing import Viewer

__all__ = [
    "EMBEDS",
    "LONGEST",
    "Sublayer",
    "attentions_of",
    "overview",
    "plain_name",
    "stacks",
    "sublayers",
    "vocabulary_of",
]

Json = dict[str, Any]
ROUND = re.compile(r"@(\d+)")
LONGEST = 512  # tokens, unless the model's positions end before
EMBEDS = {"source": "source_embed", "target": "target_embed", "text": "embed"}
TEXTS = [
    "the cat sat on the mat",
    "the animal did not cross the street because it was too tired",
    "one two three one two",
]


class Sublayer(NamedTuple):
    """A sub-layer in its place: of which block and round, which side asks and which is asked."""

    block: str  # decoder.2, and encoder.0@1 in a second round
    part: str  # attention, cross or feedforward
    kind: str  # self, masked, cross or feedforward
    module: nn.Module
    queries: str
    keys: str

    @property
    def name(self) -> str:
        return f"{self.block}.{self.part}"

    @property
    def residual(self) -> str:
        return f"{self.block}.add_{self.part}"


def plain_name(name: str) -> tuple[str, int]:
    """The name of a module or tap as the model has it, and the round that is meant.

    >>> plain_name("encoder.0@2.attention.weights")
    ('encoder.0.attention.weights', 2)
    """
    found = ROUND.search(name)
    return (name, 0) if found is None else (name[: found.start()] + name[found.end() :], int(found[1]))


def stacks(viewer: Viewer) -> Iterator[tuple[str, Stack, str]]:
    """The stacks by name, each with the side that it reads."""
    for name, module in viewer.model.named_children():
        if isinstance(module, Stack):
            both = viewer.mode == "encoder-decoder"
            yield name, module, ("source" if name == "encoder" else "target") if both else "text"


def sublayers(viewer: Viewer) -> list[list[Sublayer]]:
    """The sub-layers of each layer of each stack, in the order in which they run; every round counts."""
    return [
        list(_sublayers(block_name, block, stack, side))
        for stack, module, side in stacks(viewer)
        for block_name, block in _blocks(stack, module)
    ]


def _blocks(name: str, stack: Stack) -> Iterator[tuple[str, Block]]:
    times: Counter[str] = Counter()
    for number, block in zip(stack.rounds, stack.layers, strict=True):
        yield f"{name}.{number}" + (f"@{times[number]}" if times[number] else ""), block
        times[number] += 1


def _sublayers(name: str, block: Block, stack: str, side: str) -> Iterator[Sublayer]:
    own = "self" if stack == "encoder" else "masked"
    for part, kind, keys in (("attention", own, side), ("cross", "cross", "source"), ("feedforward",) * 2 + (side,)):
        module = getattr(block, part)
        if module is not None:
            yield Sublayer(name, part, kind, module, side, keys)


def attentions_of(viewer: Viewer) -> list[Sublayer]:
    """The attentions alone, in order."""
    return [one for layer in sublayers(viewer) for one in layer if isinstance(one.module, MultiHeadAttention)]


def overview(viewer: Viewer, *, name: str, longest: int = LONGEST) -> Json:
    """All that a page needs to know of the model before any text is read."""
    settings, config = viewer.parts.settings, viewer.parts.settings.config
    bounded = config.positions == "learned" or viewer.mode == "decoder"
    layers = sublayers(viewer)
    return {
        "name": name,
        "task": settings.task,
        "mode": viewer.mode,
        "languages": list(settings.languages),
        "parameters": sum(parameter.numel() for parameter in viewer.model.parameters()),
        "width": config.width,
        "vocabulary": vocabulary_of(viewer),
        "longest": min(longest, config.length) if bounded else longest,
        "residual": config.residual,
        "norm": config.norm,
        "positions": config.positions,
        "stacks": [
            {
                "name": stack,
                "reads": side,
                "embed": EMBEDS[side],
                "layers": [
                    {"name": layer[0].block, "parts": [_part(one) for one in layer]}
                    for layer in layers
                    if layer[0].block.startswith(f"{stack}.")
                ],
            }
            for stack, _, side in stacks(viewer)
        ],
        "diagram": [_tower(tower) for tower in plan(viewer.model)],
        "examples": _examples(viewer),
        "writes": viewer.mode != "encoder",
    }


def vocabulary_of(viewer: Viewer) -> int:
    """How many tokens the model can say."""
    config = viewer.parts.settings.config
    size: int = getattr(config, "target_vocabulary", None) or config.vocabulary
    return size


def _part(one: Sublayer) -> Json:
    if isinstance(one.module, MultiHeadAttention):
        attention = one.module
        return {
            "name": one.name,
            "kind": one.kind,
            "heads": attention.heads,
            "kv_heads": attention.kv_heads,
            "head_width": attention.head_width,
            "queries": one.queries,
            "keys": one.keys,
            "memory": 0 if attention.memory is None else attention.memory.slots,
        }
    neurons = one.module.hidden if isinstance(one.module, FeedForward) else 0
    if isinstance(one.module, ProductKeyMemory):
        neurons = one.module.heads * one.module.chosen
    return {"name": one.name, "kind": one.kind, "neurons": neurons}


def _tower(tower: Tower) -> Json:
    return {
        "title": tower.name,
        "embed": [_box(part) for part in tower.below],
        "blocks": [
            {"times": times, "sublayers": [_sublayer_plan(one) for one in block.sublayers]}
            for block, times in tower.blocks
        ],
        "after": [_box(part) for part in tower.above],
        "head": [[_box(part) for part in chain] for chain in tower.heads],
        "dense": tower.dense,
    }


def _sublayer_plan(one: SublayerPlan) -> Json:
    slots = {name: getattr(one, name) for name in ("before", "sublayer", "branch", "after", "keep")}
    boxes = {name: None if part is None else _box(part) for name, part in slots.items()}
    return {**boxes, "kept": one.kept, "formula": one.formula}


def _box(part: Part) -> Json:
    return {"name": part.name, "sizes": part.sizes, "kind": part.kind}


def _examples(viewer: Viewer) -> list[str]:
    """Texts to start from, in a language that the model may read."""
    mask = viewer.parts.tokenizer.mask
    if viewer.mode == "encoder" and mask is not None:
        hidden = viewer.parts.tokenizer.token_of(mask)
        return [text.replace("cat", hidden).replace("street", hidden).replace("three", hidden) for text in TEXTS]
    if viewer.parts.settings.languages[:1] == ("fr",):
        short = (pair.source for pair in EXAMPLES if len(pair.source) < 80)
        return list(dict.fromkeys(["je suis étudiant", *short]))[:6]
    return TEXTS
