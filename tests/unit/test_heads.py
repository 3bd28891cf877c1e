"""Heads and poolings against their formulas; the loss against the plain cross-entropy."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearhead.errors import ConfigError
from clearhead.nn.feedforward import ACTIVATIONS
from clearhead.nn.heads import POOLERS, POOLINGS, ClassHead, Pooler, Unembedding, WordHead
from clearhead.nn.rows import Rows
from clearhead.tap import watching
from tests.parity.plain import same
from tests.unit.small import small_model, tokens

WIDTH, LENGTH = 6, 5
COUNTS = [5, 1, 3]


def pooled_by_hand(name: str, x_LD: Tensor) -> Tensor:
    """One row, padding cut off."""
    rows = x_LD.tolist()
    columns = list(zip(*rows, strict=True))
    by_hand = {
        "first": rows[0],
        "last": rows[-1],
        "mean": [sum(column) / len(column) for column in columns],
        "maximum": [max(column) for column in columns],
    }
    return torch.tensor(by_hand[name])


@pytest.mark.parametrize("name", sorted(POOLINGS))
def test_poolings_read_real_positions_alone(name: str) -> None:
    x_BLD = torch.randn(3, LENGTH, WIDTH) - 2
    pooled_BD = POOLINGS[name](x_BLD, Rows.of(torch.tensor(COUNTS), LENGTH, pack=False))
    for x_LD, pooled_D, count in zip(x_BLD, pooled_BD, COUNTS, strict=True):
        same(pooled_D, pooled_by_hand(name, x_LD[:count]))


@pytest.mark.parametrize("name", sorted(POOLINGS))
def test_poolings_without_counts_read_everything(name: str) -> None:
    x_BLD = torch.randn(3, LENGTH, WIDTH)
    pooled_BD = POOLINGS[name](x_BLD, Rows.of(None, LENGTH, pack=False))
    for x_LD, pooled_D in zip(x_BLD, pooled_BD, strict=True):
        same(pooled_D, pooled_by_hand(name, x_LD))


@pytest.mark.parametrize("name", sorted(POOLINGS))
def test_poolings_without_counts_stay_on_the_device(name: str) -> None:
    pooled_BD = POOLINGS[name](torch.empty(3, LENGTH, WIDTH, device="meta"), Rows.of(None, LENGTH))
    assert pooled_BD.is_meta
    assert pooled_BD.shape == (3, WIDTH)


@pytest.mark.parametrize("name", sorted(POOLINGS))
@pytest.mark.parametrize("counts", [None, torch.tensor([4, 2])], ids=["whole", "ragged"])
def test_every_pooling_serves_the_model(name: str, counts: Tensor | None) -> None:
    model = small_model("encoder_only", pooling=name, classes=3)
    token_BL = tokens(2, 4)
    logits_BC = model.classes(token_BL, count_B=counts)
    assert logits_BC.shape == (2, 3)
    for b, count in enumerate((4, 4) if counts is None else counts.tolist()):
        same(logits_BC[b], model.classes(token_BL[b : b + 1, :count])[0])


def bent_by_hand(name: str, x_D: list[float]) -> list[float]:
    bent = {
        "none": x_D,
        "tanh": [math.tanh(x) for x in x_D],
        "relu": [max(x, 0.0) for x in x_D],
        "unit": [x / math.sqrt(sum(y * y for y in x_D)) for x in x_D],
    }
    return bent[name]


@pytest.mark.parametrize("name", sorted(POOLERS))
def test_a_pooler_projects_where_it_should_and_bends(name: str) -> None:
    pooler, x_BLD = Pooler(WIDTH, "first", name), torch.randn(2, LENGTH, WIDTH)
    first_BD = x_BLD[:, 0]
    if name in ("tanh", "relu"):
        first_BD = first_BD @ pooler.dense.weight.T + pooler.dense.bias
    expected = torch.tensor([bent_by_hand(name, row) for row in first_BD.tolist()])
    same(pooler(x_BLD, Rows.of(None, LENGTH, pack=False)), expected)
    assert bool(list(pooler.parameters())) == (name in ("tanh", "relu"))


def test_an_unknown_name_names_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"pooling 'mena'.*'mean'"):
        Pooler(WIDTH, "mena")
    with pytest.raises(ConfigError, match=r"pooler 'tan'.*'tanh'"):
        Pooler(WIDTH, "mean", "tan")


@pytest.mark.parametrize("bias", [True, False])
def test_logits_are_scaled_dot_products_with_every_word(bias: bool) -> None:
    output, x_BLD = Unembedding(WIDTH, 9, bias=bias, scale=0.5), torch.randn(2, 3, WIDTH)
    offset_V = output.linear.bias if bias else torch.zeros(9)
    for word in range(9):
        one_BL = 0.5 * (x_BLD * output.linear.weight[word]).sum(-1) + offset_V[word]
        same(output(x_BLD)[..., word], one_BL)


def test_a_tied_output_is_the_embedding_itself() -> None:
    embedding = nn.Embedding(9, WIDTH)
    output = Unembedding(WIDTH, 9).tie(embedding)
    assert output.linear.weight is embedding.weight
    x_BLD = torch.randn(2, 3, WIDTH)
    with torch.no_grad():
        embedding.weight.mul_(2)
    same(output(x_BLD), x_BLD @ embedding.weight.T)
    output(x_BLD).sum().backward()
    assert embedding.weight.grad is not None


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("bias", [True, False])
def test_the_loss_is_the_summed_cross_entropy_of_the_logits(bias: bool, smoothing: float) -> None:
    output = Unembedding(WIDTH, 9, bias=bias, scale=0.7)
    x_ND, target_N = torch.randn(7, WIDTH, requires_grad=True), torch.tensor([0, 8, 3, -100, 3, 1, -100])
    loss = output.loss(x_ND, target_N, smoothing)
    log_p = output(x_ND).log_softmax(-1)
    expected = torch.zeros(())
    for row, target in zip(log_p, target_N.tolist(), strict=True):
        if target >= 0:
            expected = expected - (1 - smoothing) * row[target] - smoothing * row.mean()
    same(loss, expected, 1e-4)
    (found,) = torch.autograd.grad(loss, x_ND, retain_graph=True)
    (wanted,) = torch.autograd.grad(expected, x_ND)
    same(found, wanted, 1e-4)


def test_a_target_of_minus_100_does_not_count() -> None:
    x_ND, target_N = torch.randn(3, WIDTH), torch.tensor([1, -100, 0])
    for head in (Unembedding(WIDTH, 4), ClassHead(WIDTH, 4)):
        same(head.loss(x_ND, target_N), head.loss(x_ND[[0, 2]], target_N[[0, 2]]), 1e-4)


def test_the_head_for_masked_words() -> None:
    """W_e LN(gelu(W x + b)) + b_e [devlin2019]."""
    norm = nn.LayerNorm(WIDTH)
    head, x_BLD = WordHead(WIDTH, 9, ACTIVATIONS["gelu"], norm), torch.randn(2, 3, WIDTH)
    wide = x_BLD @ head.dense.weight.T + head.dense.bias
    bent = wide * (1 + torch.erf(wide / math.sqrt(2))) / 2
    expected = norm(bent) @ head.words.linear.weight.T + head.words.linear.bias
    same(head(x_BLD), expected)
    same(head.transform(x_BLD), norm(bent))


def test_the_head_of_a_model_is_tied_to_its_embedding() -> None:
    model = small_model("encoder_only")
    assert model.word_head.words.linear.weight is model.embed.tokens.weight
    same(model.words(tokens()), model.word_head(model(tokens())))


def test_classes_of_a_row_and_labels_of_each_token() -> None:
    head = ClassHead(WIDTH, 4, dropout=0.5)
    x_BLD = torch.randn(2, 8, WIDTH)
    assert not torch.allclose(head(x_BLD), head(x_BLD))
    head.eval()
    same(head(x_BLD), x_BLD @ head.linear.weight.T + head.linear.bias)
    target_BL = torch.randint(4, (2, 8))
    log_p = head(x_BLD).log_softmax(-1).flatten(0, 1)
    picked = [-row[target] for row, target in zip(log_p, target_BL.flatten().tolist(), strict=True)]
    same(head.loss(x_BLD, target_BL), torch.stack(picked).sum(), 1e-4)
    same(head.loss(x_BLD[:, 0], target_BL[:, 0]), F.cross_entropy(head(x_BLD[:, 0]), target_BL[:, 0]) * 2, 1e-4)


def test_logits_are_seen_and_edited() -> None:
    output, x_BLD = Unembedding(WIDTH, 9), torch.randn(2, 3, WIDTH)
    with watching(output, {"logits": torch.zeros_like}):
        assert torch.all(output(x_BLD) == 0)
