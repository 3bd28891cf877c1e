"""The encoder alone: vectors of every token and of the whole, in the form of BERT [devlin2019]."""

from dataclasses import dataclass

from torch import Tensor, nn

from clearhead.errors import ConfigError
from clearhead.nn.account import ParameterTable, parameters_table
from clearhead.nn.attention import Biases, MultiHeadAttention
from clearhead.nn.block import Block
from clearhead.nn.embed import TokenEmbedding
from clearhead.nn.feedforward import ACTIVATIONS, FEEDFORWARDS, Layer
from clearhead.nn.heads import ClassHead, Pooler, WordHead
from clearhead.nn.init import INITS
from clearhead.nn.masks import Mask
from clearhead.nn.norm import NORMS
from clearhead.nn.positions import POSITIONS, Place
from clearhead.nn.pruning import Pruned, prune
from clearhead.nn.residual import RESIDUALS, Join, Residual
from clearhead.nn.rows import Rows
from clearhead.nn.scores import SCORES
from clearhead.nn.stack import COMBINATIONS, Stack
from clearhead.nn.tables import check_rates, check_sizes, pick

__all__ = ["EncoderOnly", "EncoderOnlyConfig"]


@dataclass(frozen=True)
class EncoderOnlyConfig:
    """Every size and every choice; the defaults are BERT base.

    segments      kinds of segments (sentence A and B), 0 for none
    embedding_width  of a narrower embedding, projected to the model's width [lan2020]; None for the same
    distinct      blocks of their own; where fewer than layers, they run in rounds [lan2020]; None for all
    base          of the wavelengths of sinusoidal and rotary positions
    residual_factor the λ of the residual `scaled`
    words         a head for masked words
    next_sentence a head for "does B follow A?"
    classes       classes of a whole text, 0 for no such head
    labels        labels of each token (named entities), 0 for no such head
    pooling       how one vector comes from many: first (`[CLS]`), mean, maximum, last
    pooler        what becomes of that vector: a dense layer and tanh (BERT) or relu, unit length, or none of these
    head_dropout  before classes and labels, None for the same as elsewhere
    pruned        attentions of which some heads alone are kept, and which
    """

    vocabulary: int = 30_522
    width: int = 768
    heads: int = 12
    kv_heads: int | None = None
    head_width: int | None = None
    layers: int = 12
    hidden: int = 3072
    embedding_width: int | None = None
    distinct: int | None = None
    positions: str = "learned"
    base: float = 10_000.0
    residual: str = "post_norm"
    residual_factor: float = 1.0
    norm: str = "layer_norm"
    norm_eps: float = 1e-12
    feedforward: str = "gelu"
    score: str = "scaled_dot"
    temperature: float = 1.0
    combination: str = "latest"
    persistent: int = 0
    dropout: float = 0.1
    attention_dropout: float = 0.1
    hidden_dropout: float = 0.0
    biases: bool = True
    segments: int = 2
    embedding_norm: bool = True
    words: bool = True
    tied: bool = True
    next_sentence: bool = False
    classes: int = 0
    labels: int = 0
    pooling: str = "first"
    pooler: str = "tanh"
    head_dropout: float | None = None
    length: int = 512
    init: str = "normal"
    pad: int = 0
    pruned: Pruned = ()

    def __post_init__(self) -> None:
        check_sizes(self, "vocabulary", "width", "heads", "layers", "hidden", "length")
        check_sizes(self, "kv_heads", "head_width", "embedding_width", "distinct")
        check_sizes(self, "persistent", "segments", "classes", "labels", least=0)
        check_rates(self, "dropout", "attention_dropout", "hidden_dropout", "head_dropout")
        if self.layers % (self.distinct or self.layers):
            raise ConfigError(f"layers must divide into rounds: layers={self.layers}, distinct={self.distinct}")


class EncoderOnly(nn.Module):
    """Tokens to a vector for each; from these, words, classes and labels by the heads that the config asks for."""

    def __init__(self, config: EncoderOnlyConfig) -> None:
        super().__init__()
        self.config = c = config
        head_width = c.head_width or c.width // c.heads
        inner = c.embedding_width or c.width
        place = Place(inner, c.heads, head_width, length=c.length, base=c.base)
        positions = pick(POSITIONS, c.positions, "positions")(place)
        placement = pick(RESIDUALS, c.residual, "residual")

        def norm(width: int = c.width) -> nn.Module:
            return pick(NORMS, c.norm, "norm")(width, c.norm_eps)

        def attention() -> MultiHeadAttention:
            attention = MultiHeadAttention(
                c.width, c.heads, head_width=c.head_width, kv_heads=c.kv_heads, positions=positions.for_layer(),
                score=pick(SCORES, c.score, "score")(c.heads, head_width, c.temperature),
                dropout=c.attention_dropout, biases=Biases(c.biases, c.biases, c.biases, c.biases),
            )  # fmt: skip
            return attention.remembering(c.persistent) if c.persistent else attention

        def feedforward() -> Layer:
            return pick(FEEDFORWARDS, c.feedforward, "feedforward")(c.width, c.hidden, c.hidden_dropout, c.biases)

        def join() -> Residual:
            return placement.build(Join(norm, c.width, 2 * c.layers, c.dropout, c.residual_factor))

        self.embed = TokenEmbedding(
            c.vocabulary, inner, positions=positions, segments=c.segments,
            norm=norm(inner) if c.embedding_norm else None, dropout=c.dropout,
        )  # fmt: skip
        self.widen = nn.Linear(inner, c.width) if c.embedding_width else nn.Identity()
        distinct = c.distinct or c.layers
        self.encoder = Stack(
            [Block(attention(), feedforward(), join) for _ in range(distinct)],
            norm=norm() if placement.final_norm else None,
            combine=pick(COMBINATIONS, c.combination, "combination")(c.width, c.layers),
            times=c.layers // distinct,
        )
        activation = ACTIVATIONS.get(c.feedforward, ACTIVATIONS["gelu"])  # the word head bends as the blocks do
        head_dropout = c.dropout if c.head_dropout is None else c.head_dropout
        self.pool = Pooler(c.width, c.pooling, c.pooler)
        self.word_head = WordHead(c.width, c.vocabulary, activation, norm(inner), inner=inner) if c.words else None
        self.next_head = ClassHead(c.width, 2) if c.next_sentence else None
        self.class_head = ClassHead(c.width, c.classes, head_dropout) if c.classes else None
        self.label_head = ClassHead(c.width, c.labels, head_dropout) if c.labels else None
        pick(INITS, c.init, "init")(self)
        if self.word_head is not None and c.tied:
            self.word_head.words.tie(self.embed.tokens)
        prune(self, c.pruned)

    def forward(self, token_BL: Tensor, *, count_B: Tensor | None = None, segment_BL: Tensor | None = None) -> Tensor:
        """A vector for every token; of row b only the first `count_B[b]` are real, the rest is padding."""
        hidden_BLD, _ = self.hidden(token_BL, count_B=count_B, segment_BL=segment_BL)
        return hidden_BLD

    def hidden(
        self,
        token_BL: Tensor,
        *,
        count_B: Tensor | None = None,
        segment_BL: Tensor | None = None,
        pack: bool = False,
    ) -> tuple[Tensor, Rows]:
        """The last vectors; with `pack` real positions alone, end to end, as `Rows` lays them out."""
        rows = Rows.of(count_B, token_BL.shape[1], batch=len(token_BL), pack=pack)
        segment_BL = None if segment_BL is None else rows.pack(segment_BL)
        x_BLD = self.widen(self.embed(rows.pack(token_BL), rows.positions(token_BL.device), segment_BL))
        hidden_BLD, _ = self.encoder(x_BLD, mask=Mask(queries=rows, keys=rows))
        return hidden_BLD, rows

    def pooled(self, hidden_BLD: Tensor, rows: Rows) -> Tensor:
        """One vector for each row of what `hidden` returned."""
        return self.pool(rows.unpack(hidden_BLD), rows)

    def words(self, token_BL: Tensor, *, count_B: Tensor | None = None, segment_BL: Tensor | None = None) -> Tensor:
        """Logits of the word at each position."""
        return self._head("word_head", "words")(self(token_BL, count_B=count_B, segment_BL=segment_BL))

    def follows(self, token_BL: Tensor, *, count_B: Tensor | None = None, segment_BL: Tensor | None = None) -> Tensor:
        """Logits of "B does not follow A" and "B follows A"."""
        hidden = self.hidden(token_BL, count_B=count_B, segment_BL=segment_BL)
        return self._head("next_head", "next_sentence")(self.pooled(*hidden))

    def classes(self, token_BL: Tensor, *, count_B: Tensor | None = None, segment_BL: Tensor | None = None) -> Tensor:
        """Logits of the classes of each row."""
        hidden = self.hidden(token_BL, count_B=count_B, segment_BL=segment_BL)
        return self._head("class_head", "classes")(self.pooled(*hidden))

    def labels(self, token_BL: Tensor, *, count_B: Tensor | None = None, segment_BL: Tensor | None = None) -> Tensor:
        """Logits of the labels of each token."""
        return self._head("label_head", "labels")(self(token_BL, count_B=count_B, segment_BL=segment_BL))

    def _head(self, name: str, setting: str) -> nn.Module:
        head: nn.Module | None = getattr(self, name)
        if head is None:
            raise ConfigError(f"this model has no such head: build it with `{setting}` set in its config")
        return head

    def parameters_table(self, depth: int = 3) -> ParameterTable:
        """What holds how many parameters."""
        return parameters_table(self, depth)

    def flops(self, batch: int, length: int) -> int:
        """Floating-point operations of one forward pass over `batch` rows of `length` tokens, heads left out."""
        return self.encoder.flops(batch, length, length)
