"""The vision Transformer: an image as a sequence of patches, read by an encoder [dosovitskiy2021]."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from clearhead.errors import ConfigError, ShapeError
from clearhead.nn.account import ParameterTable, parameters_table
from clearhead.nn.attention import Biases, MultiHeadAttention
from clearhead.nn.block import Block
from clearhead.nn.dropout import Dropout
from clearhead.nn.embed import PatchEmbedding
from clearhead.nn.feedforward import FEEDFORWARDS, Layer
from clearhead.nn.heads import ClassHead, Pooler
from clearhead.nn.init import INITS
from clearhead.nn.norm import NORMS
from clearhead.nn.positions import POSITIONS, Place
from clearhead.nn.residual import RESIDUALS, Join, Residual
from clearhead.nn.rows import Rows
from clearhead.nn.scores import SCORES
from clearhead.nn.stack import Stack
from clearhead.nn.tables import check_rates, check_sizes, pick
from clearhead.tap import Tap

__all__ = ["Vit", "VitConfig"]


@dataclass(frozen=True)
class VitConfig:
    """Every size and every choice; the defaults are ViT-B/16 for ImageNet.

    image, patch  pixels of a side; both are square, and an image divides into patches
    channels      of a pixel: 3 for colours, 1 for grey
    classes       of an image, 0 for no such head
    base          of the wavelengths of sinusoidal and rotary positions
    pooling, pooler  how one vector comes from many, and what becomes of it: rows of `POOLINGS` and `POOLERS`
    biases        of q, k, v together, of the attention's output, and of the feed-forward layer
    """

    image: int = 224
    patch: int = 16
    channels: int = 3
    classes: int = 1000
    width: int = 768
    heads: int = 12
    kv_heads: int | None = None
    head_width: int | None = None
    layers: int = 12
    hidden: int = 3072
    positions: str = "learned"
    base: float = 10_000.0
    residual: str = "pre_norm"
    norm: str = "layer_norm"
    norm_eps: float = 1e-6
    feedforward: str = "gelu"
    score: str = "scaled_dot"
    temperature: float = 1.0
    dropout: float = 0.1
    attention_dropout: float = 0.0
    hidden_dropout: float = 0.0
    biases: tuple[bool, bool, bool] = (True, True, True)
    pooling: str = "first"
    pooler: str = "none"
    init: str = "normal"

    def __post_init__(self) -> None:
        check_sizes(self, "image", "patch", "channels", "width", "heads", "layers", "hidden")
        check_sizes(self, "kv_heads", "head_width")
        check_sizes(self, "classes", least=0)
        check_rates(self, "dropout", "attention_dropout", "hidden_dropout")
        if self.image % self.patch:
            raise ConfigError(f"an image must divide into patches: image={self.image}, patch={self.patch}")


class Vit(nn.Module):
    """Images to a vector for `[CLS]` and each patch; from these, the class."""

    def __init__(self, config: VitConfig) -> None:
        super().__init__()
        self.config = c = config
        head_width = c.head_width or c.width // c.heads
        place = Place(c.width, c.heads, head_width, length=1 + (c.image // c.patch) ** 2, base=c.base)
        positions = pick(POSITIONS, c.positions, "positions")(place)
        placement = pick(RESIDUALS, c.residual, "residual")
        project_bias, out_bias, feedforward_bias = c.biases

        def norm() -> nn.Module:
            return pick(NORMS, c.norm, "norm")(c.width, c.norm_eps)

        def attention() -> MultiHeadAttention:
            return MultiHeadAttention(
                c.width, c.heads, head_width=c.head_width, kv_heads=c.kv_heads, positions=positions.for_layer(),
                score=pick(SCORES, c.score, "score")(c.heads, head_width, c.temperature),
                dropout=c.attention_dropout, biases=Biases(project_bias, project_bias, project_bias, out_bias),
            )  # fmt: skip

        def feedforward() -> Layer:
            return pick(FEEDFORWARDS, c.feedforward, "feedforward")(
                c.width, c.hidden, c.hidden_dropout, feedforward_bias
            )

        def join() -> Residual:
            return placement.build(Join(norm, c.width, 2 * c.layers, c.dropout))

        self.patches = PatchEmbedding(c.channels, c.patch, c.width)
        self.first_1D = nn.Parameter(torch.zeros(1, c.width))  # `[CLS]`, which reads the whole
        self.place = positions.embed
        self.dropout = Dropout(c.dropout)
        self.encoder = Stack(
            [Block(attention(), feedforward(), join) for _ in range(c.layers)],
            norm=norm() if placement.final_norm else None,
        )
        self.pool = Pooler(c.width, c.pooling, c.pooler)
        self.class_head = ClassHead(c.width, c.classes) if c.classes else None
        self.see_patches = Tap()
        pick(INITS, c.init, "init")(self)

    def forward(self, image_BCLM: Tensor) -> Tensor:
        """The last vectors, of `[CLS]` and then of each patch, line by line."""
        side = self.config.image
        if image_BCLM.shape[-2:] != (side, side):
            height, width = image_BCLM.shape[-2:]
            raise ShapeError(f"this model reads images of {side} × {side} pixels, not of {height} × {width}")
        patch_BLD = self.see_patches(self.patches(image_BCLM))
        x_BLD = torch.cat([self.first_1D.expand(len(patch_BLD), 1, -1), patch_BLD], dim=1)
        position_BL = torch.arange(x_BLD.shape[1], device=x_BLD.device)[None]
        x_BLD, _ = self.encoder(self.dropout(self.place(x_BLD, position_BL)))
        return x_BLD

    def pooled(self, hidden_BLD: Tensor) -> Tensor:
        """One vector for each image of what `forward` returned."""
        return self.pool(hidden_BLD, Rows.of(None, hidden_BLD.shape[1]))

    def classes(self, image_BCLM: Tensor) -> Tensor:
        """Logits of the classes of each image."""
        if self.class_head is None:
            raise ConfigError("this model has no such head: build it with `classes` set in its config")
        return self.class_head(self.pooled(self(image_BCLM)))

    def parameters_table(self, depth: int = 3) -> ParameterTable:
        """What holds how many parameters."""
        return parameters_table(self, depth)

    def flops(self, batch: int) -> int:
        """Floating-point operations of one forward pass over `batch` images, the head left out."""
        patches = (self.config.image // self.config.patch) ** 2
        pixels = self.config.channels * self.config.patch**2
        return 2 * batch * patches * pixels * self.config.width + self.encoder.flops(batch, 1 + patches, 1 + patches)
