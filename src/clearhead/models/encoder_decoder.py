"""The encoder–decoder: read one sequence, write another [vaswani2017]."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from torch import Tensor, nn

from clearhead.nn.account import ParameterTable, parameters_table
from clearhead.nn.attention import Biases, MultiHeadAttention
from clearhead.nn.block import Block
from clearhead.nn.cache import State
from clearhead.nn.embed import TokenEmbedding
from clearhead.nn.feedforward import FEEDFORWARDS, Layer
from clearhead.nn.heads import Unembedding
from clearhead.nn.init import INITS
from clearhead.nn.masks import Mask, causal
from clearhead.nn.norm import NORMS
from clearhead.nn.positions import POSITIONS, Place, Positions
from clearhead.nn.pruning import Pruned, prune
from clearhead.nn.residual import RESIDUALS, Join, Residual
from clearhead.nn.rows import Rows
from clearhead.nn.scores import SCORES
from clearhead.nn.stack import COMBINATIONS, Stack
from clearhead.nn.tables import check_rates, check_sizes, pick

__all__ = ["EncoderDecoder", "EncoderDecoderConfig"]


@dataclass(frozen=True)
class EncoderDecoderConfig:
    """Every size and every choice; the defaults are the base model of the paper.

    target_vocabulary  None where both sides share one vocabulary and one embedding
    hidden             width of the feed-forward layer
    base               of the wavelengths of sinusoidal and rotary positions
    buckets, farthest  groups of distances, and from which distance on all fall into the last (T5)
    residual_factor    the λ of the residual `scaled`
    persistent         slots of persistent memory in each self-attention, 0 for none
    tied               the output projection is the target embedding
    zero_start         a target begins with zeros in place of the vector of `bos`, as Marian has it
    output_scale       factor on the vectors before the output projection (T5 has width^-½ where tied)
    length             the longest sequence, where positions are learned
    pruned             attentions of which some heads alone are kept, and which
    """

    vocabulary: int
    target_vocabulary: int | None = None
    width: int = 512
    heads: int = 8
    kv_heads: int | None = None
    head_width: int | None = None
    encoder_layers: int = 6
    decoder_layers: int = 6
    hidden: int = 2048
    positions: str = "sinusoidal"
    base: float = 10_000.0
    buckets: int = 32
    farthest: int = 128
    residual: str = "post_norm"
    residual_factor: float = 1.0
    norm: str = "layer_norm"
    norm_eps: float = 1e-5
    feedforward: str = "relu"
    score: str = "scaled_dot"
    temperature: float = 1.0
    combination: str = "latest"
    persistent: int = 0
    dropout: float = 0.1
    attention_dropout: float = 0.0
    hidden_dropout: float = 0.0
    biases: bool = True
    tied: bool = True
    output_bias: bool = False
    output_scale: float = 1.0
    scaled_embedding: bool = True
    embedding_norm: bool = False
    zero_start: bool = False
    length: int = 1024
    init: str = "xavier"
    pad: int = 0
    bos: int = 1
    eos: int = 2
    pruned: Pruned = ()

    def __post_init__(self) -> None:
        check_sizes(self, "vocabulary", "width", "heads", "encoder_layers", "decoder_layers", "hidden", "length")
        check_sizes(self, "target_vocabulary", "kv_heads", "head_width", "buckets", "farthest")
        check_sizes(self, "persistent", least=0)
        check_rates(self, "dropout", "attention_dropout", "hidden_dropout")


class EncoderDecoder(nn.Module):
    """Source tokens and the target so far to the logits of the next target token."""

    def __init__(self, config: EncoderDecoderConfig) -> None:
        super().__init__()
        self.config = c = config
        head_width = c.head_width or c.width // c.heads
        place = Place(c.width, c.heads, head_width, c.length, base=c.base, buckets=c.buckets, farthest=c.farthest)
        scheme = pick(POSITIONS, c.positions, "positions")
        encoder_positions, decoder_positions = scheme(place), scheme(replace(place, causal=True))
        placement = pick(RESIDUALS, c.residual, "residual")

        def norm() -> nn.Module:
            return pick(NORMS, c.norm, "norm")(c.width, c.norm_eps)

        def attention(positions: Positions, persistent: int) -> MultiHeadAttention:
            attention = MultiHeadAttention(
                c.width, c.heads, head_width=c.head_width, kv_heads=c.kv_heads, positions=positions.for_layer(),
                score=pick(SCORES, c.score, "score")(c.heads, head_width, c.temperature),
                dropout=c.attention_dropout, biases=Biases(c.biases, c.biases, c.biases, c.biases),
            )  # fmt: skip
            return attention.remembering(persistent) if persistent else attention

        def feedforward() -> Layer:
            return pick(FEEDFORWARDS, c.feedforward, "feedforward")(c.width, c.hidden, c.hidden_dropout, c.biases)

        def join(depth: float) -> Callable[[], Residual]:
            return lambda: placement.build(Join(norm, c.width, depth, c.dropout, c.residual_factor))

        def stack(made: Iterable[Block]) -> Stack:
            blocks = list(made)
            combine = pick(COMBINATIONS, c.combination, "combination")(c.width, len(blocks))
            return Stack(blocks, norm=norm() if placement.final_norm else None, combine=combine)

        def embed(vocabulary: int, positions: Positions) -> TokenEmbedding:
            return TokenEmbedding(
                vocabulary, c.width, scale=c.width**0.5 if c.scaled_embedding else 1.0, positions=positions,
                norm=norm() if c.embedding_norm else None, dropout=c.dropout,
            )  # fmt: skip

        self.source_embed = embed(c.vocabulary, encoder_positions)
        written = c.target_vocabulary or c.vocabulary
        self.target_embed = embed(written, decoder_positions)
        self.target_embed.blank = c.bos if c.zero_start else None
        # wang2022 table 1: DeepNorm's α is 0.81 (N⁴ M)^(1/16) in the encoder and (3 M)^(1/4) in the decoder
        encoder_join = join(0.81**4 * c.encoder_layers * c.decoder_layers**0.25)
        decoder_join = join(3 * c.decoder_layers)
        self.encoder = stack(
            Block(attention(encoder_positions, c.persistent), feedforward(), encoder_join)
            for _ in range(c.encoder_layers)
        )
        self.decoder = stack(
            Block(attention(decoder_positions, c.persistent), feedforward(), decoder_join,
                  cross=attention(Positions(), 0).across())
            for _ in range(c.decoder_layers)
        )  # fmt: skip
        self.output = Unembedding(c.width, written, bias=c.output_bias, scale=c.output_scale)
        pick(INITS, c.init, "init")(self)
        if c.target_vocabulary is None:
            self.target_embed.tokens = self.source_embed.tokens
        if c.tied:
            self.output.tie(self.target_embed.tokens)
        prune(self, c.pruned)

    def forward(
        self,
        source_BM: Tensor,
        target_BL: Tensor,
        *,
        source_count_B: Tensor | None = None,
        target_count_B: Tensor | None = None,
    ) -> Tensor:
        """Logits of the token after each target token; of row b only the first counts are real, the rest is padding."""
        hidden_BLD, _ = self.hidden(source_BM, target_BL, source_count_B=source_count_B, target_count_B=target_count_B)
        return self.output(hidden_BLD)

    def hidden(
        self,
        source_BM: Tensor,
        target_BL: Tensor,
        *,
        source_count_B: Tensor | None = None,
        target_count_B: Tensor | None = None,
        pack: bool = False,
    ) -> tuple[Tensor, Rows]:
        """The decoder's last vectors; with `pack` real positions alone, end to end, as `Rows` lays them out."""
        context_BMD, source_rows = self.encode(source_BM, source_count_B, pack=pack)
        target_rows = Rows.of(target_count_B, target_BL.shape[1], batch=len(target_BL), pack=pack)
        x_BLD = self.target_embed(target_rows.pack(target_BL), target_rows.positions(target_BL.device))
        hidden_BLD, _ = self.decoder(
            x_BLD,
            mask=causal() & Mask(queries=target_rows),
            context_BMD=context_BMD,
            context_mask=Mask(queries=target_rows, keys=source_rows),
        )
        return hidden_BLD, target_rows

    def encode(
        self, source_BM: Tensor, source_count_B: Tensor | None = None, *, pack: bool = False
    ) -> tuple[Tensor, Rows]:
        """The encoder's last vectors."""
        rows = Rows.of(source_count_B, source_BM.shape[1], batch=len(source_BM), pack=pack)
        x_BMD = self.source_embed(rows.pack(source_BM), rows.positions(source_BM.device))
        context_BMD, _ = self.encoder(x_BMD, mask=Mask(queries=rows, keys=rows))
        return context_BMD, rows

    def start(self, source_BM: Tensor, source_count_B: Tensor | None = None, *, room: int = 0) -> State:
        """The state before the first target token: the source, read once; `room` reserves that many positions."""
        context_BMD, rows = self.encode(source_BM, source_count_B)
        return State(self.decoder.start(room), self.decoder.remember(context_BMD, Mask(keys=rows)))

    @property
    def branches(self) -> bool:
        """Whether the hypotheses of a beam can share one cache (`State.branch`)."""
        return self.decoder.branches

    def step(
        self, token_BT: Tensor, state: State, *, count_B: Tensor | None = None, last: bool = False
    ) -> tuple[Tensor, State]:
        """Read T more target tokens: logits after each (with `last`, after the last one alone), and the new state."""
        rows = Rows.of(count_B, token_BT.shape[1], batch=len(token_BT))
        source = Rows.of(state.cross[0].length_B, state.cross[0].length)
        position_BT = state.positions(token_BT.shape[1], token_BT.device)
        mask = replace(state.mask(position_BT), queries=rows)
        context_mask = Mask(keys=source, position_BL=position_BT)
        x_BTD = self.target_embed(token_BT, position_BT)
        x_BTD, state = self.decoder(x_BTD, mask=mask, context_mask=context_mask, state=state)
        return self.output(rows.last(x_BTD) if last else x_BTD), state

    def parameters_table(self, depth: int = 3) -> ParameterTable:
        """What holds how many parameters."""
        return parameters_table(self, depth)

    def flops(self, batch: int, length: int) -> int:
        """Floating-point operations of one forward pass over `batch` pairs of `length` tokens on each side."""
        output = 2 * batch * length * self.config.width * (self.config.target_vocabulary or self.config.vocabulary)
        encoder = self.encoder.flops(batch, length, length)
        return encoder + self.decoder.flops(batch, length, length, length) + output
