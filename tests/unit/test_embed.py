"""Embeddings: look-ups as products with one-hot vectors, patches as a strided convolution."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearhead.errors import ShapeError
from clearhead.nn.embed import PatchEmbedding, PointEmbedding, TokenEmbedding
from clearhead.nn.positions import POSITIONS, Place
from clearhead.tap import watching
from tests.parity.plain import same
from tests.unit.small import small_model

VOCABULARY, WIDTH = 11, 6
TOKENS = torch.tensor([[1, 10, 3, 1], [0, 5, 5, 2]])
PLACES = torch.arange(4)[None]


def rows_of(table: nn.Embedding, index_BL: Tensor) -> Tensor:
    """The look-up as a product: one-hot vectors times the matrix."""
    return F.one_hot(index_BL, table.num_embeddings).float() @ table.weight


def test_a_look_up_is_a_one_hot_vector_times_the_matrix() -> None:
    embed = TokenEmbedding(VOCABULARY, WIDTH)
    same(embed(TOKENS, PLACES), rows_of(embed.tokens, TOKENS))


def test_every_part_of_the_sum() -> None:
    """LN(√D · E[token] + S[segment] + P[position])."""
    positions = POSITIONS["learned"](Place(WIDTH, 1, WIDTH, length=4))
    norm = nn.LayerNorm(WIDTH)
    embed = TokenEmbedding(
        VOCABULARY, WIDTH, scale=math.sqrt(WIDTH), positions=positions, segments=2, norm=norm
    )  # fmt: skip
    segment_BL = torch.tensor([[0, 0, 1, 1], [0, 1, 1, 1]])
    assert embed.segments is not None
    places_BLD = rows_of(embed.place.table, PLACES)
    total = math.sqrt(WIDTH) * rows_of(embed.tokens, TOKENS) + rows_of(embed.segments, segment_BL) + places_BLD
    same(embed(TOKENS, PLACES, segment_BL), norm(total))
    of_first = math.sqrt(WIDTH) * rows_of(embed.tokens, TOKENS) + embed.segments.weight[0] + places_BLD
    same(embed(TOKENS, PLACES), norm(of_first))


@pytest.mark.parametrize("length", [1.0, 3.0])
def test_fix_norm_gives_every_word_one_length(length: float) -> None:
    embed = TokenEmbedding(VOCABULARY, WIDTH, fixed=length)
    x_BLD = embed(TOKENS, PLACES)
    same(x_BLD.norm(dim=-1), torch.full(TOKENS.shape, length))
    same(x_BLD, length * F.normalize(rows_of(embed.tokens, TOKENS), dim=-1))


def test_dropout_in_training_alone() -> None:
    embed = TokenEmbedding(VOCABULARY, WIDTH, dropout=0.5)
    assert not torch.equal(embed(TOKENS, PLACES), embed(TOKENS, PLACES))
    assert (embed(TOKENS, PLACES) == 0).any()
    same(embed.eval()(TOKENS, PLACES), rows_of(embed.tokens, TOKENS))


def test_words_and_sum_are_seen() -> None:
    positions = POSITIONS["sinusoidal"](Place(WIDTH, 1, WIDTH))
    embed, seen = TokenEmbedding(VOCABULARY, WIDTH, scale=2.0, positions=positions), {}
    with watching(embed, {name: lambda x, name=name: seen.setdefault(name, x) for name in ("tokens", "sum")}):
        x_BLD = embed(TOKENS, PLACES)
    same(seen["tokens"], 2 * rows_of(embed.tokens, TOKENS))
    assert torch.equal(seen["sum"], x_BLD)


def test_the_paper_scales_and_ties() -> None:
    """One matrix for source, target and output, multiplied by √D at the input only [vaswani2017 §3.4]."""
    model = small_model("encoder_decoder")
    assert model.source_embed.scale == math.sqrt(16)
    addresses = {
        model.source_embed.tokens.weight.data_ptr(),
        model.target_embed.tokens.weight.data_ptr(),
        model.output.linear.weight.data_ptr(),
    }
    assert len(addresses) == 1
    apart = small_model("encoder_decoder", tied=False, target_vocabulary=9)
    assert apart.target_embed.tokens.weight.shape == apart.output.linear.weight.shape == (9, 16)
    assert apart.target_embed.tokens.weight.data_ptr() != apart.output.linear.weight.data_ptr()
    assert small_model("decoder_only").embed.scale == 1.0


def test_patches_are_a_strided_convolution_and_a_linear_layer_of_flattened_squares() -> None:
    channels, patch, height, width = 3, 2, 4, 6
    embed = PatchEmbedding(channels, patch, WIDTH)
    weight, bias = embed.project.weight, embed.project.bias
    image = torch.randn(2, channels, height, width)
    patches_BLD = embed(image)
    strided = F.conv2d(image, weight, bias, stride=patch)
    same(patches_BLD, strided.flatten(2).mT)
    unfolded_BLW = F.unfold(image, patch, stride=patch).mT
    same(patches_BLD, F.linear(unfolded_BLW, weight.flatten(1), bias))
    for row in range(height // patch):
        for column in range(width // patch):
            square = image[:, :, row * patch : (row + 1) * patch, column * patch : (column + 1) * patch]
            expected = square.flatten(1) @ weight.flatten(1).T + bias
            same(patches_BLD[:, row * (width // patch) + column], expected)


@pytest.mark.parametrize(("height", "width"), [(5, 4), (4, 5)])
def test_an_image_must_divide_into_patches(height: int, width: int) -> None:
    with pytest.raises(ShapeError, match=f"height={height}, width={width}, patch=2"):
        PatchEmbedding(1, 2, WIDTH)(torch.randn(1, 1, height, width))


def test_points_are_projected_one_by_one() -> None:
    embed = PointEmbedding(3, WIDTH)
    points_BLW = torch.randn(2, 5, 3)
    expected = torch.stack([embed.project.weight @ point + embed.project.bias for point in points_BLW.flatten(0, 1)])
    same(embed(points_BLW).flatten(0, 1), expected)
