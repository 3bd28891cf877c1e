"""Where the literature is wrong (`docs/errata.md`): in each test the ruling holds and the quoted form does not.

Plain torch, no part of clearhead: these are statements about the mathematics.
"""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.testing import assert_close

ERRATA = Path(__file__).resolve().parents[2] / "docs" / "errata.md"


def differ(a: Tensor, b: Tensor) -> bool:
    return a.shape != b.shape or not torch.allclose(a, b, rtol=1e-3, atol=1e-3)


def attend(q: Tensor, k: Tensor, v: Tensor, allowed: Tensor | None = None) -> Tensor:
    """Attention as a plain loop: each query weighs the values that it may look at."""
    rows = []
    for i in range(len(q)):
        seen = [j for j in range(len(k)) if allowed is None or allowed[i, j]]
        score = torch.tensor([float(q[i] @ k[j]) for j in seen])
        weight = score.exp() / score.exp().sum()
        rows.append(sum(w * v[j] for w, j in zip(weight, seen, strict=True)))
    return torch.stack(rows)


def test_01_cross_attention_queries_come_from_the_decoder() -> None:
    attention = nn.MultiheadAttention(8, 2, batch_first=True).eval()
    encoder, decoder = torch.randn(1, 5, 8), torch.randn(1, 3, 8)
    later = decoder.clone()
    later[:, -1] += 1

    def ruling(decoder: Tensor) -> Tensor:
        return attention(query=decoder, key=encoder, value=encoder)[0]

    def quoted(decoder: Tensor) -> Tensor:
        return attention(query=encoder, key=decoder, value=decoder)[0]

    assert ruling(decoder).shape == decoder.shape, "one output per target token"
    assert quoted(decoder).shape != decoder.shape
    # The causal mask of the decoder would be worth nothing if the layer above could see ahead.
    assert_close(ruling(later)[:, :-1], ruling(decoder)[:, :-1])
    assert differ(quoted(later)[:, :-1], quoted(decoder)[:, :-1])


def test_02_scores_are_q_times_k_transposed() -> None:
    q, k, v = torch.randn(3, 4, 6)
    ruling = torch.softmax(q @ k.T, dim=-1) @ v
    quoted = torch.softmax(k @ q.T, dim=-1) @ v
    assert_close(ruling, attend(q, k, v))
    assert_close(ruling, F.scaled_dot_product_attention(q[None], k[None], v[None], scale=1.0)[0])
    assert differ(quoted, attend(q, k, v))
    # With tokens as columns the very same letters are right (Phuong and Hutter): softmax down the columns.
    assert_close((v.T @ torch.softmax(k @ q.T, dim=0)).T, ruling)


def test_03_masked_scores_are_minus_infinity() -> None:
    n = 5
    q, k, v = torch.randn(3, n, 6)
    allowed = torch.ones(n, n).tril().bool()
    prefixes = attend(q, k, v, allowed)
    score = q @ k.T
    assert_close(torch.softmax(score.masked_fill(~allowed, float("-inf")), dim=-1) @ v, prefixes)

    quoted = {
        "scores set to zero": torch.softmax(score.masked_fill(~allowed, 0.0), dim=-1),
        "scores times the mask": torch.softmax(score * allowed, dim=-1),
        "weights times the mask": torch.softmax(score, dim=-1) * allowed,
        "diagonal masked too": torch.softmax(score.masked_fill(~allowed.tril(-1), float("-inf")), dim=-1),
    }
    for name, weight in quoted.items():
        assert differ(weight @ v, prefixes), name
    assert quoted["diagonal masked too"][0].isnan().all(), "the first word would have nothing to look at"


def test_04_layer_norm_has_zero_mean_and_squared_length_d() -> None:
    d, eps = 64, 1e-5
    x = 3 + 5 * torch.randn(10, d)
    mean, variance = x.mean(-1, keepdim=True), x.var(-1, correction=0, keepdim=True)
    ruling = (x - mean) / (variance + eps).sqrt()
    assert_close(ruling, F.layer_norm(x, (d,), eps=eps))
    assert_close(ruling.mean(-1), torch.zeros(10), atol=1e-5, rtol=0)
    assert_close((ruling * ruling).sum(-1), torch.full((10,), float(d)))

    quoted = (x - mean) / (variance.sqrt().sqrt() + eps)
    assert differ(quoted, F.layer_norm(x, (d,), eps=eps))
    assert differ((quoted * quoted).sum(-1), torch.full((10,), float(d)))
    assert differ(ruling.mean(-1), torch.ones(10)), "not a unit mean"
    assert differ((ruling * ruling).sum(-1), torch.full((10,), d**0.5)), "not √d: that is the length, not its square"


def last_gradient(place: Callable[[Tensor, nn.Module], Tensor], layers: int, *, final_norm: bool) -> float:
    """Norm of the gradient of the last layer's last matrix, at initialisation, averaged over a few seeds."""
    width, seeds = 32, 8
    norms = []
    for seed in range(seeds):
        torch.manual_seed(seed)
        blocks = [nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width)) for _ in range(layers)]
        for block in blocks:
            nn.init.xavier_normal_(block[0].weight)
            nn.init.xavier_normal_(block[2].weight)
        x, target = torch.randn(16, width), torch.randint(width, (16,))
        for block in blocks:
            x = place(x, block)
        x = F.layer_norm(x, (width,)) if final_norm else x
        F.cross_entropy(x @ torch.randn(width, width) / width**0.5, target).backward()
        norms.append(float(blocks[-1][2].weight.grad.norm()))
    return sum(norms) / seeds


def post_norm(x: Tensor, branch: Callable[[Tensor], Tensor]) -> Tensor:
    return F.layer_norm(x + branch(x), x.shape[-1:])


def pre_norm(x: Tensor, branch: Callable[[Tensor], Tensor]) -> Tensor:
    return x + branch(F.layer_norm(x, x.shape[-1:]))


def inner_norm(x: Tensor, branch: Callable[[Tensor], Tensor]) -> Tensor:
    return x + F.layer_norm(branch(x), x.shape[-1:])


def test_05_post_norm_is_the_hard_one_and_the_inner_form_is_neither() -> None:
    # Xiong 2020, theorem 1: at initialisation the gradient of the last layer stays as large as it was under Post-LN,
    # however deep the stack, which is why it needs the warm-up; under Pre-LN it falls like 1/√L.
    shallow, deep = 2, 18
    post_shallow, post_deep = (last_gradient(post_norm, layers, final_norm=False) for layers in (shallow, deep))
    pre_shallow, pre_deep = (last_gradient(pre_norm, layers, final_norm=True) for layers in (shallow, deep))
    assert post_deep > 0.8 * post_shallow
    assert pre_deep < 0.6 * pre_shallow
    assert post_deep > 2 * pre_deep, "the quoted form has it the other way round"

    x = 3 + torch.randn(4, 8)
    branch = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))

    def louder(x: Tensor) -> Tensor:
        return 10 * branch(x)

    assert_close(post_norm(x, branch).mean(-1), torch.zeros(4), atol=1e-5, rtol=0)
    assert differ(inner_norm(x, branch).mean(-1), torch.zeros(4)), "so it is not Post-LN"
    assert_close(pre_norm(x, louder) - x, 10 * (pre_norm(x, branch) - x), rtol=1e-4, atol=1e-4)
    assert differ(inner_norm(x, louder) - x, 10 * (inner_norm(x, branch) - x)), "so it is not Pre-LN"


def test_06_feed_forward_widens_then_narrows() -> None:
    n, d, d_f = 5, 4, 16
    x = torch.randn(n, d)
    layer = nn.Sequential(nn.Linear(d, d_f, bias=False), nn.ReLU(), nn.Linear(d_f, d, bias=False))
    w1, w2 = layer[0].weight.T, layer[2].weight.T
    assert (w1.shape, w2.shape) == ((d, d_f), (d_f, d))
    assert_close(torch.relu(x @ w1) @ w2, layer(x))
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        _ = torch.relu(x @ w1.T) @ w2.T


def test_07_stacked_attentions_collapse_in_the_order_second_times_first() -> None:
    n = 5
    first, second = torch.randn(2, n, n).softmax(dim=-1)
    x = torch.randn(n, 3)
    stacked = second @ (first @ x)
    ruling = torch.einsum("ij,jk->ik", second, first)
    assert_close(ruling @ x, stacked)
    assert_close(ruling.sum(-1), torch.ones(n))  # attention again: its rows sum to one
    assert differ(torch.einsum("ij,jk->ik", first, second) @ x, stacked)
    assert differ((second * first) @ x, stacked)


def sinusoid_angles(positions: Tensor, width: int) -> Tensor:
    return positions[:, None] / 10_000 ** (torch.arange(0, width, 2) / width)


def interleaved(positions: Tensor, width: int) -> Tensor:
    angle = sinusoid_angles(positions, width)
    return torch.stack((angle.sin(), angle.cos()), dim=-1).flatten(-2)


def halves(positions: Tensor, width: int) -> Tensor:
    angle = sinusoid_angles(positions, width)
    return torch.cat((angle.sin(), angle.cos()), dim=-1)


def test_08_sine_and_cosine_halves_are_a_permutation_and_fixed() -> None:
    n, d, shift = 40, 16, 3
    position = torch.arange(n, dtype=torch.float64)
    a, b = interleaved(position, d), halves(position, d)
    order = torch.arange(d).view(2, d // 2).T.flatten()
    assert_close(b[:, order], a)
    assert_close(b @ b.T, a @ a.T)
    assert differ(a, b), "the same columns, but not the same matrix: weights trained on one do not fit the other"

    # Fixed: one and the same matrix moves every position by the same distance, also beyond any trained length.
    # A learned table obeys no such law.
    def moves_by_one_matrix(table: Tensor) -> bool:
        here, there = table[:-shift], table[shift:]
        best = torch.linalg.lstsq(here, there, driver="gelsd").solution
        return torch.allclose(here @ best, there)

    assert moves_by_one_matrix(a)
    assert moves_by_one_matrix(interleaved(position + 1_000, d))
    assert not moves_by_one_matrix(nn.Embedding(n, d).weight.double().detach())


def test_09_the_outputs_are_the_rows_of_z() -> None:
    n, d = 4, 6
    x = torch.randn(n, d)
    weight = torch.softmax(x @ x.T, dim=-1)
    z = weight @ x
    for i in range(n):
        assert_close(z[i], sum(weight[i, j] * x[j] for j in range(n)))
    quoted = z.sum(dim=0)
    assert quoted.shape != x.shape, "one vector for the whole sentence"
    shuffled = x[[2, 0, 3, 1]]
    shuffled_z = torch.softmax(shuffled @ shuffled.T, dim=-1) @ shuffled
    assert differ(shuffled_z, z), "each output belongs to its word"
    assert_close(shuffled_z.sum(dim=0), quoted)  # ... which the sum has lost


def test_10_the_loss_is_cross_entropy_and_p_minus_y_its_gradient() -> None:
    logits = torch.randn(3, 7, requires_grad=True)
    target = torch.tensor([1, 6, 0])
    y = F.one_hot(target, 7).float()
    F.cross_entropy(logits, target, reduction="sum").backward()
    p = logits.softmax(-1)
    assert logits.grad is not None
    assert_close(logits.grad, (p - y).detach())

    quoted = (p - y).sum()
    assert_close(quoted, torch.tensor(0.0), atol=1e-6, rtol=0)  # always, whatever the model says ...
    logits.grad = None
    quoted.backward()
    assert_close(logits.grad, torch.zeros_like(logits), atol=1e-6, rtol=0)  # ... so it teaches nothing


@pytest.mark.parametrize("heads", [1, 2, 4])
def test_11_heads_do_not_bring_order(heads: int) -> None:
    n, d = 6, 8
    attention = nn.MultiheadAttention(d, heads, batch_first=True).eval()
    x, order = torch.randn(1, n, d), torch.tensor([3, 0, 5, 1, 4, 2])

    def read(x: Tensor) -> Tensor:
        return attention(x, x, x)[0]

    assert_close(read(x[:, order]), read(x)[:, order])
    position = interleaved(torch.arange(n), d)
    assert differ(read(x[:, order] + position), read(x + position)[:, order])


def test_12_berts_second_task_is_next_sentence() -> None:
    bert = pytest.importorskip("transformers.models.bert.modeling_bert", reason="the reference implementation")
    config = bert.BertConfig(
        vocab_size=11, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16
    )
    model = bert.BertForPreTraining(config).eval()
    tokens = torch.tensor([[1, 5, 2, 6, 2]])
    segments = torch.tensor([[0, 0, 0, 1, 1]])
    logits = model(input_ids=tokens, token_type_ids=segments).seq_relationship_logits
    followed, strange, contradicted = torch.tensor([0]), torch.tensor([1]), torch.tensor([2])
    assert logits.shape == (1, 2), "it follows, or it does not"
    assert F.cross_entropy(logits, followed) != F.cross_entropy(logits, strange)
    with pytest.raises(IndexError, match="out of bounds"):  # entailed, neutral, contradicted would be three
        F.cross_entropy(logits, contradicted)


def test_13_every_attention_layer_has_heads_of_its_own() -> None:
    d, heads, encoder_layers, decoder_layers = 8, 2, 2, 3
    model = nn.Transformer(d, heads, encoder_layers, decoder_layers, dim_feedforward=16, batch_first=True)
    attentions = [module for module in model.modules() if isinstance(module, nn.MultiheadAttention)]
    ruling = encoder_layers + 2 * decoder_layers
    assert len(attentions) == ruling
    assert {attention.num_heads for attention in attentions} == {heads}
    assert len({attention.in_proj_weight.data_ptr() for attention in attentions}) == ruling, "none is shared"
    parameters = sum(parameter.numel() for attention in attentions for parameter in attention.parameters())
    one_set = 4 * d * d + 4 * d
    assert parameters == ruling * one_set
    assert parameters != 2 * one_set, "one set for each half of the model"


def test_14_noise_before_ranking_knows_the_unit_of_a_column() -> None:
    x = torch.randn(2_000)

    def quoted(x: Tensor) -> Tensor:
        return x + 1e-3 / x.std().clamp(min=1e-3) * torch.randn_like(x)

    def ranks(x: Tensor, known: Tensor) -> Tensor:
        """How many of the known values lie below; of those that are equal, half."""
        known = known.sort().values
        return (torch.searchsorted(known, x) + torch.searchsorted(known, x, right=True)) / 2

    def kept(x: Tensor, noisy: Tensor) -> float:
        """The spread of the ranks beside that of ranks spread evenly."""
        return float(ranks(x, noisy).std() / ranks(x, x).std())

    assert abs(kept(x, quoted(x)) - 1) < 0.02
    assert kept(x * 1e-3, quoted(x * 1e-3)) < 0.02, "hundreds of times the column: all values have one rank"
    assert_close(ranks(x * 1e-3, x * 1e-3), ranks(x, x))
    twice = torch.tensor([0.0, 0.0, 0.0, 1.0])
    assert_close(ranks(twice, twice), torch.tensor([1.5, 1.5, 1.5, 3.5]))  # what the noise was for
    # A share of the standard deviation is no remedy: one value far away makes it as large as one likes.
    far = torch.cat([x, torch.tensor([1e6])])
    assert kept(x, far + 1e-3 * far.std() * torch.randn_like(far)) < 0.1
    assert_close(ranks(x, far), ranks(x, x))


def test_every_item_names_its_test_and_every_test_its_item() -> None:
    named = re.findall(r"test_errata\.py::(test_\d\d_\w+)", ERRATA.read_text(encoding="utf-8"))
    written = [name for name in globals() if re.match(r"test_\d\d_", name)]
    assert named == written
