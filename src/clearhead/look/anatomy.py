"""Where things are in a model that turns a stream of vectors into words: its embedding, its stack, its way out."""

from collections.abc import Callable
from dataclasses import dataclass

from torch import nn

from clearhead.errors import ConfigError
from clearhead.models.decoder_only import DecoderOnly
from clearhead.models.encoder_decoder import EncoderDecoder
from clearhead.models.encoder_only import EncoderOnly
from clearhead.nn.block import Block
from clearhead.nn.embed import TokenEmbedding
from clearhead.nn.heads import Unembedding, WordHead
from clearhead.nn.residual import Residual
from clearhead.nn.stack import Stack

__all__ = ["Anatomy", "Place", "anatomy"]


@dataclass(frozen=True)
class Place:
    """One sub-layer: its residual, and what stands in it; `part` is attention, cross or feedforward."""

    block: str  # as in decoder.2
    part: str
    residual: Residual
    sublayer: nn.Module

    @property
    def name(self) -> str:
        return f"{self.block}.{self.part}"

    @property
    def residual_name(self) -> str:
        return f"{self.block}.add_{self.part}"


@dataclass(frozen=True)
class Anatomy:
    """The stream that ends in words: where it starts, through which stack it goes, and what reads words off it."""

    embed_name: str
    embed: TokenEmbedding
    widen: nn.Module  # the identity but for ALBERT
    stack_name: str
    stack: Stack
    head: Unembedding | WordHead

    @property
    def words(self) -> Unembedding:
        """What meets the embeddings in the end."""
        return self.head if isinstance(self.head, Unembedding) else self.head.words

    def places(self) -> list[list[Place]]:
        """The sub-layers of each layer, in the order in which they run; shared layers occur again."""
        named = zip(self.stack.rounds, self.stack.layers, strict=True)
        return [_places(f"{self.stack_name}.{name}", block) for name, block in named]


def _places(name: str, block: Block) -> list[Place]:
    found = (
        ("attention", block.add_attention, block.attention),
        ("cross", block.add_cross, block.cross),
        ("feedforward", block.add_feedforward, block.feedforward),
    )
    return [
        Place(name, part, residual, sublayer)
        for part, residual, sublayer in found
        if residual is not None and sublayer is not None
    ]


def _decoder(model: EncoderDecoder) -> Anatomy:
    return Anatomy("target_embed", model.target_embed, nn.Identity(), "decoder", model.decoder, model.output)


def _only_decoder(model: DecoderOnly) -> Anatomy:
    return Anatomy("embed", model.embed, nn.Identity(), "decoder", model.decoder, model.output)


def _only_encoder(model: EncoderOnly) -> Anatomy:
    if model.word_head is None:
        raise ConfigError("this encoder has no head for words: build it with `words` set in its config")
    return Anatomy("embed", model.embed, model.widen, "encoder", model.encoder, model.word_head)


KINDS: dict[type[nn.Module], Callable[..., Anatomy]] = {
    EncoderDecoder: _decoder,
    DecoderOnly: _only_decoder,
    EncoderOnly: _only_encoder,
}


def anatomy(model: nn.Module) -> Anatomy:
    """The anatomy of a model of one of the three modes."""
    if type(model) not in KINDS:
        known = ", ".join(kind.__name__ for kind in KINDS)
        raise ConfigError(f"a {type(model).__name__} has no stream that ends in words; these have: {known}")
    return KINDS[type(model)](model)
