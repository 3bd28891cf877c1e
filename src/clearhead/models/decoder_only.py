"""The decoder alone: a language model, in the form of GPT-2 [radford2019] and in today's [touvron2023]."""

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
from clearhead.nn.masks import Mask
from clearhead.nn.norm import NORMS
from clearhead.nn.positions import POSITIONS, Place
from clearhead.nn.positions_rotary import Stretch
from clearhead.nn.pruning import Pruned, prune
from clearhead.nn.residual import RESIDUALS, Join, Residual
from clearhead.nn.rows import Rows
from clearhead.nn.scores import SCORES
from clearhead.nn.stack import COMBINATIONS, Stack
from clearhead.nn.tables import check_rates, check_sizes, pick

__all__ = ["DecoderOnly", "DecoderOnlyConfig"]


@dataclass(frozen=True)
class DecoderOnlyConfig:
    """Every size and every choice; the defaults are the smallest GPT-2.

    hidden       width of the feed-forward layer
    window       how far back a position sees, None for all the way
    base         of the wavelengths of sinusoidal and rotary positions
    rotary_factor, rotary_length, rotary_bounds  a `Stretch` of rotary positions: factor, length, (low, high)
    residual_factor  the λ of the residual `scaled`
    persistent   slots of persistent memory in each attention, 0 for none
    biases       of q, k, v together, of the attention's output, and of the feed-forward layer
    length       the longest sequence, where positions are learned
    pruned       attentions of which some heads alone are kept, and which
    """

    vocabulary: int = 50_257
    width: int = 768
    heads: int = 12
    kv_heads: int | None = None
    head_width: int | None = None
    layers: int = 12
    hidden: int = 3072
    positions: str = "learned"
    base: float = 10_000.0
    rotary_factor: float = 1.0
    rotary_length: int | None = None
    rotary_bounds: tuple[float, float] = (1.0, 4.0)
    window: int | None = None
    residual: str = "pre_norm"
    residual_factor: float = 1.0
    norm: str = "layer_norm"
    norm_eps: float = 1e-5
    feedforward: str = "gelu_tanh"
    score: str = "scaled_dot"
    temperature: float = 1.0
    combination: str = "latest"
    persistent: int = 0
    dropout: float = 0.1
    attention_dropout: float = 0.1
    hidden_dropout: float = 0.0
    biases: tuple[bool, bool, bool] = (True, True, True)
    tied: bool = True
    scaled_embedding: bool = False
    length: int = 1024
    init: str = "gpt2"
    pad: int | None = None
    bos: int | None = 50_256
    eos: int | None = 50_256
    pruned: Pruned = ()

    def __post_init__(self) -> None:
        check_sizes(self, "vocabulary", "width", "heads", "layers", "hidden", "length")
        check_sizes(self, "kv_heads", "head_width", "window", "rotary_length")
        check_sizes(self, "persistent", least=0)
        check_rates(self, "dropout", "attention_dropout", "hidden_dropout")


class DecoderOnly(nn.Module):
    """Tokens so far to the logits of the next one."""

    def __init__(self, config: DecoderOnlyConfig) -> None:
        super().__init__()
        self.config = c = config
        head_width = c.head_width or c.width // c.heads
        stretch = Stretch(c.rotary_factor, c.rotary_length, *c.rotary_bounds)
        place = Place(c.width, c.heads, head_width, length=c.length, causal=True, base=c.base, stretch=stretch)
        positions = pick(POSITIONS, c.positions, "positions")(place)
        placement = pick(RESIDUALS, c.residual, "residual")
        project_bias, out_bias, feedforward_bias = c.biases

        def norm() -> nn.Module:
            return pick(NORMS, c.norm, "norm")(c.width, c.norm_eps)

        def attention() -> MultiHeadAttention:
            attention = MultiHeadAttention(
                c.width, c.heads, head_width=c.head_width, kv_heads=c.kv_heads, positions=positions.for_layer(),
                score=pick(SCORES, c.score, "score")(c.heads, head_width, c.temperature),
                dropout=c.attention_dropout, biases=Biases(project_bias, project_bias, project_bias, out_bias),
            )  # fmt: skip
            return attention.remembering(c.persistent) if c.persistent else attention

        def feedforward() -> Layer:
            return pick(FEEDFORWARDS, c.feedforward, "feedforward")(
                c.width, c.hidden, c.hidden_dropout, feedforward_bias
            )

        def join() -> Residual:
            return placement.build(Join(norm, c.width, 2 * c.layers, c.dropout, c.residual_factor))

        self.embed = TokenEmbedding(
            c.vocabulary, c.width, scale=c.width**0.5 if c.scaled_embedding else 1.0, positions=positions,
            dropout=c.dropout,
        )  # fmt: skip
        self.decoder = Stack(
            [Block(attention(), feedforward(), join) for _ in range(c.layers)],
            norm=norm() if placement.final_norm else None,
            combine=pick(COMBINATIONS, c.combination, "combination")(c.width, c.layers),
        )
        self.output = Unembedding(c.width, c.vocabulary)
        pick(INITS, c.init, "init")(self)
        if c.tied:
            self.output.tie(self.embed.tokens)
        prune(self, c.pruned)

    def forward(self, token_BL: Tensor, *, count_B: Tensor | None = None) -> Tensor:
        """Logits of the token after each; of row b only the first `count_B[b]` are real, the rest is padding."""
        hidden_BLD, _ = self.hidden(token_BL, count_B=count_B)
        return self.output(hidden_BLD)

    def hidden(self, token_BL: Tensor, *, count_B: Tensor | None = None, pack: bool = False) -> tuple[Tensor, Rows]:
        """The last vectors; with `pack` real positions alone, end to end, as `Rows` lays them out."""
        rows = Rows.of(count_B, token_BL.shape[1], batch=len(token_BL), pack=pack)
        x_BLD = self.embed(rows.pack(token_BL), rows.positions(token_BL.device))
        hidden_BLD, _ = self.decoder(x_BLD, mask=Mask(causal=True, window=self.config.window, queries=rows))
        return hidden_BLD, rows

    def start(self, *, room: int = 0) -> State:
        """The state before the first token; `room` reserves that many positions."""
        return State(self.decoder.start(room))

    @property
    def branches(self) -> bool:
        """Whether the hypotheses of a beam can share one cache (`State.branch`)."""
        return self.decoder.branches and self.config.window is None

    def step(
        self, token_BT: Tensor, state: State, *, count_B: Tensor | None = None, last: bool = False
    ) -> tuple[Tensor, State]:
        """Read T more tokens: logits after each of them (with `last`, after the last one alone), and the new state."""
        rows = Rows.of(count_B, token_BT.shape[1], batch=len(token_BT))
        position_BT = state.positions(token_BT.shape[1], token_BT.device)
        mask = replace(state.mask(position_BT), window=self.config.window, queries=rows)
        x_BTD = self.embed(token_BT, position_BT)
        x_BTD, state = self.decoder(x_BTD, mask=mask, state=state)
        return self.output(rows.last(x_BTD) if last else x_BTD), state

    def parameters_table(self, depth: int = 3) -> ParameterTable:
        """What holds how many parameters."""
        return parameters_table(self, depth)

    def flops(self, batch: int, length: int) -> int:
        """Floating-point operations of one forward pass over `batch` rows of `length` tokens."""
        output = 2 * batch * length * self.config.width * self.config.vocabulary
        return self.decoder.flops(batch, length, length) + output
